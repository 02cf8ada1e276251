"""How soon can the page be used? `python -m bench.opening`: a cold Chromium on a line of 1.6 Mbit/s and 150 ms.

Counts from the address to the sign-in form, and, for somebody who is signed in, to the first picture of the lanes. Needs the
program chromium.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import click
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from .shots import Place, serving, sign_in

LINE = {"offline": False, "latency": 150, "downloadThroughput": 1.6e6 / 8, "uploadThroughput": 750e3 / 8}
SECONDS_GOAL, BYTES_GOAL = 2.0, 150_000
ROUNDS = 5


def _opened(context: BrowserContext, address: str, sign: str) -> tuple[float, int]:
    """Seconds until something can be used, and how many bytes were loaded until then."""
    page, loaded = context.new_page(), [0.0]
    line = context.new_cdp_session(page)
    line.on("Network.loadingFinished", lambda told: loaded.append(told["encodedDataLength"]))
    line.send("Network.enable")
    line.send("Network.emulateNetworkConditions", LINE)
    start = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.locator(sign).first.wait_for()
    seconds = time.perf_counter() - start
    page.close()
    return seconds, int(sum(loaded))


def _rounds(browser: Browser, place: Place, is_in: bool, sign: str) -> tuple[float, int]:
    found = []
    for _ in range(ROUNDS):
        context = browser.new_context(locale="de")
        if is_in:
            page = context.new_page()
            sign_in(page, place, False)
            state = context.storage_state()
            context.close()
            context = browser.new_context(locale="de", storage_state=state)  # nothing is cached
        found.append(_opened(context, place.address, sign))
        context.close()
    return statistics.median(seconds for seconds, _ in found), max(size for _, size in found)


def main() -> None:
    """Measure and tell."""
    program = shutil.which("chromium")
    if program is None:
        raise click.ClickException("the program chromium is not here; install it")
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as place, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        for what, is_in, sign in (("sign-in form", False, "input"), ("lanes, signed in", True, ".figure")):
            seconds, size = _rounds(browser, place, is_in, sign)
            click.echo(f"{what}: {seconds:.2f} s of at most {SECONDS_GOAL:g}, {size:,} bytes of at most {BYTES_GOAL:,}")


if __name__ == "__main__":
    main()
