"""The page offers what a key may do: a viewer, and a key that only reads, find no button that changes anything."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from fairlane.api.webhooks import put_webhook
from tests.api.running import Server

from .browser_page import KIND, BrowserPage, open_page
from .test_stories import drain

# What remains is navigation: sign out, language and theme, the rest of a list, the order of a table, what-if, a whole payload.
HARMLESS = ("Sign out", "Show more", "Theme: Same as the system", "Calculate", "Show all")
BUTTONS = """() => [...document.querySelectorAll("main button:not(.sort), main form, main input[type=file]")]
  .filter((element) => element.checkVisibility()).map((element) => element.ariaLabel || element.innerText)"""


def changing_buttons(console: BrowserPage) -> list[str]:
    return [name for name in console.page.evaluate(BUTTONS) if name not in HARMLESS]


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_a_viewer_sees_everything_and_no_button_that_changes_it(
    browser: Browser, server: Server, customer: str, role: str
) -> None:
    receipt = server.queue.submit(customer, 1, kind=KIND)
    put_webhook(server.queue.engine, customer, "https://customer.example/x", None, is_by_operator=True)
    with open_page(browser, server, server.viewer if role == "viewer" else server.operator) as console:
        page = console.page
        expect(page.locator(".whose")).to_have_text(role.capitalize())
        expect(page.locator("nav a")).to_have_count(8)
        expect(page.locator(".story")).to_contain_text("waiting")
        found: dict[str, list[str]] = {}
        for view in (f"customers/{quote(customer)}", f"documents?customer={quote(customer)}", f"documents/{receipt.id}"):
            console.open(view)
            console.wait_for_text({"d": receipt.id[-12:], "c": customer}[view[0]])
            if view.startswith("customers"):
                console.wait_for_text("https://customer.example/x") if role == "viewer" else page.get_by_label(
                    "Address"
                ).wait_for()
                expect(page.locator("main")).to_contain_text("Weight")
            found[view.partition("/")[0].partition("?")[0]] = changing_buttons(console)
        console.open("workers")
        page.locator("main tbody tr").first.wait_for()
        found["workers"] = changing_buttons(console)
        console.open("kinds")
        page.locator("main tbody tr").filter(has_text=KIND).first.wait_for()
        found["kinds"] = changing_buttons(console)
        assert all(bool(names) == (role == "operator") for names in found.values()), found
    drain(server)


def test_a_key_that_only_reads_finds_nothing_to_send_or_cancel(browser: Browser, server: Server, customer: str) -> None:
    receipt = server.queue.submit(customer, 1, kind=KIND)
    for scopes in (("read",), ("submit", "read")):
        with open_page(browser, server, server.key(customer, scopes=scopes)) as console:
            console.wait_for_text(receipt.id[-12:])
            buttons = [changing_buttons(console)]
            console.open(f"mine/{receipt.id}")
            console.wait_for_text(receipt.id)
            buttons.append(changing_buttons(console))
            assert all(bool(names) == (len(scopes) == 2) for names in buttons), buttons
    drain(server)
