"""The audit log: an entry before every change, completed after it; newest first; it outlives the feed, and forgets with it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.backup import back_up, restore
from fairlane.core.document import Failed
from fairlane.core.errors import StoreUnreachable, Unknown, WrongState
from fairlane.engine.protocol import RECORD_BYTES_MAX
from fairlane.queue import audit
from fairlane.queue.audit import (
    AUDIT,
    Actor,
    AuditEntry,
    AuditFilter,
    audit_page,
    begin,
    cli_actor,
    forget_in_audit,
    note,
    purge_audit,
    recorded,
    walk_audit,
)
from fairlane.queue.audited_queue import AuditedQueue, audited
from fairlane.queue.workers import WORKERS, WorkerRecord
from fairlane.transfer import move, stop
from tests.engine.conftest import ENGINES, url_of
from tests.servers import redis

ADA = Actor("key", "0123456789abcdef", "ada's laptop", "operator", "192.0.2.7")
BOB = Actor("cli", "bob", "host")
ALL = AuditFilter()
DAY = 86_400.0


@pytest.fixture(params=ENGINES)
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    url = url_of(request.param, tmp_path)
    with Queue(url, blobs=str(tmp_path / "blobs")) as queue:
        yield queue
    redis.drop_url(url)


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[AuditedQueue]:
    with Queue(f"sqlite:///{tmp_path}/queue.db") as queue:
        yield AuditedQueue(queue, ADA)


def entries(queue: Queue, filter: AuditFilter = ALL) -> list[AuditEntry]:
    return list(walk_audit(queue.engine, filter))


# -- entries ---------------------------------------------------------------------------------------------------------


def test_an_entry_is_there_before_the_change_and_completed_after_it(queue: Queue) -> None:
    before_ms = queue.engine.now()
    with recorded(queue.engine, ADA, "customer.tune", target="acme", customer="acme", before={"cap": 1}) as change:
        (open_entry,) = entries(queue)
        assert (open_entry.outcome, open_entry.before, open_entry.after) == ("begun", {"cap": 1}, None)
        change.after = {"cap": 2}
    (entry,) = entries(queue)
    assert entry._replace(at=open_entry.at) == AuditEntry(
        open_entry.id, open_entry.at, ADA, "customer.tune", "acme", "acme", {"cap": 1}, {"cap": 2}, "done", None
    )
    assert before_ms <= entry.at.timestamp() * 1000 <= queue.engine.now()  # the store's clock


def test_what_fails_says_which_error_ended_it_and_not_its_text(queue: Queue) -> None:
    with pytest.raises(WrongState), recorded(queue.engine, ADA, "document.retry", target="x"):
        raise WrongState("with a secret text")
    (entry,) = entries(queue)
    assert (entry.outcome, entry.error, entry.after) == ("failed", "WrongState", None)
    assert "secret text" not in str(queue.engine.records(AUDIT, "", 10))


def test_a_change_of_which_nobody_knows_whether_it_was_made_stays_begun(queue: Queue) -> None:
    with pytest.raises(StoreUnreachable), recorded(queue.engine, ADA, "customer.reset", target="acme"):
        raise StoreUnreachable("gone")
    assert [entry.outcome for entry in entries(queue)] == ["begun"]


def test_without_an_actor_nothing_is_recorded(queue: Queue) -> None:
    with recorded(queue.engine, None, "customer.reset"), audited(queue, "customer.reset"):
        pass
    queue.tune("acme", weight=2)
    assert entries(queue) == []


def test_entries_are_read_newest_first_a_page_at_a_time(queue: Queue) -> None:
    for number in range(7):
        note(queue.engine, ADA if number % 2 else BOB, f"action.{number}", customer=f"customer {number % 3}")
    listed = entries(queue)
    assert [entry.at for entry in listed] == sorted((entry.at for entry in listed), reverse=True)
    assert {entry.action for entry in listed} == {f"action.{number}" for number in range(7)}
    first = audit_page(queue.engine, ALL, None, 3)
    second = audit_page(queue.engine, ALL, first.next, 100)
    assert (first.entries + second.entries, second.next) == (listed, None)


def test_entries_are_found_by_who_what_customer_and_time(queue: Queue) -> None:
    note(queue.engine, ADA, "customer.pause", customer="acme")
    note(queue.engine, BOB, "customer.tune", customer="acme")
    note(queue.engine, BOB, "key.create", customer="bolt")

    def found(**wanted: object) -> list[str]:
        return [entry.action for entry in entries(queue, AuditFilter(**wanted))]  # type: ignore[arg-type]

    assert found(who=ADA.id) == found(who="ada's laptop") == ["customer.pause"]
    assert sorted(found(what="customer")) == ["customer.pause", "customer.tune"]
    assert found(what="customer.tune") == ["customer.tune"]
    assert found(what="cust") == []
    assert found(customer="bolt") == ["key.create"]
    now_ms = queue.engine.now()
    assert len(found(since_ms=now_ms - 60_000, until_ms=now_ms + 60_000)) == 3
    assert found(since_ms=now_ms + 60_000) == found(until_ms=now_ms - 60_000) == []
    (newest, *_) = entries(queue)
    newest_ms = round(newest.at.timestamp() * 1000)
    assert newest.action in found(since_ms=newest_ms)
    assert newest.action not in found(until_ms=newest_ms)


def test_a_filter_that_matches_little_costs_no_more_than_one_that_matches_all(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "PAGE_SIZE", 4)
    for number in range(18):
        note(queue.engine, ADA, "rare.one" if number == 0 else "customer.pause")
    sizes, after = [], ""
    while True:
        page = audit_page(queue.engine, AuditFilter(what="rare"), after, 10, scan_max=8)
        sizes.append(len(page.entries))
        if page.next is None:
            break
        after = page.next
    assert sorted(sizes) == [0, 0, 1]
    assert [entry.action for entry in entries(queue, AuditFilter(what="rare"))] == ["rare.one"]


def test_an_entry_that_would_be_too_large_is_kept_without_its_values(queue: Queue) -> None:
    with recorded(queue.engine, ADA, "policy.set", before="x" * RECORD_BYTES_MAX) as change:
        change.after = "y"
    (entry,) = entries(queue)
    assert (entry.action, entry.before, entry.outcome) == ("policy.set", "too large to keep", "done")


def test_members_that_a_newer_version_added_are_ignored(queue: Queue) -> None:
    row = begin(queue.engine, ADA, "customer.pause")
    record = queue.engine.record(AUDIT, row.id)
    assert record is not None
    members = json.loads(record.value)
    queue.engine.put_record(AUDIT, row.id, json.dumps({**members, "mood": "good", "who": {**members["who"], "shoe": 43}}))
    assert entries(queue)[0].who == ADA


def test_the_command_line_is_a_user_on_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    actor = cli_actor()
    assert actor.kind == "cli"
    assert actor.id
    assert actor.name
    monkeypatch.setenv("SUDO_USER", "ada")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert cli_actor().id.endswith("(sudo: ada)")


# -- how long --------------------------------------------------------------------------------------------------------


def test_entries_outlive_the_feed_and_go_after_their_own_time(queue: Queue) -> None:
    queue.submit("acme", 1)
    note(queue.engine, ADA, "customer.pause")
    queue.cancel(next(iter(queue.documents())).id)
    assert queue.purge(0) == 1
    assert len(entries(queue)) == 1
    assert purge_audit(queue.engine, 365 * DAY) == 0
    note(queue.engine, ADA, "customer.resume")
    assert purge_audit(queue.engine, 0) == 2
    assert entries(queue) == []


def test_no_entry_names_a_forgotten_customer(queue: Queue) -> None:
    own = Actor("key", "fedcba9876543210", "their laptop", "customer", "192.0.2.9")
    note(queue.engine, own, "session.begin", customer="acme")
    with recorded(queue.engine, ADA, "document.cancel", target="a document", customer="acme", before={"state": "ready"}):
        pass
    with recorded(queue.engine, BOB, "documents.cancel", before={"filter": {"customer": "acme", "kind": "acme 2"}}):
        pass
    note(queue.engine, BOB, "customer.pause", customer="acme 2")
    assert forget_in_audit(queue.engine, "acme") == 3
    assert forget_in_audit(queue.engine, "acme") == 0
    by_action = {entry.action: entry for entry in entries(queue)}
    cancelled = by_action["document.cancel"]
    word = cancelled.customer
    assert str(word).startswith("forgotten-")
    assert by_action["session.begin"].who == Actor("key", str(word), role="customer")
    assert (cancelled.who, cancelled.target, cancelled.before) == (ADA, word, None)
    assert by_action["documents.cancel"].before == {"filter": {"customer": word, "kind": "acme 2"}}
    assert by_action["customer.pause"].customer == "acme 2"


def test_forgetting_a_customer_is_recorded_without_its_name(queue: Queue) -> None:
    queue.submit("acme", 1)
    known = AuditedQueue(queue, ADA)
    known.pause("acme")
    known.forget("acme")
    forgotten, paused = entries(queue)
    assert (forgotten.action, forgotten.outcome, forgotten.who) == ("customer.forget", "done", ADA)
    assert forgotten.after == {"documents": 1, "records": 0}
    assert (forgotten.customer or "").startswith("forgotten-")
    assert paused.customer == paused.target == forgotten.customer == forgotten.target
    assert "acme" not in str(queue.engine.records(AUDIT, "", 10))


def test_entries_move_with_the_queue(tmp_path: Path) -> None:
    source, target = f"sqlite:///{tmp_path}/old.db", f"sqlite:///{tmp_path}/new.db"
    with Queue(source) as queue:
        note(queue.engine, ADA, "customer.pause", customer="acme")
        known = entries(queue)
    move(source, target, actor=BOB)
    for url in (source, target):
        with Queue(url) as queue:
            moved, *older = entries(queue)
            assert older == known
            assert (moved.who, moved.action, moved.outcome) == (BOB, "queue.move", "done")
            assert moved.before == {"from": source, "to": target}


def test_a_move_that_is_given_up_is_recorded(tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/old.db"
    with Queue(source) as queue:
        from dataclasses import replace

        queue.engine.configure(replace(queue.rules(), frozen="is being moved to elsewhere"))
        stop(source, BOB)
        assert [entry.action for entry in entries(queue)] == ["queue.stop-move"]


def test_entries_are_in_a_backup_and_restoring_is_one(on_disk: AuditedQueue, tmp_path: Path) -> None:
    on_disk.pause("acme")
    back_up(on_disk.url, tmp_path / "backup", actor=BOB)
    url = f"sqlite:///{tmp_path}/restored.db"
    restore(tmp_path / "backup", url, actor=BOB)
    assert [(entry.action, entry.outcome) for entry in entries(on_disk)] == [
        ("queue.backup", "done"),
        ("customer.pause", "done"),
    ]
    with Queue(url) as queue:
        restored, backed_up, paused = entries(queue)
    assert (restored.action, restored.outcome, restored.before["folder"]) == ("queue.restore", "done", str(tmp_path / "backup"))
    assert (backed_up.action, backed_up.outcome) == ("queue.backup", "begun")  # as it was when it was copied
    assert paused.action == "customer.pause"


# -- an audited queue ------------------------------------------------------------------------------------------------

# A verb that is neither recorded nor here changes something in secret: decide.
UNRECORDED = {
    "attempts", "changes", "check", "close", "customers", "document", "documents", "explain", "explain_customer", "facts",
    "file", "history", "input", "kind", "kinds", "look", "parts", "pause", "payload", "progress", "put_results", "result",
    "resume", "rules", "steps", "submit", "submit_files", "submit_many", "terms", "text", "thumbnail", "unserved_kinds",
    "vacuum", "wait", "within", "workers",
}  # fmt: skip


def test_every_verb_that_changes_something_is_recorded() -> None:
    verbs = {name for name, _ in inspect.getmembers(Queue, inspect.isfunction) if not name.startswith("_")}
    recorded_verbs = {name for name in vars(AuditedQueue) if not name.startswith("_")}
    assert verbs - recorded_verbs == UNRECORDED
    assert recorded_verbs <= verbs


def test_each_verb_leaves_one_entry_with_before_and_after(queue: Queue) -> None:
    known, engine = AuditedQueue(queue, ADA), queue.engine
    waiting = queue.submit("acme", 1).id
    failed = queue.submit("acme", 2).id
    claims = engine.claim("w", 2, 60_000)
    engine.settle([(claim, Failed("no")) for claim in claims if claim.id == failed])
    worker = WorkerRecord("w-1", "host", 1, "1", 1, ("x",), 1, engine.now(), engine.now(), "working", {}, False)
    engine.put_record(WORKERS, "instance", worker.encode())
    known.pause("acme")
    known.resume("acme")
    known.tune("acme", weight=2, cap=None)
    known.configure(reset="sliding", waiting_max=None)
    known.reset("acme")
    known.cancel(waiting)
    known.retry(failed)
    known.bulk("cancel", customer="acme")
    known.drain_worker("w-1")
    known.undrain_worker("w-1")
    known.purge(0)
    known.sweep()
    found = [(entry.action, entry.customer, entry.target) for entry in reversed(entries(queue))]
    assert sorted(found, key=str) == sorted(
        [
            ("customer.pause", "acme", "acme"), ("customer.resume", "acme", "acme"), ("customer.tune", "acme", "acme"),
            ("policy.set", None, None), ("customer.reset", "acme", "acme"), ("document.cancel", "acme", waiting),
            ("document.retry", "acme", failed), ("documents.cancel", "acme", None), ("worker.drain", None, "w-1"),
            ("worker.undrain", None, "w-1"), ("queue.purge", None, None), ("files.sweep", None, None),
        ],
        key=str,
    )  # fmt: skip
    by_action = {entry.action: entry for entry in entries(queue)}
    assert {entry.outcome for entry in by_action.values()} == {"done"}
    assert (by_action["customer.pause"].before["paused"], by_action["customer.pause"].after["paused"]) == (False, True)
    assert (by_action["customer.tune"].before["weight"], by_action["customer.tune"].after["weight"]) == (1, 2)
    assert (by_action["policy.set"].before["reset"], by_action["policy.set"].after["reset"]) == ("idle", "sliding")
    assert by_action["policy.set"].before["limits"]["waiting_max"] > 0
    assert by_action["policy.set"].after["limits"]["waiting_max"] is None
    assert by_action["customer.reset"].before["counter"] < by_action["customer.reset"].after["counter"] == 0
    assert (by_action["document.cancel"].before, by_action["document.cancel"].after) == (
        {"state": "running"}, {"state": "cancelled"},
    )  # fmt: skip
    assert by_action["document.retry"].after == {"state": "ready"}
    assert by_action["documents.cancel"].before == {"filter": {"customer": "acme"}}
    assert by_action["documents.cancel"].after == {"matched": 1, "changed": 1, "refused": 0}
    assert by_action["worker.drain"].after == {"instances": ["instance"]}


def test_looking_is_not_recorded(queue: Queue) -> None:
    known = AuditedQueue(queue, ADA)
    known.submit("acme", 1)
    known.check("acme")
    known.tune("acme")
    known.configure()
    known.configure(reset=None, dispatch=None, turns=None, open_turn_every=None)
    known.bulk("cancel", customer="acme", dry_run=True)
    with pytest.raises(Unknown):
        known.cancel("nobody")
    assert entries(queue) == []
