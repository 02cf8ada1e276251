"""Benchmark of opening the page: `python -m bench.opening`, with a cold Chromium on a line of 1.6 Mbit/s and 150 ms.

Measures the time until the sign-in form and, with a session, until the first view of the lanes. Needs the program chromium.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import click
from playwright.sync_api import Browser, BrowserContext

from tests.chromium import chromium

from .shots import DemoServer, serve, sign_in

LINE = {"offline": False, "latency": 150, "downloadThroughput": 1.6e6 / 8, "uploadThroughput": 750e3 / 8}
SECONDS_GOAL, BYTES_GOAL = 2.0, 150_000
ROUNDS = 5


def _open_page(context: BrowserContext, address: str, selector: str) -> tuple[float, int]:
    """Open the page; return the seconds until the element is visible, and the bytes loaded until then."""
    page, loaded = context.new_page(), [0.0]
    line = context.new_cdp_session(page)
    line.on("Network.loadingFinished", lambda event: loaded.append(event["encodedDataLength"]))
    line.send("Network.enable")
    line.send("Network.emulateNetworkConditions", LINE)
    start = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.locator(selector).first.wait_for()
    seconds = time.perf_counter() - start
    page.close()
    return seconds, int(sum(loaded))


def _rounds(browser: Browser, server: DemoServer, is_signed_in: bool, selector: str) -> tuple[float, int]:
    results = []
    for _ in range(ROUNDS):
        context = browser.new_context(locale="de")
        if is_signed_in:
            page = context.new_page()
            sign_in(page, server, "admin")
            state = context.storage_state()
            context.close()
            context = browser.new_context(locale="de", storage_state=state)  # nothing is cached
        results.append(_open_page(context, server.address, selector))
        context.close()
    return statistics.median(seconds for seconds, _ in results), max(size for _, size in results)


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as server, chromium() as browser:
        for what, is_signed_in, selector in (("sign-in form", False, "input"), ("lanes, signed in", True, ".figure")):
            seconds, size = _rounds(browser, server, is_signed_in, selector)
            click.echo(f"{what}: {seconds:.2f} s of at most {SECONDS_GOAL:g}, {size:,} bytes of at most {BYTES_GOAL:,}")


if __name__ == "__main__":
    main()
