"""Re-encryption: it begins, changes and ends encryption, in steps that may be cut off, while the queue is in use."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from fairlane import Mistake, Queue
from fairlane.blobs.folder import FolderBlobs
from fairlane.core.document import Done
from fairlane.doctor import findings
from fairlane.encryption import KeyMissing, inner_engine
from fairlane.encryption.engine import GROUP, RUN_KEY
from fairlane.encryption.keyring import new_key
from fairlane.engine.protocol import Finding
from fairlane.queue.audit import Actor, AuditFilter, note, walk_audit
from fairlane.reencrypt import reencrypt
from tests.cli.running import run, run_json
from tests.privacy.everything import holding, stored

from .conftest import Use
from .test_store import WORD, check_all, fill

ROOT = Path(__file__).parents[2]
OLD, NEW = new_key(), new_key()


def finding(queue: Queue) -> Finding:
    return next(each for each in findings(queue) if each.name == "encryption")


def test_encryption_begins_changes_and_ends(lasting_url: str, use: Use, tmp_path: Path) -> None:
    url, blobs = lasting_url, str(tmp_path / "blobs")
    use()
    with Queue(url, blobs=blobs) as queue:
        ids = fill(queue)
        assert finding(queue) == Finding("encryption", "fine", "off: payloads, results and files are stored as they are")
    first = use(OLD).first
    assert first is not None
    dry = reencrypt(url, blobs, dry_run=True)
    done = reencrypt(url, blobs)
    assert done == (first.id, dry.texts, 11, 0, None, (), None)
    assert dry == done
    with Queue(url, blobs=blobs) as queue:
        check_all(queue, ids)
        assert holding({WORD}, stored(queue, tmp_path)) == []
        assert finding(queue) == Finding("encryption", "fine", f"with key {first.id}")
    assert reencrypt(url, blobs)[1:3] == (0, 0)
    second = use(NEW, OLD).first
    assert second is not None
    with Queue(url, blobs=blobs) as queue:
        assert f"some texts or files may still be encrypted with key {first.id}" in finding(queue).message
    done = reencrypt(url, blobs)
    assert (done.key, done.files, done.struck) == (second.id, 11, (first.id,))
    use(NEW)
    with Queue(url, blobs=blobs) as queue:
        check_all(queue, ids)
        assert queue.submit("acme", {"iban": WORD}, content=WORD.encode(), name=f"{WORD}.txt", key="done").id == ids["done"]
    use(OLD)
    with pytest.raises(KeyMissing):
        Queue(url)
    use("none", NEW)
    assert reencrypt(url, blobs)[:3] == (None, done.texts + len(ids), 11)  # and the digests of their keys
    use()
    with Queue(url, blobs=blobs) as queue:
        check_all(queue, ids)
        assert queue.submit("acme", {"iban": WORD}, content=WORD.encode(), name=f"{WORD}.txt", key="done").id == ids["done"]
        assert len(holding({WORD}, stored(queue, tmp_path))) > 3
        assert inner_engine(queue.engine).records(GROUP, "", 10) == []


@pytest.mark.parametrize(("engine", "stride"), [("sqlite", 13), ("postgres", 37), ("redis", 41), ("valkey", 53)])
def test_a_run_that_is_killed_harms_nothing_and_is_finished_by_the_next(tmp_path: Path, engine: str, stride: int) -> None:
    command = [sys.executable, "-m", "tests.encryption.dying", str(tmp_path), engine, str(stride)]
    ran = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["wrong"] == []
    assert report["steps"] >= 80


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path, use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    use(OLD)
    with Queue(url) as queue:
        queue.submit_many("acme", range(50))
    use(NEW, OLD)
    monkeypatch.setattr("fairlane.reencrypt.ROWS_MAX", 10)
    steps: list[tuple[str, int]] = []

    def stop(what: str, done: int, total: int) -> None:
        steps.append((what, done))
        if (what, done) == ("documents", 30):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reencrypt(url, on_progress=stop)
    with Queue(url) as queue:
        assert "re-encryption is under way, or was interrupted" in finding(queue).message
        record = inner_engine(queue.engine).record(GROUP, RUN_KEY)
        assert record is not None
        assert json.loads(record.value)["cursor"] == json.dumps(["documents", 20])
    steps.clear()
    done = reencrypt(url, on_progress=lambda what, done, total: steps.append((what, done)))
    assert steps[0] == ("documents", 30)
    assert (done.left, len(done.struck)) == (0, 1)


def test_it_runs_while_documents_are_submitted_processed_and_forgotten(lasting_url: str, use: Use, tmp_path: Path) -> None:
    url, blobs = lasting_url, str(tmp_path / "blobs")
    use(OLD)
    with Queue(url, blobs=blobs) as old:
        for n in range(40):
            old.submit("acme" if n % 2 else "gone", {"n": n}, content=b"%d" % n, key=f"k{n}")
    use(NEW, OLD)
    is_over, errors = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            with Queue(url, blobs=blobs) as queue:
                for n in range(40, 10_000):
                    if is_over.is_set():
                        return
                    queue.submit("acme", {"n": n}, content=b"%d" % n, key=f"k{n}")
                    for claim in queue.engine.claim("worker", 2, 60_000):
                        kept = queue.put_results(claim.customer, claim.id, claim.token, text=claim.payload)
                        assert queue.engine.settle([(claim, Done(json.dumps(kept)))]) in ([], [claim])
                    if n == 60:
                        queue.forget("gone", vacuum=False)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        reencrypt(url, blobs, vacuum=False)
    finally:
        is_over.set()
        thread.join()
    assert errors == []
    done = reencrypt(url, blobs)
    assert done.left == 0
    use(NEW)
    with Queue(url, blobs=blobs) as queue:
        rows = list(queue.documents("acme"))
        assert {queue.payload(row.id)["n"] for row in rows} >= {*range(1, 40, 2)}
        for row in rows:
            queue.file(row.id).close()
            assert row.state != "done" or json.loads(queue.text(row.id))["payload"] == queue.payload(row.id)
        if not list(queue.documents("gone")):
            assert not [
                path
                for path in (tmp_path / "blobs").rglob("*")
                if path.is_file() and path.parent.name not in {row.id for row in rows}
            ]


def test_a_file_whose_document_is_forgotten_meanwhile_does_not_come_back(
    tmp_path: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    use(OLD)
    with Queue(url) as queue:
        queue.submit("acme", content=WORD.encode())
    use(NEW, OLD)
    put = FolderBlobs.put

    def forget_then_put(self: FolderBlobs, contents: Mapping[str, Iterable[bytes]], sibling_key: str | None = None) -> None:
        with Queue(url) as other:
            other.forget("acme")
        put(self, contents, sibling_key)

    monkeypatch.setattr(FolderBlobs, "put", forget_then_put)
    assert reencrypt(url).left == 0
    assert [path for path in (tmp_path / "queue.db.blobs").rglob("*") if path.is_file()] == []


def test_what_cannot_be_re_encrypted_is_left_and_counted(tmp_path: Path, use: Use) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    first = use(OLD).first
    assert first is not None
    with Queue(url) as queue:
        damaged, running = queue.submit("acme", content=b"one").id, queue.submit("acme", content=b"two").id
        queue.cancel(damaged)
        (claim,) = queue.engine.claim("worker", 1, 600_000)
        queue.put_results("acme", claim.id, claim.token, text="half")
        (path,) = tmp_path.rglob(f"*/{damaged}/input")
        path.write_bytes(path.read_bytes()[:-1])
    use(NEW, OLD)
    result = run("encrypt", "--json", "--url", url)
    done = json.loads(result.stdout)
    assert (result.exit_code, done["left"], done["struck"]) == (4, 2, [])
    assert f"2 texts or files could not be: the bytes of document {damaged} are damaged" in result.stderr
    with Queue(url) as queue:
        assert (
            queue.engine.settle([(claim, Done(json.dumps(queue.put_results("acme", running, claim.token, text="whole"))))])
            == []
        )
        assert queue.text(running) == "whole"
        assert f"may still be encrypted with key {first.id}" in finding(queue).message
        queue.purge(0)
    assert reencrypt(url).struck == (first.id,)


def test_the_command_prints_a_key_and_what_it_did(tmp_path: Path, use: Use) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    key = run("encrypt", "--new-key").stdout.strip()
    assert use(key).first is not None
    assert run_json("encrypt", "--new-key")[0]["key"] != key
    with Queue(url) as queue:
        queue.submit("acme", {"n": 1})
    first = use(key).first
    assert first is not None
    assert run("encrypt", "--url", url).stdout == f"0 texts and 0 files were encrypted with key {first.id}.\n"
    second = use(new_key(), key).first
    assert second is not None
    assert run("encrypt", "--dry-run", "--url", url).stdout == f"3 texts and 0 files would be encrypted with key {second.id}.\n"
    assert run("encrypt", "--url", url).stdout == (
        f"3 texts and 0 files were encrypted with key {second.id}. Key {first.id} is not needed any more.\n"
    )
    use()
    result = run("encrypt", "--url", url)
    assert (result.exit_code, "there is no encryption key: make one with `fairlane encrypt --new-key`" in result.stderr) == (
        2,
        True,
    )
    with pytest.raises(Mistake):
        reencrypt(url)


def test_what_an_interrupted_run_replaced_does_not_stay_in_the_file(tmp_path: Path, use: Use) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    use()
    with Queue(url) as queue:
        queue.submit_many("acme", [{"iban": WORD * 100}] * 100)  # encrypted they do not fit where they were
    use(NEW)

    def stop(what: str, done: int, total: int) -> None:
        if what == "rewriting the file":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reencrypt(url, on_progress=stop)
    with Queue(url) as queue:  # it stays open, as a service would
        assert "re-encryption is under way, or was interrupted" in finding(queue).message
        assert holding({WORD}, stored(queue, tmp_path)) != []
        assert reencrypt(url)[1:] == (0, 0, 0, None, (), None)
        assert holding({WORD}, stored(queue, tmp_path)) == []
        assert finding(queue).level == "fine"


def test_a_run_is_in_the_audit_log_and_the_log_is_encrypted(lasting_url: str, use: Use, tmp_path: Path) -> None:
    url = lasting_url
    use()
    actor = Actor("cli", WORD, "host")
    with Queue(url) as queue:
        note(queue.engine, actor, "customer.pause", customer=WORD)
        assert holding({WORD}, stored(queue, tmp_path)) != []
    use(NEW)
    reencrypt(url, actor=actor)
    with Queue(url) as queue:
        assert holding({WORD}, stored(queue, tmp_path)) == []
        entries = list(walk_audit(queue.engine, AuditFilter()))
        assert [(entry.action, entry.outcome, entry.who) for entry in entries] == [
            ("queue.encrypt", "done", actor), ("customer.pause", "done", actor),
        ]  # fmt: skip
        assert entries[0].after["texts"] == 1
    reencrypt(url, actor=actor, dry_run=True)
    with Queue(url) as queue:
        assert len(list(walk_audit(queue.engine, AuditFilter()))) == 2
