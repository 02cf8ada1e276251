"""What operators read about a document that failed, and customers do not."""

from __future__ import annotations

import json

from playwright.sync_api import Browser, expect

from fairlane.core.document import Retried
from tests.api.running import Server

from .browser_page import KIND, BrowserPage, open_page


def test_an_operator_reads_why_a_document_failed(
    operator: BrowserPage, browser: Browser, server: Server, customer: str
) -> None:
    id = server.queue.submit(customer, kind=f"{KIND} that fails").id
    for token in (1, 2):
        (claim,) = server.queue.engine.claim("tester", 1, 60_000, {f"{KIND} that fails": 3})
        details = {
            "attempt": token, "token": token, "at": 1_700_000_000_000, "worker": "tester", "seconds": 1.5,
            "reason": "ValueError: bad", "traceback": f"Traceback\n  page <b>{token}</b>\nValueError: bad",
            "output": "reading page 7",
        }  # fmt: skip
        failed = Retried(1, "ValueError: bad", None, token == 2, json.dumps(details))
        server.queue.engine.settle([(claim, failed)], now_ms=claim.lease_ms - 60_000)
    operator.page.goto(f"{server.address}/#/documents/{id}")
    newest, oldest = (operator.page.locator("details.attempt").nth(index) for index in (0, 1))
    expect(newest.locator("summary")).to_contain_text("attempt 2")
    expect(newest.locator("pre").first).to_have_text("Traceback\n  page <b>2</b>\nValueError: bad")
    expect(newest.locator("pre").last).to_have_text("reading page 7")
    expect(oldest.locator("pre").first).to_be_hidden()
    oldest.locator("summary").click()
    expect(oldest.locator("pre").first).to_contain_text("page <b>1</b>")
    expect(operator.page.locator(".life .postponed")).to_contain_text("Postponed; the attempt does not count")
    with open_page(browser, server, server.key(customer)) as own:
        own.page.goto(f"{server.address}/#/mine/{id}")
        expect(own.page.locator(".life .postponed")).to_be_visible()
        expect(own.page.locator("details.attempt")).to_have_count(0)
