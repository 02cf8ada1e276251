"""A real browser on a large queue, part of `python -m bench.page`: a Chromium shows the live page while documents come and go.

Screenshots go to build/shots/. Needs the program chromium.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page

from fairlane import Queue
from fairlane.engine.walk import walk_documents
from tests.chromium import chromium

from .figures import Figure, Goal

SHOTS = Path(__file__).parents[1] / "build/shots"
TIMEOUT_MS = 120_000
DELAY_GOAL, FIRST_GOAL, RESPONSE_GOAL, LONG_GOAL_MS, HEAP_GOAL_MB = 2.0, 3.0, 2.0, 200.0, 50.0
BURST = 60  # documents of a new customer: enough to be among the biggest
OBSERVE_LONG_TASKS = """() => {
  window.long = [];
  new PerformanceObserver((list) => window.long.push(...list.getEntries().map((entry) => entry.duration)))
    .observe({ type: "longtask", buffered: true });
}"""
SHOWS_COUNTS = "() => [...document.querySelectorAll('.lanes li b')].some((count) => count.textContent !== '0')"
SHOWS_ALL = f"{SHOWS_COUNTS} && !document.querySelector('.story').textContent.includes('…')"


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _screenshot(page: Page, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")


def _open_lanes(page: Page, address: str) -> tuple[float, float]:
    """Measure the seconds until the lanes show something, and until they show everything."""
    began = time.monotonic()
    page.goto(f"{address}/#/lanes", wait_until="commit")
    page.wait_for_function(SHOWS_COUNTS, timeout=TIMEOUT_MS)
    first = time.monotonic() - began
    _screenshot(page, "big-lanes-counting")
    page.wait_for_function(SHOWS_ALL, timeout=TIMEOUT_MS)
    return first, time.monotonic() - began


def _measure_delays(page: Page, queue: Queue, times: int) -> list[float]:
    """Measure how long after its commit a burst of documents is shown in the list of who is waiting."""
    delays = []
    for number in range(times):
        queue.submit_many(f"burst {number}", [1] * (BURST + number))
        delays.append(_seconds(page.locator(".legend").filter(has_text=f"burst {number}").wait_for))
    return delays


def _measure_customers(page: Page) -> list[float]:
    """Measure how long it takes to open, search and sort the list of customers, and to show more of it."""
    rows = page.locator("tbody tr")

    def open_list() -> None:
        page.locator("nav a").nth(1).click()
        rows.nth(49).wait_for()

    def search() -> None:
        page.locator(".tools input").fill("customer 00123")
        page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 10")

    def sort_by_counter() -> None:
        page.locator(".tools input").fill("")
        rows.nth(49).wait_for()
        before = rows.first.text_content()
        page.get_by_role("button", name="Counter").click()
        page.wait_for_function("before => document.querySelector('tbody tr').textContent !== before", arg=before)

    def show_more() -> None:
        for shown in (50, 100, 150, 200):
            page.mouse.wheel(0, 100_000)
            page.get_by_role("button", name="Show more").click()
            rows.nth(shown + 49).wait_for()

    seconds = [_seconds(work) for work in (open_list, search, sort_by_counter)]
    _screenshot(page, "big-customers")
    return [*seconds, _seconds(show_more) / 4]


def _measure_documents(page: Page, id: str) -> list[float]:
    """Measure how long it takes to show the newest documents, find one by its id, and report that a search goes on."""
    search_field = page.locator(".tools input").first

    def open_list() -> None:
        page.locator("nav a").nth(2).click()
        page.locator("tbody tr").nth(49).wait_for()

    def find_by_id() -> None:
        search_field.fill(id)
        page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 1")

    def search_in_vain() -> None:
        search_field.fill("no such name")
        page.get_by_text(re.compile("checked so far|No documents match")).first.wait_for()

    seconds = [_seconds(open_list)]
    _screenshot(page, "big-documents")
    seconds += [_seconds(find_by_id), _seconds(search_in_vain)]
    _screenshot(page, "big-documents-searching")
    return seconds


def measure_browser(address: str, key: str, queue: Queue) -> list[Figure]:
    """Measure a browser on a server without a read model yet."""
    oldest = next(walk_documents(queue.engine, before=1000)).id
    with chromium() as browser:
        context = browser.new_context(locale="en", viewport={"width": 1440, "height": 1000})
        context.set_default_timeout(TIMEOUT_MS)
        page = context.new_page()
        context.request.post(f"{address}/page/session", data={"key": key})
        page.add_init_script(f"({OBSERVE_LONG_TASKS})()")
        first, whole = _open_lanes(page, address)
        delays = _measure_delays(page, queue, 5)
        _screenshot(page, "big-lanes")
        customers, documents = _measure_customers(page), _measure_documents(page, oldest)
        page.locator("nav a").first.click()
        delays += _measure_delay_again(page, queue)
        long_tasks = [float(duration) for duration in page.evaluate("window.long")]
        devtools = context.new_cdp_session(page)
        devtools.send("HeapProfiler.collectGarbage")
        devtools.send("Performance.enable")
        metrics = {metric["name"]: metric["value"] for metric in devtools.send("Performance.getMetrics")["metrics"]}
        heap = metrics["JSHeapUsedSize"] / 1e6
    at_most = Goal(1, is_least=False)
    return [
        Figure("browser: first frame", first, "s", FIRST_GOAL, at_most, f"everything after {whole:.1f} s"),
        Figure("browser: latest update", max(delays), "s", DELAY_GOAL, at_most, f"{len(delays)} bursts"),
        Figure("browser: slowest of customers", max(customers), "s", RESPONSE_GOAL, at_most, _join(customers)),
        Figure("browser: slowest of documents", max(documents), "s", RESPONSE_GOAL, at_most, _join(documents)),
        Figure(
            "browser: longest task",
            max(long_tasks, default=0.0),
            "ms",
            LONG_GOAL_MS,
            at_most,
            f"{len(long_tasks)} of 50 ms or more",
        ),
        Figure("browser: memory of scripts", heap, "MB", HEAP_GOAL_MB, at_most),
    ]


def _measure_delay_again(page: Page, queue: Queue) -> list[float]:
    page.locator(".legend li").first.wait_for()
    queue.submit_many("burst again", [1] * (BURST * 2))
    return [_seconds(page.locator(".legend").filter(has_text="burst again").wait_for)]


def _join(seconds: list[float]) -> str:
    return ", ".join(f"{duration:.1f}" for duration in seconds)
