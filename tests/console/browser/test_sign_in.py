"""People sign in to the page at a real provider, in a real browser: the whole way there and back, and out again.

The provider is on `localhost` and the page on 127.0.0.1: another site, as it would be.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from fairlane.console.sign_in_attempt import FailureCode
from tests.api.running import Server
from tests.console.signing_in import SECRET, oidc_options
from tests.servers.oidc import MockProvider

from .browser_page import KIND, LANGUAGES, BrowserPage, catalog, open_page
from .conftest import free_port
from .test_stories import drain

USERS = (
    {"sub": "ada", "name": "Ada Lovelace", "groups": ["staff", "operators"]},
    {"sub": "vic", "name": "<b>Vic</b>", "groups": ["staff"]},
    {"sub": "cleo", "name": "Cleo", "groups": ["acme people"]},
    {"sub": "eve", "name": "Eve", "groups": ["strangers"]},
)


@pytest.fixture(scope="module")
def provider() -> Iterator[MockProvider]:
    made = MockProvider(*USERS)
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(provider: MockProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    port = free_port()
    options = oidc_options(provider.issuer, public_url=f"http://127.0.0.1:{port}")
    folder = Path(tmp_path_factory.mktemp("page"))
    running = Server(folder, "--port", str(port), "--oidc-name", "Example Login", *options, variables=SECRET)
    yield running
    running.close()


def sign_in(console: BrowserPage, user: str, view: str = "") -> None:
    page = console.page
    page.goto(f"{console.address}/{view}")
    page.get_by_role("link", name="Sign in with Example Login").click()
    page.get_by_role("button", name=user, exact=True).click()


def test_somebody_signs_in_works_and_signs_out_everywhere(browser: Browser, server: Server, provider: MockProvider) -> None:
    with open_page(browser, server, None) as console:
        page = console.page
        sign_in(console, "ada", "#/customers")
        expect(page.locator(".whose")).to_have_text("Ada Lovelace · Operator")
        expect(page.locator("main.view-customers")).to_be_visible()  # where it was before
        assert page.url == f"{console.address}/#/customers"
        cookies = {cookie["name"]: cookie for cookie in page.context.cookies(console.address)}
        assert set(cookies) == {"fairlane"}
        assert (cookies["fairlane"]["httpOnly"], cookies["fairlane"]["sameSite"]) == (True, "Strict")
        page.reload()
        expect(page.locator(".whose")).to_have_text("Ada Lovelace · Operator")
        receipt = server.queue.submit("acme", kind=KIND)
        console.open(f"documents/{receipt.id}")
        page.get_by_role("button", name="Cancel").click()
        page.locator("dialog button.main, dialog button.danger").first.click()
        expect(page.locator("main .badge.cancelled").first).to_be_visible()  # the CSRF token is right
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url(f"{provider.issuer}/oauth2/end_session*")
        page.locator("form button").first.click()
        page.wait_for_url(f"{console.address}/")  # without what the provider added
        expect(page.get_by_role("link", name="Sign in with Example Login")).to_be_visible()
        assert page.evaluate("fetch('/page/session').then(response => response.status)") == 401
    drain(server)


def test_a_viewer_and_a_customer_see_what_their_groups_grant(browser: Browser, server: Server) -> None:
    mine, other = (server.queue.submit(name, content=b"x", name=f"{name}.txt", kind=KIND) for name in ("acme", "beta"))
    with open_page(browser, server, None) as console:
        sign_in(console, "vic")
        expect(console.page.locator(".whose")).to_have_text("<b>Vic</b> · Viewer")
        expect(console.page.locator("nav a")).to_have_count(8)
    with open_page(browser, server, None) as console:
        sign_in(console, "cleo")
        expect(console.page.locator(".whose")).to_have_text("Cleo · acme")
        console.wait_for_text("acme.txt")
        assert "beta.txt" not in console.page.content()
        statuses = [
            console.page.evaluate("id => fetch(`/v1/documents/${id}`).then(response => response.status)", receipt.id)
            for receipt in (mine, other)
        ]
        assert statuses == [200, 404]
    drain(server)


def test_somebody_without_a_grant_reads_so(browser: Browser, server: Server) -> None:
    with open_page(browser, server, None) as console:
        sign_in(console, "eve")
        expect(console.page.get_by_role("alert")).to_have_text(catalog("en")["sign_in.failed_no_role"])
        assert urlsplit(console.page.url).query == ""  # a reload does not repeat it
        console.page.reload()
        console.page.locator(".provider a").wait_for()
        expect(console.page.locator(".wrong")).to_have_text("")


def test_somebody_who_changes_their_mind_reads_so(browser: Browser, server: Server) -> None:
    with open_page(browser, server, None) as console:
        page = console.page
        page.goto(console.address)
        page.get_by_role("link", name="Sign in with Example Login").click()
        page.get_by_role("button", name="Deny").wait_for()
        state = parse_qs(urlsplit(page.url).query)["state"][0]  # oidc-provider-mock forgets it when it says no
        page.goto(f"{console.address}/page/oidc/callback?error=access_denied&state={state}")
        expect(page.get_by_role("alert")).to_have_text(catalog("en")["sign_in.failed_denied"])


def alert_of(page: Page) -> str:
    page.locator(".provider a").wait_for()
    return page.get_by_role("alert").inner_text()


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_failure_has_words_in_every_language_and_room(browser: Browser, server: Server, language: str) -> None:
    words = catalog(language)
    with open_page(browser, server, None, locale=language) as console:
        page = console.page
        for code in get_args(FailureCode):
            page.goto(f"{console.address}/?sign_in={code}")
            assert alert_of(page) == words[f"sign_in.failed_{code}"]
            assert page.locator(".provider a").inner_text() == words["sign_in.with"].format(name="Example Login")
            assert page.locator(".provider p").inner_text() == words["sign_in.or_key"]
            for width in (320, 1280):
                console.resize(width)
                assert console.overflow() == 0, width
                assert console.cut_texts() == [], width
        page.goto(f"{console.address}/?sign_in=<script>")
        assert alert_of(page) == words["problem.other"]


def test_another_language_keeps_the_message(browser: Browser, server: Server) -> None:
    with open_page(browser, server, None) as console:
        console.page.goto(f"{console.address}/?sign_in=away")
        console.page.locator(".switches select").select_option("de")
        expect(console.page.get_by_role("alert")).to_have_text(catalog("de")["sign_in.failed_away"])


def test_a_key_can_be_used_beside_the_provider(browser: Browser, server: Server) -> None:
    with open_page(browser, server, server.viewer) as console:
        expect(console.page.locator(".whose")).to_have_text("Viewer")
        console.page.get_by_role("button", name="Sign out").click()
        expect(console.page.get_by_role("link", name="Sign in with Example Login")).to_be_visible()
