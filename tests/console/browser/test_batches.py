"""Batches, payloads and keys on the page: what support staff look at when somebody asks about a document or a whole import."""

from __future__ import annotations

import re
from urllib.parse import quote

from playwright.sync_api import Browser, expect

from fairlane.core.document import Failed
from tests.api.running import Server
from tests.console.routes.test_batches import submit_batch

from .browser_page import LANGUAGES, BrowserPage, open_page
from .test_readers import COLOUR_RULES, serious
from .test_stories import drain

MARKUP = "</pre><img src=x onerror='window.harmed = 1'>"


def test_a_batch_is_found_by_its_id_and_followed_to_its_documents(
    patient_operator: BrowserPage, server: Server, customer: str
) -> None:
    operator, batch = patient_operator, submit_batch(server, customer, 60, "November")
    page = operator.page
    operator.open("documents")
    page.get_by_label("Search by ID, name or key").fill(batch["id"])
    page.get_by_role("link", name="Batch of 60 documents").click()
    expect(page.locator("h1")).to_have_text("Batch November")
    expect(page).to_have_url(re.compile(f"#/batches/{batch['id']}$"))
    expect(page.locator("nav a[aria-current]")).to_have_text("Documents")
    expect(page.locator(".story")).to_contain_text("0 of 60 documents have ended.")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Show more").click()
    expect(rows).to_have_count(60)

    page.reload()
    expect(rows).to_have_count(50)
    server.queue.cancel(batch["ids"][4])
    (claim,) = server.claim(1)
    server.queue.engine.settle([(claim, Failed("corrupt: page 3"))])
    operator.refresh()
    expect(page.locator(".story")).to_contain_text("2 of 60 documents have ended.")
    expect(page.locator(".figure").filter(has_text="failed").locator("dd")).to_have_text("1")
    page.get_by_label("State").select_option("failed")
    expect(rows).to_have_count(1)
    page.reload()  # the address remembers
    expect(page.get_by_label("State")).to_have_value("failed")
    expect(rows).to_have_count(1)
    rows.locator("a").first.click()
    expect(page.locator(".facts")).to_contain_text("Document 1 of 60")
    page.get_by_role("link", name="Batch of 60 documents").click()
    expect(page.locator("h1")).to_have_text("Batch November")
    drain(server)
    operator.refresh()
    expect(page.locator(".story")).to_have_text("60 of 60 documents have ended.")


def test_somebody_finds_a_document_by_its_key_and_reads_its_payload(
    operator: BrowserPage, server: Server, customer: str
) -> None:
    page = operator.page
    payload = {"note": MARKUP, "lines": [f"line {number}" for number in range(1000)]}
    id = server.queue.submit(customer, payload, key="invoice 17").id
    operator.open(f"documents?customer={quote(customer)}&search=invoice%2017")
    row = page.locator("tbody tr")
    expect(row).to_have_count(1)
    row.locator("a").first.click()
    expect(page.locator(".facts")).to_contain_text("invoice 17")
    text = page.get_by_role("region", name="Payload")
    expect(text).to_contain_text(MARKUP)
    expect(text).not_to_contain_text("line 999")
    operator.wait_for_text("This is the beginning; the whole payload has 11 kB.")
    button = page.get_by_role("button", name="Show all of it")
    button.focus()
    page.keyboard.press("Enter")
    expect(text).to_contain_text("line 999")
    expect(text).to_be_focused()
    expect(button).to_have_count(0)
    assert page.evaluate("window.harmed") is None

    text.evaluate("element => { element.scrollTop = 500 }")
    server.queue.cancel(id)  # what is drawn again leaves the payload where it was
    expect(page.locator(".head .badge")).to_have_text("cancelled")
    assert text.evaluate("element => element.scrollTop") == 500


def test_a_customer_reads_its_own_batch_and_no_other(browser: Browser, server: Server, customer: str) -> None:
    own = submit_batch(server, customer, 3)
    other = submit_batch(server, f"{customer}, somebody else", 2)
    with open_page(browser, server, server.key(customer)) as console:
        page = console.page
        page.evaluate("hash => { location.hash = hash }", f"#/batches/{other['id']}")
        console.wait_for_text("Batch not found")
        assert "somebody else" not in page.content()
        console.open(f"mine/{own['ids'][2]}")
        expect(page.get_by_role("region", name="Payload")).to_have_text("2")
        page.get_by_role("link", name="Batch of 3 documents").click()
        expect(page.locator("tbody tr")).to_have_count(3)
        page.locator("tbody a").first.click()
        expect(page.locator("main.view-mine .facts")).to_contain_text("Document 1 of 3")
    drain(server)


def test_a_batch_can_be_read_in_every_language_light_and_dark(browser: Browser, server: Server, customer: str) -> None:
    batch = submit_batch(server, customer, 12, "a key that is rather long, as those of other systems are, with 17 parts")
    views = (f"batches/{batch['id']}", f"documents/{batch['ids'][0]}", f"documents?search={batch['id']}")
    for scheme, width in (("light", 1280), ("dark", 390)):
        window = {"width": width, "height": 844}
        with open_page(browser, server, server.operator, viewport=window, color_scheme=scheme) as console:
            for language in LANGUAGES:
                console.page.locator(".switches select").select_option(language)
                console.page.wait_for_function("language => document.documentElement.lang === language", arg=language)
                for view in views:
                    console.page.evaluate("hash => { location.hash = hash }", f"#/{view}")
                    console.page.locator("main .facts, main p.card").first.wait_for()
                    assert console.overflow() == 0, (language, view)
                    assert console.cut_texts() == [], (language, view)
            for view in views:
                console.page.evaluate("hash => { location.hash = hash }", f"#/{view}")
                console.page.locator("main .facts, main p.card").first.wait_for()
                assert serious(console.page, COLOUR_RULES if scheme == "dark" else ()) == [], view
    drain(server)
