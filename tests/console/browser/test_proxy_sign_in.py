"""People are signed in to the page by the word of a proxy: a real nginx that asks for passwords, and a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.api.running import Server
from tests.console.signing_in import PROXY_OPTIONS, authenticating_nginx

from .browser_page import KIND, LANGUAGES, BrowserPage, catalog, open_page
from .test_stories import drain


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(Path(tmp_path_factory.mktemp("page")), *PROXY_OPTIONS)
    yield running
    running.close()


@pytest.fixture(scope="module")
def proxied(server: Server) -> Iterator[str]:
    proxy = authenticating_nginx(server.port)
    yield f"http://127.0.0.1:{proxy.port}"
    proxy.close()


def open_as(console: BrowserPage, view: str = "") -> None:
    console.page.goto(f"{console.address}/{view}")


def credentials(user: str) -> dict[str, str]:
    return {"username": user, "password": f"{user}'s password"}


def test_whoever_the_proxy_knows_is_signed_in_and_out_and_in_again(browser: Browser, server: Server, proxied: str) -> None:
    receipt = server.queue.submit("acme", kind=KIND)
    with open_page(browser, server, None, proxied, http_credentials=credentials("ada")) as console:
        page = console.page
        open_as(console, f"#/documents/{receipt.id}")
        expect(page.locator(".whose")).to_have_text("ada · Operator")
        page.get_by_role("button", name="Cancel").click()
        page.locator("dialog button.main, dialog button.danger").first.click()
        expect(page.locator("main .badge.cancelled").first).to_be_visible()  # a change, with the CSRF token
        page.get_by_role("button", name="Sign out").click()
        again = page.get_by_role("button", name="Continue as ada")
        expect(again).to_be_visible()
        expect(page.locator(".wrong")).to_have_text("")
        again.click()
        expect(page.locator(".whose")).to_have_text("ada · Operator")
    drain(server)


def test_whoever_has_no_role_reads_so_and_can_use_a_key(browser: Browser, server: Server, proxied: str) -> None:
    with open_page(browser, server, None, proxied, http_credentials=credentials("eve")) as console:
        page = console.page
        open_as(console)
        expect(page.get_by_role("alert")).to_have_text(catalog("en")["sign_in.failed_no_role"])
        page.get_by_role("button", name="Continue as eve").click()
        expect(page.get_by_role("alert")).to_have_text(catalog("en")["sign_in.failed_no_role"])
        page.locator("input[name=key]").fill(server.viewer)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator(".whose")).to_have_text("Viewer")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_way_by_the_proxy_has_words_in_every_language(
    browser: Browser, server: Server, proxied: str, language: str
) -> None:
    words, size = catalog(language), {"width": 320, "height": 800}
    with open_page(
        browser, server, None, proxied, locale=language, viewport=size, http_credentials=credentials("eve")
    ) as console:
        open_as(console)
        expect(console.page.locator(".provider button")).to_have_text(words["sign_in.as"].format(name="eve"))
        expect(console.page.get_by_role("alert")).to_have_text(words["sign_in.failed_no_role"])
        assert console.overflow() == 0
        assert console.cut_texts() == []
