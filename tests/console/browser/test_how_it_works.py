"""The page explains the rules that hold: how the counter moves, what turns are paid with, and open turns."""

from __future__ import annotations

import time
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from fairlane.core.policy import Dispatch, Reset, Turns
from tests.api.running import Server

from .browser_page import KIND, MINUS, BrowserPage, open_page
from .test_stories import drain

SLIDING = "The counter is what you sent within the last 25 minutes; older documents no longer count."
IDLE = "If more than 25 minutes pass without a new document, it returns to 0."
TIME = "so that everyone gets the same processing time."
DOCUMENTS = "customers take turns, one document each."
IN_ORDER = "Within one priority, documents are served in the order in which they came."
OPEN = "One document in 16 is the one that has waited longest"


@pytest.mark.parametrize(
    ("reset", "dispatch", "turns", "shown", "hidden"),
    [
        ("idle", "fair", "time", (IDLE, TIME, OPEN), (SLIDING, DOCUMENTS, IN_ORDER)),
        ("sliding", "fair", "documents", (SLIDING, DOCUMENTS, OPEN), (IDLE, TIME, IN_ORDER)),
        ("sliding", "strict", "time", (SLIDING, IN_ORDER), (IDLE, TIME, DOCUMENTS, OPEN)),
    ],
)
def test_the_page_explains_the_rules_that_hold(
    browser: Browser,
    server: Server,
    reset: Reset,
    dispatch: Dispatch,
    turns: Turns,
    shown: tuple[str, ...],
    hidden: tuple[str, ...],
) -> None:
    server.queue.configure(reset=reset, dispatch=dispatch, turns=turns)
    try:
        with open_page(browser, server, server.operator) as console:
            console.open("how")
            steps = console.page.locator("main ol.steps").inner_text()
            assert [text for text in shown if text not in steps] == []
            assert [text for text in hidden if text in steps] == []
            console.open("what-if")
            form = console.page.locator("form.what-if")
            expect(form.locator("input").first).not_to_have_value("")
            assert form.get_by_label("Customers take turns by").input_value() == turns
            assert form.get_by_label("The counter returns to 0").input_value() == reset
    finally:
        server.queue.configure(reset="idle", dispatch="fair", turns="time")


def test_who_paused_long_enough_reads_so_and_who_is_new_does_not(
    operator: BrowserPage, browser: Browser, server: Server, customer: str
) -> None:
    server.queue.submit_many(customer, [1] * 3, kind=KIND, now=time.time() - 3600)
    operator.open(f"customers/{quote(customer)}")
    expect(operator.page.locator(".head")).to_contain_text(f"The counter is at {MINUS}2; the next document gets priority")
    expect(operator.page.locator(".head")).to_contain_text("The pause was long enough")
    operator.open("customers")
    operator.page.get_by_label("Search by name").fill(customer)
    expect(operator.page.locator("tbody tr")).to_have_count(1)
    expect(operator.page.locator("tbody tr td").nth(2)).to_have_text("0 sec")
    for who, has_paused in ((customer, True), (f"{customer}, newcomer", False)):
        with open_page(browser, server, server.key(who)) as own:
            own.open("how")
            expect(own.page.locator(".you")).to_contain_text("Your next document gets priority")
            expect(own.page.locator(".you").filter(has_text="You have paused")).to_have_count(1 if has_paused else 0)
    drain(server)
