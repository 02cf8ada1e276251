"""A stranger's first minutes on the page: what an empty service says, and the search by keyboard."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Browser, expect

from tests.api.running import Server

from .browser_page import KIND, BrowserPage, open_page
from .test_stories import drain


def test_an_empty_service_says_how_to_begin(browser: Browser, tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        with open_page(browser, server, server.admin) as console:
            page = console.page
            steps = page.locator("ol.first-steps")
            expect(steps).to_contain_text("fairlane keys create --customer acme")
            expect(steps).to_contain_text(f"{console.address.rstrip('/')}/v1/documents")
            console.open("documents")
            expect(page.locator(".empty-state")).to_contain_text("Documents appear here as soon as they are submitted.")
            assert "0" not in page.locator("main").inner_text()
            console.open("lanes")
            expect(steps).to_be_visible()
            server.queue.submit("acme", kind=KIND)
            expect(steps).to_be_hidden()
            console.open("customers")
            console.open("lanes")
            expect(page.locator(".legend li")).to_have_count(1)
            expect(steps).to_be_hidden()
            assert console.problems == []
    finally:
        server.close()


def test_documents_are_found_by_keyboard(operator: BrowserPage, server: Server, customer: str) -> None:
    page, keyboard = operator.page, operator.page.keyboard
    receipts = [server.queue.submit(customer, kind=KIND, key=f"{customer} key {n}") for n in range(3)]
    operator.open("lanes")
    keyboard.press("/")  # there is no search: it goes to the documents'
    search = page.get_by_label("Search by ID, name or key")
    expect(search).to_be_focused()
    expect(search).to_have_value("")
    keyboard.type(f"{customer} key 1")
    keyboard.press("Enter")  # sooner than the search is sent
    page.wait_for_url(f"**/#/documents/{receipts[1].id}")
    page.go_back()
    expect(page.locator("main.view-documents")).to_be_visible()
    operator.open(f"documents?customer={quote(customer)}")
    expect(page.locator("tbody tr")).to_have_count(3)
    keyboard.press("/")
    expect(search).to_be_focused()
    links = page.locator("a.document")
    for key, place in (("ArrowDown", 0), ("ArrowDown", 1), ("ArrowDown", 2), ("ArrowDown", 2), ("ArrowUp", 1)):
        keyboard.press(key)
        expect(links.nth(place)).to_be_focused()
    keyboard.press("Enter")
    page.wait_for_url(f"**/#/documents/{receipts[1].id}")
    drain(server)


def test_customers_are_found_by_keyboard_and_a_field_takes_the_slash(
    operator: BrowserPage, server: Server, customer: str
) -> None:
    page, keyboard = operator.page, operator.page.keyboard
    server.queue.submit(customer, kind=KIND)
    operator.open("customers")
    keyboard.press("/")
    keyboard.type(f"{customer}/")
    search = page.get_by_label("Search by name")
    expect(search).to_have_value(f"{customer}/")
    expect(page.locator(".empty-state")).to_be_visible()
    keyboard.press("Enter")  # nothing is found, and nothing is opened
    expect(page.locator("main.view-customers")).to_be_visible()
    keyboard.press("Backspace")
    keyboard.press("Enter")
    page.wait_for_url(f"**/#/customers/{quote(customer)}")
    drain(server)
