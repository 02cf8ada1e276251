"""The audit log on the page: who did what, from where, before and after, in words; found, paged and downloaded."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Browser, Locator, expect

from fairlane.api import auth
from fairlane.queue.audit import SCAN_MAX, Actor, AuditFilter, audit_json, begin, note, walk_audit
from tests.api.running import Server

from .browser_page import AUDIT_ACTIONS, BrowserPage, open_page
from .test_access import HOSTILE

NOTHING = "\N{EN DASH}"
ADA = Actor("person", "ada@example.com", "Ada Lovelace", "operator", "192.0.2.7")


def rows(console: BrowserPage) -> Locator:
    return console.page.locator("main tbody tr")


def open_audit(console: BrowserPage, **filters: str) -> None:
    console.open("how")  # another view first: the same address again would not be opened
    console.open("audit?" + "&".join(f"{name}={quote(value)}" for name, value in filters.items()))


def test_what_staff_changed_can_be_read_by_people(admin: BrowserPage, server: Server, customer: str) -> None:
    secret, key = auth.create(server.queue.engine, role="operator", name="night shift")
    with server.client(secret) as operator:
        operator.patch(
            f"/v1/customers/{customer}", json={"weight": 2.5, "cap": 10, "reset_interval": 600, "bytes_max": 5_000_000}
        )
        operator.patch(f"/v1/customers/{customer}", json={"paused": True})
        document = operator.post("/v1/documents", json={"customer": customer}).json()["id"]
        operator.delete(f"/v1/documents/{document}")
        operator.put("/v1/webhook", params={"customer": customer}, json={"url": "https://customer.example/hidden"})
    auth.create(server.queue.engine, customer=customer, scopes=("read",), expires_seconds=None, actor=ADA)
    open_audit(admin, customer=customer)
    expect(rows(admin)).to_have_count(5)
    expected = (
        ("Key made", ("RoleCustomer", "Mayread", f"Name{NOTHING}", "Expiresnever")),
        ("Webhook set", ("Hostcustomer.example",)),
        ("Document cancelled", ("Statewaiting → cancelled",)),
        ("Customer paused", ("Pausedno → yes",)),
        ("Customer's settings changed", (
            "Weight1 → 2.5",
            f"Maximum in progress at once{NOTHING} → 10", f"Reset interval{NOTHING} → 10 minutes",
            f"Storage, at most{NOTHING} → 5 MB",
        )),
    )  # fmt: skip
    for number, (action, changes) in enumerate(expected):
        row = rows(admin).nth(number)
        expect(row.locator("td").nth(1)).to_contain_text(action)
        expect(row.locator("td").nth(2)).to_have_text(customer)
        assert tuple(row.locator(".changes div").all_text_contents()) == changes
    who = rows(admin).nth(1).locator("td").nth(0)
    for text in ("night shift", "Operator", key.id, "from 127.0.0.1"):
        expect(who).to_contain_text(text)
    for text in (ADA.name, "Operator", ADA.id, "from 192.0.2.7"):
        expect(rows(admin).nth(0).locator("td").nth(0)).to_contain_text(text)
    expect(rows(admin).nth(2).get_by_role("link", name=document)).to_have_attribute("href", f"#/documents/{document}")
    assert "hidden" not in admin.page.locator("main table").inner_text()
    who.get_by_role("link", name=key.id).click()
    expect(admin.page.locator("main.view-keys tbody tr")).to_contain_text("night shift")
    admin.page.get_by_role("link", name="History").click()
    expect(rows(admin)).to_have_count(4)


def test_entries_that_did_not_end_well_and_those_nobody_has_words_for(
    admin: BrowserPage, server: Server, customer: str
) -> None:
    engine = server.queue.engine
    note(engine, ADA, "moon.landing", customer=customer, after={"rockets": 3, "crew": ["A", "B"], "deep": {"deeper": True}})
    note(engine, ADA, "document.retry", customer=customer, error="wrong-state")
    note(engine, ADA, "document.retry", customer=customer, error="MoonError")
    begin(engine, ADA, "worker.drain", target="machine-7", customer=customer)
    note(
        engine, Actor("key", "0123456789abcdef", address="198.51.100.4"), "session.refused", customer=customer, error="unknown"
    )
    note(engine, Actor("cli", "root (sudo: ada)", "server-1"), "queue.purge", customer=customer, after={"documents": 12})
    note(engine, Actor("server", "fairlane serve"), "key.create", customer=customer)
    note(engine, Actor("person", "", address="198.51.100.4"), "session.refused", customer=customer, error="stale")
    note(engine, Actor("person", "p1", "Eve", "", "198.51.100.4"), "session.refused", customer=customer, error="no-role")
    open_audit(admin, customer=customer)
    expected = (
        ("Evep1from 198.51.100.4", "Sign-in refusedThe account has no role here."),
        (
            "somebody unknownfrom 198.51.100.4",
            "Sign-in refusedSigning in took too long, or was started in another window. Please try again.",
        ),
        ("The server itself", "Key made"),
        ("root (sudo: ada)on the command lineserver-1", "Old documents purged"),
        ("unknown key0123456789abcdeffrom 198.51.100.4", "Sign-in refusedThere is no such key."),
        (ADA.name, "Worker drained not completedmachine-7The change may have been made: please check."),
        (ADA.name, "Document tried again failedMoonError"),
        (ADA.name, "Document tried again failedIt has changed in the meantime, so this is no longer possible."),
        (ADA.name, "moon.landing"),
    )
    expect(rows(admin)).to_have_count(len(expected))
    for number, (who, what) in enumerate(expected):
        cells = rows(admin).nth(number).locator("td")
        expect(cells.nth(0)).to_contain_text(who)
        expect(cells.nth(1)).to_have_text(what)
    assert rows(admin).nth(8).locator(".changes div").all_text_contents() == ["rockets3", "crewA, B", "deeperyes"]


def test_every_action_can_be_chosen_and_the_address_remembers_it(admin: BrowserPage, server: Server, customer: str) -> None:
    engine, page = server.queue.engine, admin.page
    for action in ("customer.pause", "customer.resume", "customer.pause", "policy.set"):
        note(engine, ADA._replace(id=customer, name=""), action)
    note(engine, ADA._replace(name=f"eve of {customer}"), "customer.pause", customer=customer)
    open_audit(admin)
    choice = page.get_by_label("Action", exact=True)
    offered = choice.locator("option").evaluate_all("all => all.map((option) => option.value)")
    groups = {action.partition(".")[0] for action in AUDIT_ACTIONS}
    several = {group for group in groups if sum(action.startswith(f"{group}.") for action in AUDIT_ACTIONS) > 1}
    assert sorted(offered) == sorted(["", *several, *AUDIT_ACTIONS])
    page.get_by_label("Person or key (name or ID)").fill(customer)
    expect(rows(admin)).to_have_count(4)
    choice.select_option("Customers: everything")
    expect(rows(admin)).to_have_count(3)
    choice.select_option("Customer paused")
    expect(rows(admin)).to_have_count(2)
    page.reload()
    expect(rows(admin)).to_have_count(2)
    expect(choice).to_have_value("customer.pause")
    page.get_by_label("Customer (exact name)").fill("nobody")
    expect(page.locator("main")).to_contain_text("Nothing in the log matches your search.")
    page.get_by_label("Person or key (name or ID)").fill(f"eve of {customer}")
    page.get_by_label("Customer (exact name)").fill(customer)
    expect(rows(admin)).to_have_count(1)
    page.get_by_label("to", exact=True).fill("2020-01-01")
    expect(rows(admin)).to_have_count(0)
    page.get_by_label("to", exact=True).fill("")
    page.get_by_label("From", exact=True).fill("2020-01-01")
    expect(rows(admin)).to_have_count(1)


def test_new_entries_appear_while_somebody_looks(browser: Browser, server: Server, customer: str) -> None:
    with open_page(browser, server, server.admin, clock=True) as admin:
        open_audit(admin)
        rows(admin).first.wait_for()
        note(server.queue.engine, ADA._replace(name=f"Ada of {customer}"), "customer.reset")
        admin.refresh()
        expect(rows(admin).filter(has_text=f"Ada of {customer}")).to_contain_text("Counter set to 0")


def test_pages_are_read_one_after_the_other_newest_first(admin: BrowserPage, server: Server, customer: str) -> None:
    for number in range(120):
        note(server.queue.engine, ADA, "customer.tune", customer=customer, after={"counter": number})
    sent = list[str]()
    admin.page.on("request", lambda request: sent.append(request.url))
    open_audit(admin, customer=customer)
    more = admin.page.get_by_role("button", name="Show more")
    for count in (50, 100):
        expect(rows(admin)).to_have_count(count)
        more.click()
    expect(rows(admin)).to_have_count(120)
    expect(more).to_be_hidden()
    assert rows(admin).locator(".changes dd").all_inner_texts() == [str(number) for number in range(119, -1, -1)]
    assert sum("/v1/audit?" in address for address in sent) == 3  # each is read once, whatever was shown before


def test_what_stands_behind_thousands_of_others_is_found(admin: BrowserPage, server: Server, customer: str) -> None:
    """One request examines so many entries at most; the view goes on by itself."""
    engine = server.queue.engine
    note(engine, ADA._replace(id=customer), "customer.forget")
    with ThreadPoolExecutor(8) as threads:  # whose commits share a write to the disk
        list(threads.map(lambda _: note(engine, ADA, "customer.tune"), range(SCAN_MAX + 10)))
    open_audit(admin, who=customer)
    expect(rows(admin)).to_have_count(1)
    expect(rows(admin)).to_contain_text("Customer forgotten")


def test_what_is_shown_can_be_downloaded_as_json_lines(
    admin: BrowserPage, server: Server, customer: str, tmp_path: Path
) -> None:
    engine = server.queue.engine
    for name in HOSTILE:
        note(engine, ADA._replace(name=name), "customer.pause", customer=customer, after={"name": name})
    note(engine, ADA, "customer.pause", customer=f"{customer}, neighbour")
    open_audit(admin, customer=customer, what="customer")
    expect(rows(admin)).to_have_count(len(HOSTILE))
    with admin.page.expect_download() as download:
        admin.page.get_by_role("link", name="Download (JSON lines)").click()
    assert download.value.suggested_filename == "audit.jsonl"
    download.value.save_as(tmp_path / "audit.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert lines == [audit_json(entry) for entry in walk_audit(engine, AuditFilter(customer=customer))]
    assert [line["who"]["name"] for line in lines] == [*reversed(HOSTILE)]


def test_hostile_entries_stay_text(browser: Browser, server: Server) -> None:
    engine = server.queue.engine
    for text in HOSTILE:
        actor = Actor("key", "0123456789abcdef", text, text, text)
        values = {"name": text, text[:100]: text, "scopes": [text], "deep": {"state": text}}
        begin(engine, actor, text, target=text, customer=text, before=values)
        note(engine, Actor("cli", text, text), "customer.pause", customer=text, after=values, error=text)
    with open_page(browser, server, server.admin) as console:
        for text in HOSTILE:
            open_audit(console, customer=text)
            found = rows(console).filter(has_text="not completed")
            expect(found.last.locator("td").nth(2)).to_have_text(text)
            expect(found.last.locator("td").nth(0)).to_contain_text(text)
            expect(found.last.locator("td").nth(1)).to_contain_text(text)
            assert text in found.last.locator(".changes dd").all_text_contents()
            expect(rows(console).filter(has_text="failed").last).to_contain_text(text)
            assert console.overflows() == [], text
        assert console.page.evaluate("window.harmed") is None
        assert console.page.locator("script:not([src])").count() == console.page.locator("img[onerror]").count() == 0
