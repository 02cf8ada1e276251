"""Steering on the page: an operator sets priorities and limits, and everybody reads why a document waits."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.api.running import Server

from .browser_page import KIND, BrowserPage, open_page
from .test_stories import drain


def choose_priority(page: Page, priority: str) -> None:
    page.get_by_label("New priority").select_option(priority)
    page.locator("dialog button.main").click()


def test_an_operator_lets_a_document_go_first(operator: BrowserPage, browser: Browser, server: Server, customer: str) -> None:
    page = operator.page
    ids = [receipt.id for receipt in server.queue.submit_many(customer, range(30), kind=KIND)]
    operator.open(f"documents/{ids[-1]}")
    expect(page.locator(".marks .priority")).to_contain_text("9")
    page.get_by_role("button", name="Set its priority").click()
    expect(page.locator("dialog")).to_contain_text(
        "keeps it until somebody sets another. The customer's counter does not move."
    )
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    assert server.queue.document(ids[-1]).priority == 9
    page.get_by_role("button", name="Set its priority").click()
    choose_priority(page, "1")
    expect(page.locator("#notifications")).to_contain_text("It has another priority now")
    expect(page.locator(".marks .priority")).to_contain_text("1")
    expect(page.locator(".life li").filter(has_text="Priority changed")).to_have_count(1)
    operator.wait_for_text("Then an operator set its priority to")
    assert (server.queue.document(ids[-1]).priority, server.queue.document(ids[-1]).set_by_hand) == (1, True)
    (who,) = [entry.by for entry in server.queue.history(ids[-1]) if entry.event == "prioritized"]
    assert who
    with open_page(browser, server, server.key(customer)) as own:
        own.open(f"mine/{ids[-1]}")
        own.wait_for_text("Then an operator set its priority to")
        expect(own.page.get_by_role("button", name="Set its priority")).to_have_count(0)
        assert who not in own.page.content()
    server.queue.engine.cancel(ids)
    expect(page.get_by_role("button", name="Set its priority")).to_have_count(0)
    drain(server)


def test_an_operator_sets_the_priority_of_all_that_match(operator: BrowserPage, server: Server, customer: str) -> None:
    page, kind = operator.page, f"{customer} steered"
    server.queue.submit_many(customer, range(12), kind=kind)
    operator.open("documents")
    button = page.get_by_role("button", name="Set the priority of all that match")
    expect(button).to_have_count(0)  # without a filter it would be everybody's
    page.get_by_label("Kind (exact name)").fill(kind)
    button.click()
    choose_priority(page, "2")
    expect(page.locator("dialog")).to_contain_text("12 waiting documents get priority 2.")
    page.locator("dialog button.main").click()
    expect(page.locator("#notifications")).to_contain_text("12 documents have another priority")
    assert {document.priority for document in server.queue.documents(customer)} == {2}
    page.get_by_label("State").select_option("done")
    expect(button).to_have_count(0)
    drain(server)


def test_a_kind_is_limited_and_a_document_says_so(operator: BrowserPage, server: Server, customer: str) -> None:
    page, kind = operator.page, f"{customer} limited"
    operator.open("kinds")
    page.get_by_placeholder("Kind").fill(kind)
    page.get_by_role("button", name="Limit another kind").click()
    dialog = page.locator("dialog")
    expect(dialog).to_contain_text(f"Limit of {kind}")
    dialog.get_by_label("At most at once").fill("1")
    dialog.get_by_label("Starts per second").fill("0.5")
    dialog.get_by_role("button", name="Save").click()
    row = page.locator("tbody tr").filter(has_text=kind)
    expect(row).to_contain_text("0.5")
    limited = server.queue.kind(kind)
    assert (limited.running_max, limited.rate, limited.burst, limited.version) == (1, 0.5, 1, 1)
    server.queue.submit_many(customer, range(2), kind=kind)
    server.queue.limit_kind(kind, rate=None)
    (claim,) = server.queue.engine.claim("tester", 5, 600_000, {kind: 1})
    expect(row.locator(".badge")).to_have_text("as many as allowed")
    (waiting,) = [document.id for document in server.queue.documents(customer) if document.id != claim.id]
    operator.open(f"documents/{waiting}")
    operator.wait_for_text("It is waiting because as many documents of its kind are in progress as may be at once.")
    operator.open("kinds")
    row.get_by_role("button", name=f"Change the limit {kind}").click()
    dialog.get_by_label("At most at once").fill("")
    dialog.get_by_role("button", name="Save").click()
    expect(row.locator(".badge")).to_have_count(0)
    assert server.queue.kind(kind).running_max is None
    server.queue.engine.cancel([claim.id, waiting])


def test_two_operators_do_not_overwrite_each_other(operator: BrowserPage, server: Server, customer: str) -> None:
    page, kind = operator.page, f"{customer} twice"
    server.queue.limit_kind(kind, running_max=2)
    operator.open("kinds")
    page.get_by_role("button", name=f"Change the limit {kind}").click()
    server.queue.limit_kind(kind, running_max=5)
    page.locator("dialog").get_by_label("At most at once").fill("3")
    page.locator("dialog").get_by_role("button", name="Save").click()
    expect(page.locator("#notifications")).to_contain_text("Someone else has changed it in the meantime")
    assert server.queue.kind(kind).running_max == 5
    server.queue.limit_kind(kind, running_max=None)


def test_a_reset_takes_the_backlog_along(operator: BrowserPage, server: Server, customer: str) -> None:
    page = operator.page
    ids = [receipt.id for receipt in server.queue.submit_many(customer, range(10), kind=KIND)]
    server.queue.engine.cancel(ids[:5])
    operator.open(f"customers/{quote(customer)}")
    page.get_by_role("button", name="Reset the counter to 0").click()
    page.get_by_label("Also check its waiting documents again, as if they came now").check()
    page.locator("dialog button.main").click()
    expect(page.locator("#notifications")).to_contain_text(
        "The counter was reset, and 5 waiting documents have another priority"
    )
    assert [server.queue.document(id).priority for id in ids[5:]] == [1, 1, 1, 2, 2]
    drain(server)


@pytest.mark.parametrize(
    ("hold", "sentence"),
    [
        ("paused", "Es wartet, weil dieser Kunde angehalten ist."),
        ("cap", "Es wartet, weil von diesem Kunden schon so viele Dokumente in Arbeit sind wie erlaubt."),
        ("kind running", "Es wartet, weil schon so viele Dokumente dieser Art in Arbeit sind wie erlaubt."),
        ("kind rate", "Es wartet, weil Dokumente dieser Art schon so oft beginnen wie erlaubt."),
        ("no_better_than", "weil beim Senden keine bessere gewünscht war"),
    ],
)
def test_a_customer_reads_why_its_document_waits(
    browser: Browser, server: Server, customer: str, hold: str, sentence: str
) -> None:
    kind, queue = f"{customer} {hold}", server.queue
    running, waiting = [receipt.id for receipt in queue.submit_many(customer, range(2), kind=kind, no_better_than=8)]
    options = {"kind running": {"running_max": 1}, "kind rate": {"rate": 0.001}}.get(hold, {})
    queue.limit_kind(kind, **options)  # type: ignore[arg-type]
    queue.tune(customer, cap=1 if hold == "cap" else None)
    queue.engine.claim("tester", 1, 600_000, {kind: 1})
    queue.tune(customer, paused=hold == "paused")
    with open_page(browser, server, server.key(customer)) as own:
        own.page.get_by_label("Language").select_option("de")
        own.open(f"mine/{waiting}")
        own.wait_for_text(sentence)
    queue.limit_kind(kind, running_max=None, rate=None)
    queue.engine.cancel([running, waiting])
