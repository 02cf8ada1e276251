"""Keys on the page: an admin makes, sees once, rotates and revokes them; nobody else finds them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Locator, expect

from fairlane.api import auth
from fairlane.api.permissions import Role, Scope
from tests.api.running import Server, until

from .browser_page import ADMIN_VIEWS, BrowserPage, open_page
from .test_access import HOSTILE

SECRET = re.compile(r"fl_[0-9a-f]{16}_[\w-]{43}")
DAY = 86400
CLIPBOARD = ["clipboard-read", "clipboard-write"]


def status_of(server: Server, key: str, path: str = "/v1/me") -> int:
    with server.client(key) as client:
        return client.get(path).status_code


def id_of(secret: str) -> str:
    return secret.split("_")[1]


def row_of(console: BrowserPage, text: str) -> Locator:
    return console.page.locator("main tbody tr").filter(has_text=text)


def shown_secret(console: BrowserPage) -> str:
    """The key that is shown, this once."""
    code = console.page.locator("code.secret")
    expect(code).to_have_text(SECRET)
    return code.inner_text()


def find(console: BrowserPage, text: str) -> None:
    """Search, and wait until the list shows what was found."""
    console.page.get_by_label("Customer or ID of a key").fill(text)
    expect(console.page.locator("main tbody tr").first).to_contain_text(text)


@contextmanager
def keys_of(server: Server, count: int, customer: str) -> Iterator[list[auth.Key]]:
    """Many keys, which are gone afterwards: other tests list all."""
    engine = server.queue.engine
    with ThreadPoolExecutor(8) as threads:  # whose commits share a write to the disk
        keys = [key for _, key in threads.map(lambda _: auth.create(engine, customer=customer), range(count))]
        try:
            yield keys
        finally:
            list(threads.map(lambda key: engine.put_record(auth.GROUP, key.id, None), keys))


# -- the life of a key -----------------------------------------------------------------------------------------------


def make_key(admin: BrowserPage, customer: str, name: str) -> None:
    """Fill in the form as it is offered, and send it."""
    form = admin.page.locator("main form")
    expect(form.get_by_label("Expires")).to_have_value("90")
    expect(form).to_contain_text("Usually after 90 days")
    form.get_by_label("Customer").fill(customer)
    form.get_by_label("What it is for").fill(name)
    form.get_by_role("button", name="Make the key").click()


def test_an_admin_makes_a_key_and_sees_it_once(browser: Browser, server: Server, customer: str) -> None:
    with open_page(browser, server, server.admin, permissions=CLIPBOARD) as admin:
        page = admin.page
        admin.open("keys")
        make_key(admin, customer, "upload server")
        secret = shown_secret(admin)
        box = page.locator(".warning").filter(has=page.locator("code.secret"))
        expect(box).to_contain_text(f"This is the new key for {customer}.")
        expect(box).to_contain_text("Copy it now: it is never shown again, to anybody.")
        expect(box).to_be_focused()
        box.get_by_role("button", name="Copy").click()
        admin.wait_for_text("Copied", "#notifications")
        assert page.evaluate("navigator.clipboard.readText()") == secret
        key = auth.find(server.queue.engine, id_of(secret))
        assert (key.customer, key.name, key.scopes) == (customer, "upload server", ("submit", "read"))
        assert key.expires_ms == key.made_ms + 90 * DAY * 1000
        assert status_of(server, secret) == 200
        admin.open("audit")  # leaving the view is enough
        admin.open("keys")
        find(admin, customer)
        row = row_of(admin, customer)
        for text in ("upload server", key.id, "submit, read", "valid"):
            expect(row).to_contain_text(text)
        assert page.locator("code.secret").count() == 0
        assert secret not in page.content()


def test_an_admin_rotates_a_key_with_an_overlap(admin: BrowserPage, server: Server, customer: str) -> None:
    page, dialog = admin.page, admin.page.locator("dialog")
    first = server.key(customer, name="upload server")
    admin.open("keys")
    find(admin, customer)
    row_of(admin, customer).get_by_role("button", name="Rotate").click()
    expect(dialog).to_contain_text(f"A new key replaces upload server ({customer}) and is shown once.")
    expect(dialog).to_contain_text("The new key is valid for 90 days, as long as the old one was.")
    overlap = dialog.get_by_label("The old key stays valid")
    expect(overlap).to_have_value(str(7 * DAY))
    overlap.select_option("for a day")
    dialog.get_by_role("button", name="Rotate").click()
    second = shown_secret(admin)
    admin.wait_for_text("The old one stays valid until")
    old, new = (auth.find(server.queue.engine, id_of(secret)) for secret in (first, second))
    assert old.replaced_by == new.id
    assert old.expires_ms is not None
    assert round((old.expires_ms - new.made_ms) / 1000) == DAY
    assert status_of(server, first) == status_of(server, second) == 200
    page.get_by_role("button", name="I have stored it").click()
    expect(page.locator("code.secret")).to_have_count(0)
    expect(row_of(admin, old.id)).to_contain_text("replaced")
    expect(row_of(admin, new.id)).to_contain_text("valid")
    expect(row_of(admin, old.id).get_by_role("button", name="Rotate")).to_have_count(0)
    expect(row_of(admin, new.id).get_by_role("button", name="Rotate")).to_have_count(1)


def test_an_admin_revokes_a_key_and_is_told_what_stops(admin: BrowserPage, server: Server, customer: str) -> None:
    page, dialog = admin.page, admin.page.locator("dialog")
    secret = server.key(customer, name="upload server")
    admin.open("keys")
    find(admin, customer)
    row = row_of(admin, id_of(secret))
    row.get_by_role("button", name="Revoke").click()
    expect(dialog).to_contain_text(f"Key upload server ({customer}) ends within a second, for good.")
    assert dialog.locator("li").all_inner_texts() == [
        "submitting documents", "reading documents and results", "this page, wherever somebody is signed in with it",
    ]  # fmt: skip
    expect(dialog).to_contain_text("It has never been used.")
    dialog.get_by_role("button", name="Back").click()
    assert status_of(server, secret) == 200
    row.get_by_role("button", name="Revoke").click()
    dialog.get_by_role("button", name="Revoke").click()
    expect(row).to_have_count(0)  # only valid ones are listed
    until(lambda: status_of(server, secret) == 401, "the end of the key")
    page.get_by_label("State", exact=True).select_option("Revoked")
    expect(row).to_contain_text("revoked")
    expect(row.get_by_role("button")).to_have_count(0)


def test_keys_of_staff_have_their_scopes_and_may_last_for_ever(admin: BrowserPage, server: Server, customer: str) -> None:
    page, form = admin.page, admin.page.locator("main form")
    admin.open("keys")
    may = form.get_by_label("May", exact=True)
    expected = {
        "Viewer": ["all that a viewer may", "metrics"],
        "Operator": ["all that an operator may", "submit, read", "submit", "read", "metrics"],
        "Admin": ["all that an admin may", "submit, read", "submit", "read", "metrics"],
        "Customer": ["submit, read", "submit", "read"],
    }
    for role, scopes in expected.items():
        form.get_by_label("For", exact=True).select_option(role)
        expect(form.get_by_label("Customer")).to_be_visible(visible=role == "Customer")
        assert may.locator("option").all_inner_texts() == scopes
    form.get_by_label("For", exact=True).select_option("Viewer")
    may.select_option("metrics")
    form.get_by_label("What it is for").fill(f"prometheus of {customer}")
    form.get_by_label("Expires").select_option("never")
    form.get_by_role("button", name="Make the key").click()
    secret = shown_secret(admin)
    key = auth.find(server.queue.engine, id_of(secret))
    assert (key.role, key.scopes, key.expires_ms) == ("viewer", ("metrics",), None)
    assert (status_of(server, secret, "/metrics"), status_of(server, secret, "/v1/customers")) == (200, 403)
    row = row_of(admin, key.id)
    expect(row).to_contain_text("never")
    row.get_by_role("button", name="Rotate").click()
    expect(page.locator("dialog")).to_contain_text("Like the old one, the new key never expires.")
    page.locator("dialog").get_by_label("The old key stays valid").select_option("not at all")
    page.locator("dialog").get_by_role("button", name="Rotate").click()
    admin.wait_for_text("The old one is no longer valid.")
    until(lambda: status_of(server, secret, "/metrics") == 401, "the end of the key")


def test_whoever_rotates_or_revokes_their_own_key_is_warned(browser: Browser, server: Server) -> None:
    own = server.key(None, role="admin", name="mine alone")
    with open_page(browser, server, own) as console:
        page, dialog = console.page, console.page.locator("dialog")
        console.open("keys")
        find(console, id_of(own))
        row = row_of(console, id_of(own))
        expect(row.locator(".badge.here")).to_have_text("yours")
        row.get_by_role("button", name="Rotate").click()
        expect(dialog).to_contain_text("You are signed in with this key.")
        assert "not at all" not in dialog.locator("option").all_inner_texts()  # or the new one would vanish with the session
        dialog.get_by_role("button", name="Back").click()
        row.get_by_role("button", name="Revoke").click()
        expect(dialog).to_contain_text("You are signed in with this key: you will be signed out at once.")
        expect(dialog.locator("li").first).to_have_text("everything that an admin may see and change, keys included")
        dialog.get_by_role("button", name="Revoke").click()
        console.page.get_by_label("Your key").wait_for()
        expect(page.locator("main")).to_contain_text("Your session has ended.")


# -- finding ---------------------------------------------------------------------------------------------------------


def test_a_key_that_is_entered_to_find_it_stays_in_the_browser(browser: Browser, server: Server, customer: str) -> None:
    """Copied and pasted where the browser keeps the clipboard to itself, as on plain HTTP."""
    found, secret = server.key(customer), server.key(f"{customer}, somebody else")
    auth.revoke(server.queue.engine, id_of(secret))
    with open_page(browser, server, server.admin) as console:
        page, sent = console.page, list[str]()
        console.open("keys")
        page.on("request", lambda request: sent.append(request.url + (request.post_data or "")))
        search = page.get_by_label("Customer or ID of a key")
        for whole, part in ((secret, id_of(secret)), (found.replace("_", "_x", 1), f"x{id_of(found)}"), (found, id_of(found))):
            search.fill(whole)
            expect(search).to_have_value(part)
            expect(page.locator("main tbody tr")).to_have_count(0 if part[0] == "x" else 1)
            assert page.evaluate("location.hash") == f"#/keys?search={part}&state=active"
        expect(row_of(console, id_of(found))).to_contain_text(customer)
        assert any(id_of(secret) in address for address in sent)
        assert not any(key.split("_", 2)[2] in address for address in sent for key in (secret, found))


def test_without_a_clipboard_the_selection_is_copied(browser: Browser, server: Server, customer: str) -> None:
    with open_page(browser, server, server.admin) as console:
        page = console.page
        page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        console.open("keys")
        page.locator("main form").get_by_label("Customer").fill(customer)
        page.get_by_role("button", name="Make the key").click()
        secret = shown_secret(console)
        page.get_by_role("button", name="Copy").click()
        console.wait_for_text("Copied", "#notifications")
        page.locator("main form").get_by_label("What it is for").focus()
        page.keyboard.press("Control+v")
        expect(page.locator("main form").get_by_label("What it is for")).to_have_value(secret)
        page.evaluate("document.execCommand = () => false")
        page.get_by_role("button", name="Copy").click()
        console.wait_for_text("Please select the text and copy it yourself.", "#notifications")


def test_keys_that_expire_soon_come_first_and_are_counted(admin: BrowserPage, server: Server, customer: str) -> None:
    engine = server.queue.engine
    ending = [auth.create(engine, customer=customer, expires_seconds=days * DAY)[1].id for days in (9, 5)]
    others = [auth.create(engine, customer=customer)[1].id for _ in range(3)]
    admin.open("keys")
    find(admin, customer)
    expect(admin.page.locator("main [role=status]").last).to_have_text("5 keys")
    admin.wait_for_text("2 keys expire within two weeks, the first on")
    shown = admin.page.locator("main tbody th code").all_inner_texts()
    assert shown[:2] == ending[::-1]
    assert set(shown[2:]) == set(others)
    expect(row_of(admin, ending[0]).locator(".badge")).to_have_text("expires soon")
    expect(row_of(admin, others[0]).locator(".badge")).to_have_text("valid")
    find(admin, others[0])
    expect(admin.page.locator(".warning")).to_have_count(0)


def test_a_thousand_keys_are_read_and_then_more_if_asked_for(admin: BrowserPage, server: Server, customer: str) -> None:
    with keys_of(server, 1030, customer) as keys:
        admin.open("keys")
        rows, status = admin.page.locator("main tbody tr"), admin.page.locator("main [role=status]").last
        find(admin, customer)
        expect(status).to_have_text("The first 1,000 keys; there are more")
        more = admin.page.get_by_role("button", name="Show more")
        for count in range(200, 1001, 200):
            expect(rows).to_have_count(count)
            more.click()
        expect(status).to_have_text("1,030 keys")
        expect(rows).to_have_count(1030)
        expect(more).to_be_hidden()
        shown = admin.page.locator("main tbody th code").all_inner_texts()
        assert sorted(shown) == sorted(key.id for key in keys)


# -- errors ----------------------------------------------------------------------------------------------------------


def test_what_the_server_refuses_is_said_in_plain_words(admin: BrowserPage, server: Server, customer: str) -> None:
    page, form = admin.page, admin.page.locator("main form")
    admin.open("keys")
    form.get_by_label("Customer").fill(f"{customer}\x07")
    form.get_by_role("button", name="Make the key").click()
    expect(form.get_by_role("alert")).to_have_text(
        "The name of the customer or of the key is not accepted: 1 to 200 characters, none of them invisible."
    )
    id = id_of(server.key(customer))
    find(admin, id)
    row_of(admin, id).get_by_role("button", name="Rotate").click()
    auth.revoke(server.queue.engine, id)  # somebody else was quicker
    page.locator("dialog").get_by_role("button", name="Rotate").click()
    admin.wait_for_text("This key has ended or was replaced already. Make a new one instead.", "#notifications")
    expect(row_of(admin, id)).to_contain_text("revoked")
    gone = id_of(server.key(customer))
    find(admin, gone)
    row_of(admin, gone).get_by_role("button", name="Revoke").click()
    server.queue.engine.put_record(auth.GROUP, gone, None)
    page.locator("dialog").get_by_role("button", name="Revoke").click()
    admin.wait_for_text("There is no such key any more.", "#notifications")


# -- everybody else --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "scopes", "home", "status"),
    [
        ("operator", (), "lanes", 403),
        ("viewer", (), "lanes", 403),
        ("admin", ("read",), "lanes", 403),
        ("customer", (), "mine", 404),
    ],
)
def test_nobody_but_admins_finds_keys_and_the_audit_log(
    browser: Browser, server: Server, customer: str, role: Role, scopes: tuple[Scope, ...], home: str, status: int
) -> None:
    key = server.key(customer if role == "customer" else None, role=role, scopes=scopes)
    with open_page(browser, server, key) as console:
        page = console.page
        assert page.locator("nav a[data-view=keys], nav a[data-view=audit]").count() == 0
        for view in ADMIN_VIEWS:
            page.evaluate("hash => { location.hash = hash }", "#/how")
            page.locator("main.view-how").wait_for()
            page.evaluate("hash => { location.hash = hash }", f"#/{view}")
            page.locator(f"main.view-{home}").wait_for()
        loaded = page.evaluate("performance.getEntriesByType('resource').map((resource) => resource.name)")
        assert any("/main.js" in name for name in loaded)
        assert not any(f"/{view}.js" in name for name in loaded for view in ADMIN_VIEWS)
        read = "address => fetch(address).then((response) => response.status)"
        for address in ("/v1/keys", f"/v1/keys/{id_of(key)}", "/v1/audit", "/page/audit/export"):
            assert page.evaluate(read, address) == status, address
        csrf = page.evaluate("fetch('/page/session').then((response) => response.json())")["csrf"]
        changed = """([method, address, csrf, body]) => fetch(address, { method, body,
          headers: { "X-Fairlane-CSRF": csrf, "Content-Type": "application/json" } }).then((response) => response.status)"""
        for method, address, body in (
            ("POST", "/v1/keys", '{"keys": [{"role": "admin"}]}'),
            ("POST", f"/v1/keys/{id_of(server.admin)}/rotate", "{}"),
            ("DELETE", f"/v1/keys/{id_of(server.admin)}", None),
        ):
            assert page.evaluate(changed, [method, address, csrf, body]) == status, address
    assert status_of(server, server.admin) == 200


def test_hostile_names_of_keys_do_no_harm(browser: Browser, server: Server) -> None:
    keys = [auth.create(server.queue.engine, customer=name, name=name[:190])[1] for name in HOSTILE]
    with open_page(browser, server, server.admin) as console:
        page, dialog = console.page, console.page.locator("dialog")
        console.open("keys")
        for name, key in zip(HOSTILE, keys, strict=True):
            find(console, key.id)
            expect(page.locator("main tbody th a bdi")).to_have_text(name)
            expect(page.locator("main tbody th small bdi")).to_have_attribute("title", name[:190])
            for action in ("Revoke", "Rotate"):
                page.locator("main tbody").get_by_role("button", name=action).click()
                expect(dialog.locator("bdi").nth(0)).to_have_text(name[:190])
                expect(dialog.locator("bdi").nth(1)).to_have_text(name)
                assert console.overflows() == [], name
                if action == "Revoke":
                    page.keyboard.press("Escape")
            dialog.get_by_role("button", name="Rotate").click()
            shown_secret(console)
            expect(page.locator(".message bdi")).to_have_text(name)
            assert console.overflows() == [], name
            page.get_by_role("button", name="I have stored it").click()
        assert page.evaluate("window.harmed") is None
        assert page.locator("script:not([src])").count() == page.locator("img[onerror]").count() == 0
