"""Steps and parts of a document, as people see them."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from fairlane.core.document import Continued, Done, Submission
from fairlane.queue import new_ids
from tests.api.running import Server

from .browser_page import KIND, BrowserPage, open_page


def test_a_document_with_steps_and_slices_is_one_life(
    operator: BrowserPage, browser: Browser, server: Server, customer: str
) -> None:
    kind, index = f"{KIND} sliced", f"{KIND} index"
    id = server.queue.submit(customer, kind=kind, steps=[kind, index]).id
    (claim,) = server.queue.engine.claim("tester", 1, 600_000, {kind: 3})
    parts = tuple(Submission(part, customer, kind, "1", 20_000, made_from=id) for part in new_ids(3))
    payload = f'{{"fairlane.pipeline":{{"steps":["{kind}","{index}"],"parts":3}},"payload":1}}'
    server.queue.engine.settle([(claim, Continued(kind, payload, parts))])
    first, _ = server.queue.engine.claim("tester", 2, 600_000, {kind: 3})
    server.queue.engine.settle([(first, Done("1"))])
    page = operator.page
    page.goto(f"{server.address}/#/documents/{id}")
    expect(page.locator(".answer")).to_contain_text("It waits for its parts, and goes on when all of them are done.")
    expect(page.locator(".answer")).not_to_contain_text("9999")
    expect(page.locator("ol.steps li")).to_have_count(2)
    expect(page.locator("ol.steps li").last).to_contain_text("to come")
    expect(page.get_by_text("1 of 3 parts done · 20 of 60 pages")).to_be_visible()
    expect(page.locator(".life .split")).to_contain_text("Split into parts")
    page.locator("ul.parts a").click()
    expect(page.locator("dl.facts")).to_contain_text(id)
    page.locator("dl.facts a", has_text=id).click()
    expect(page.locator("ol.steps li")).to_have_count(2)
    with open_page(browser, server, server.key(customer)) as own:
        own.page.goto(f"{server.address}/#/mine/{id}")
        expect(own.page.locator("ul.parts a")).to_have_attribute("href", f"#/mine/{parts[1].id}")
    server.queue.cancel(id)
    expect(page.locator(".answer")).not_to_contain_text("waits for its parts")
