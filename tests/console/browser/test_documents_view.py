"""What users do with documents on the page: find them, download them, change one or all that match."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Browser, expect

from fairlane.core.document import Failed
from tests.api.running import Server

from .browser_page import KIND, MINUS, BrowserPage, open_page
from .test_stories import drain


def test_documents_are_found_by_kind_and_date_and_the_address_remembers(
    operator: BrowserPage, server: Server, customer: str
) -> None:
    page, kind = operator.page, f"{customer} scans"
    server.queue.submit_many(customer, [1] * 2, kind=KIND)
    (scan,) = server.queue.submit_many(customer, [1], kind=kind)
    operator.open(f"documents?customer={quote(customer)}")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    page.get_by_label("Kind (exact name)").fill(kind)
    expect(rows).to_have_count(1)
    expect(rows.locator("a").first).to_have_attribute("href", f"#/documents/{scan.id}")
    today = str(page.evaluate("new Date().toLocaleDateString('sv')"))
    yesterday = str(page.evaluate("new Date(Date.now() - 86400000).toLocaleDateString('sv')"))
    page.get_by_label("Submitted from").fill(today)
    page.get_by_label("to", exact=True).fill(today)
    expect(page).to_have_url(re.compile(f"since={today}&until={today}"))
    expect(rows).to_have_count(1)
    page.reload()
    expect(page.get_by_label("Kind (exact name)")).to_have_value(kind)
    expect(rows).to_have_count(1)
    page.get_by_label("Submitted from").fill(yesterday)
    page.get_by_label("to", exact=True).fill(yesterday)
    expect(page.locator(".empty-state")).to_contain_text("No documents match your search.")
    (claim,) = server.queue.engine.claim("tester", 1, 600_000, {kind: 1})
    server.queue.engine.settle([(claim, Failed("corrupt: page 3"))])
    operator.open(f"documents?kind={quote(kind)}")
    page.get_by_label("Part of the reason for failing").fill("page 3")
    expect(rows).to_have_count(1)
    page.get_by_label("Part of the reason for failing").fill("page 4")
    expect(page.locator(".empty-state")).to_contain_text("No documents match your search.")
    drain(server)


def test_a_question_is_closed_when_its_view_is_left(operator: BrowserPage, server: Server, customer: str) -> None:
    page = operator.page
    receipt = server.queue.submit(customer, kind=KIND)
    operator.open(f"documents/{receipt.id}")
    page.get_by_role("button", name="Cancel this document").click()
    expect(page.locator("dialog")).to_be_visible()
    page.go_back()
    expect(page.locator("dialog")).to_have_count(0)
    assert server.queue.document(receipt.id).state == "ready"
    drain(server)


def test_another_attempt_is_offered_only_where_it_may_help(operator: BrowserPage, server: Server, customer: str) -> None:
    page = operator.page
    for reason, is_offered in (("unsupported: a CAD drawing", False), ("timed_out: 60 s", True), ("ValueError: a bug", True)):
        id = server.queue.submit(customer, kind=customer).id
        (claim,) = server.queue.engine.claim("tester", 1, 600_000, {customer: 1})
        server.queue.engine.settle([(claim, Failed(reason))])
        operator.open(f"documents/{id}")
        expect(page.locator(".badge").first).to_have_text("failed")
        expect(page.locator(".answer code")).to_have_text(reason)
        expect(page.get_by_role("button", name="Try again")).to_have_count(1 if is_offered else 0)


def test_what_a_document_waits_for_comes_first_and_rules_that_are_gone_explain_nothing(
    operator: BrowserPage, server: Server, customer: str
) -> None:
    answer = operator.page.locator(".answer")
    delayed = server.queue.submit(customer, kind=KIND, delay=3600)
    *_, waiting = server.queue.submit_many(customer, [1] * 4, kind=KIND)
    operator.open(f"documents/{delayed.id}")
    expect(answer.locator(".story")).to_have_text(re.compile("^It is delayed until [^.]+[.] (No worker|There is no|It will)"))
    server.queue.tune(customer, weight=2)
    operator.open(f"documents/{waiting.id}")
    expect(answer).to_contain_text(f"because the counter of {customer} was at {MINUS}4 when it was submitted.")
    expect(answer).to_contain_text("The rules or this customer's settings have changed since.")
    expect(answer).not_to_contain_text("had sent little")
    server.queue.cancel(delayed.id)
    drain(server)


def test_on_a_phone_filters_are_folded_unless_the_address_uses_them(browser: Browser, server: Server) -> None:
    with open_page(browser, server, server.operator, viewport={"width": 390, "height": 844}) as console:
        page, kind = console.page, console.page.get_by_label("Kind (exact name)")
        page.get_by_role("link", name="Documents").click()
        expect(page.get_by_label("Customer (exact name)")).to_be_visible()
        expect(kind).to_be_hidden()
        page.get_by_text("More filters").click()
        expect(kind).to_be_visible()
        page.goto(f"{server.address}/#/documents?kind=scans")
        expect(kind).to_have_value("scans")
        expect(kind).to_be_visible()


def test_zero_has_no_sign(operator: BrowserPage, server: Server, customer: str) -> None:
    server.queue.submit_many(customer, [1] * 80, kind=KIND)  # far below the table, so that the axis has round numbers
    operator.open(f"customers/{quote(customer)}")
    levels = operator.page.locator(".chart text")
    expect(levels.first).to_have_text("0")
    assert f"{MINUS}0" not in levels.all_text_contents()
    drain(server)


def test_the_original_file_is_downloaded_and_never_shown(operator: BrowserPage, server: Server, customer: str) -> None:
    page = operator.page
    content = b"<script>document.title = 'taken over'</script>"
    receipt = server.queue.submit(customer, content=content, name="Brief an Łukasz.html", kind=KIND)
    operator.open(f"documents/{receipt.id}")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the original file").click()
    assert download.value.suggested_filename == "Brief an Łukasz.html"
    assert Path(download.value.path()).read_bytes() == content
    plain = server.queue.submit(customer, 1, kind=KIND)
    operator.open(f"documents/{plain.id}")
    expect(page.get_by_role("link", name="Download the original file")).to_have_count(0)
    drain(server)


def test_all_documents_that_match_are_cancelled_or_tried_again(operator: BrowserPage, server: Server, customer: str) -> None:
    page, kind = operator.page, f"{customer} scans"
    server.queue.submit_many(customer, [1] * 3, kind=kind)
    kept = server.queue.submit(customer, kind=KIND)
    claims = server.queue.engine.claim("tester", 1, 600_000, {kind: 1})
    server.queue.engine.settle([(claim, Failed("timed_out: 60 s")) for claim in claims])
    operator.open("documents")
    cancel_all = page.get_by_role("button", name="Cancel all that match")
    retry_all = page.get_by_role("button", name="Try all that failed again")
    expect(cancel_all).to_have_count(0)  # without a filter it would be everybody's
    page.get_by_label("Kind (exact name)").fill(kind)
    retry_all.click()
    expect(page.locator("dialog")).to_contain_text("1 failed document will be tried again. It keeps its priority.")
    page.locator("dialog button.main").click()
    expect(page.locator("#notifications")).to_contain_text("1 document will be tried again")
    expect(page.locator(".badge").filter(has_text="failed")).to_have_count(0)
    assert server.queue.look(customer).failed == 0

    cancel_all.click()
    expect(page.locator("dialog")).to_contain_text("3 documents will be cancelled.")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    assert server.queue.look(customer).waiting == 4
    cancel_all.click()
    page.locator("dialog button.main").click()
    expect(page.locator("#notifications")).to_contain_text("3 documents were cancelled")
    expect(page.locator(".badge").filter(has_text="cancelled")).to_have_count(3)
    assert (server.queue.look(customer).waiting, server.queue.document(kept.id).state) == (1, "ready")
    page.get_by_label("State").select_option("done")
    expect(cancel_all).to_have_count(0)
    expect(retry_all).to_have_count(0)
    drain(server)
