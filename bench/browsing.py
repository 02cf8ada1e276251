"""How does a real browser cope with a large queue? Part of `python -m bench.page`: a Chromium that watches while documents
come and go; pictures of what it shows go to build/shots/. Needs the program chromium.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from fairlane import Queue

from .figures import Figure, Goal

SHOTS = Path(__file__).parents[1] / "build/shots"
PATIENCE_MS = 120_000
LIVE_GOAL, FIRST_GOAL, ANSWER_GOAL, LONG_GOAL_MS, HEAP_GOAL_MB = 2.0, 3.0, 2.0, 200.0, 50.0
BURST = 60  # documents of a customer that nobody has seen: enough to be among the biggest
WATCHING = """() => {
  window.long = [];
  new PerformanceObserver((told) => window.long.push(...told.getEntries().map((one) => one.duration)))
    .observe({ type: "longtask", buffered: true });
}"""
COUNTED = "() => [...document.querySelectorAll('.lanes li b')].some((one) => one.textContent !== '0')"
WHOLE = f"{COUNTED} && !document.querySelector('.story').textContent.includes('…')"


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _shown(page: Page, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")


def _opened(page: Page, address: str) -> tuple[float, float]:
    """Seconds until the lanes show something, and until they show everything."""
    began = time.monotonic()
    page.goto(f"{address}/#/lanes", wait_until="commit")
    page.wait_for_function(COUNTED, timeout=PATIENCE_MS)
    first = time.monotonic() - began
    _shown(page, "big-lanes-counting")
    page.wait_for_function(WHOLE, timeout=PATIENCE_MS)
    return first, time.monotonic() - began


def _live(page: Page, queue: Queue, times: int) -> list[float]:
    """How long after its commit a burst of documents is to be seen in the list of who waits."""
    told = []
    for number in range(times):
        queue.submit_many(f"burst {number}", [1] * (BURST + number))
        told.append(_seconds(page.locator(".legend").filter(has_text=f"burst {number}").wait_for))
    return told


def _customers(page: Page) -> list[float]:
    """How long the list of customers takes: opened, searched, sorted, and more of it."""
    rows = page.locator("tbody tr")

    def opened() -> None:
        page.locator("nav a").nth(1).click()
        rows.nth(49).wait_for()

    def searched() -> None:
        page.locator(".tools input").fill("customer 00123")
        page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 10")

    def sorted_by_counter() -> None:
        page.locator(".tools input").fill("")
        rows.nth(49).wait_for()
        before = rows.first.text_content()
        page.get_by_role("button", name="Counter").click()
        page.wait_for_function("before => document.querySelector('tbody tr').textContent !== before", arg=before)

    def more() -> None:
        for shown in (50, 100, 150, 200):
            page.mouse.wheel(0, 100_000)
            page.get_by_role("button", name="Show more").click()
            rows.nth(shown + 49).wait_for()

    told = [_seconds(work) for work in (opened, searched, sorted_by_counter)]
    _shown(page, "big-customers")
    return [*told, _seconds(more) / 4]


def _documents(page: Page, id: str) -> list[float]:
    """How long it takes to see the newest documents, one by its id, and that a search goes on."""
    search = page.locator(".tools input").first

    def opened() -> None:
        page.locator("nav a").nth(2).click()
        page.locator("tbody tr").nth(49).wait_for()

    def found() -> None:
        search.fill(id)
        page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 1")

    def searching() -> None:
        search.fill("no such name")
        page.get_by_text(re.compile("checked so far|No documents match")).first.wait_for()

    told = [_seconds(opened)]
    _shown(page, "big-documents")
    told += [_seconds(found), _seconds(searching)]
    _shown(page, "big-documents-searching")
    return told


def browsed(program: str, address: str, key: str, queue: Queue) -> list[Figure]:
    """A browser on a server that nobody has looked at yet."""
    oldest = queue.engine.documents(None, None, 1000, 1)[0].id
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        context = browser.new_context(locale="en", viewport={"width": 1440, "height": 1000})
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        context.request.post(f"{address}/page/session", data={"key": key})
        page.add_init_script(f"({WATCHING})()")
        first, whole = _opened(page, address)
        late = _live(page, queue, 5)
        _shown(page, "big-lanes")
        customers, documents = _customers(page), _documents(page, oldest)
        page.locator("nav a").first.click()
        late += _live_again(page, queue)
        long = [float(one) for one in page.evaluate("window.long")]
        line = context.new_cdp_session(page)
        line.send("HeapProfiler.collectGarbage")
        line.send("Performance.enable")
        heap = {one["name"]: one["value"] for one in line.send("Performance.getMetrics")["metrics"]}["JSHeapUsedSize"] / 1e6
        browser.close()
    at_most = Goal(1, is_least=False)
    return [
        Figure("browser: first picture", first, "s", FIRST_GOAL, at_most, f"everything after {whole:.1f} s"),
        Figure("browser: latest update", max(late), "s", LIVE_GOAL, at_most, f"{len(late)} bursts"),
        Figure("browser: slowest of customers", max(customers), "s", ANSWER_GOAL, at_most, _told(customers)),
        Figure("browser: slowest of documents", max(documents), "s", ANSWER_GOAL, at_most, _told(documents)),
        Figure("browser: longest task", max(long, default=0.0), "ms", LONG_GOAL_MS, at_most, f"{len(long)} of 50 ms or more"),
        Figure("browser: memory of scripts", heap, "MB", HEAP_GOAL_MB, at_most),
    ]


def _live_again(page: Page, queue: Queue) -> list[float]:
    page.locator(".legend li").first.wait_for()
    queue.submit_many("burst again", [1] * (BURST * 2))
    return [_seconds(page.locator(".legend").filter(has_text="burst again").wait_for)]


def _told(seconds: list[float]) -> str:
    return ", ".join(f"{one:.1f}" for one in seconds)
