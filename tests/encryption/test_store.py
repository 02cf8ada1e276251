"""What a store holds of an encrypted queue, and what happens without the right key, on every engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairlane import BadValue, BlobDamaged, KeyConflict, Queue, Split, StoreError, StoreUnfit
from fairlane.api import auth
from fairlane.api.webhooks import put_webhook, webhook_of
from fairlane.core.document import Done, Failed, Retried
from fairlane.encryption import KeyMissing, inner_engine
from fairlane.encryption import engine as engine_module
from fairlane.encryption.keyring import new_key
from fairlane.encryption.texts import is_sealed
from fairlane.engine.protocol import Rewrite
from fairlane.worker.document import ClaimedDocument, outcome_of_value
from fairlane.worker.progress import ProgressStore
from tests.privacy.everything import holding, stored

from .conftest import Use

WORD = "qzx7731"  # in everything that must be unreadable, and in nothing else
KEY, OTHER = new_key(), new_key()


def fill(queue: Queue) -> dict[str, str]:
    """Have documents with every text that there is; return their ids."""
    engine, ids = queue.engine, dict[str, str]()
    for name in ("done", "failed", "spent", "retried", "running"):
        ids[name] = queue.submit("acme", {"iban": WORD}, content=WORD.encode(), name=f"{WORD}.txt", key=name).id
    claims = {claim.id: claim for claim in engine.claim("worker", 5, 600_000, {"extract": 1})}
    done, failed, spent, retried, running = (claims[id] for id in ids.values())
    results = queue.put_results("acme", done.id, done.token, text=WORD, facts={"of": WORD}, thumbnail=WORD.encode())
    details = json.dumps(
        {"attempt": 1, "token": 1, "at": 0, "worker": "w", "seconds": 1, "reason": WORD, "traceback": WORD, "output": WORD}
    )
    engine.settle([
        (done, Done(json.dumps({**results, "title": WORD}))), (failed, Failed(f"bad: {WORD}", details=details)),
        (spent, Retried(0, f"busy: {WORD}")), (retried, Retried(1000, f"later: {WORD}", counted=False)),
    ])  # fmt: skip
    for name, steps in (("stepped", ["read", "index"]), ("split", ["scan", "index"])):
        options: dict[str, Any] = {"content": WORD.encode(), "name": f"{WORD}.txt", "key": name, "steps": steps}
        ids[name] = queue.submit("acme", {"iban": WORD}, **options).id
        (claim,) = engine.claim("worker", 1, 600_000, {steps[0]: 3})
        document = ClaimedDocument(claim, lambda _: None, queue.files.open)
        result = {**document.put_results(text=WORD), "title": WORD} if name == "stepped" else Split([WORD, WORD])
        engine.settle([(claim, outcome_of_value(document, result))])
    (part,) = engine.claim("worker", 1, 600_000, {"scan": 3})
    assert ClaimedDocument(part, lambda _: None, queue.files.open).payload == WORD
    engine.settle([(part, Failed(f"torn: {WORD}"))])
    progress = ProgressStore(engine)
    progress.record(running, WORD, json.dumps({"partial": WORD}))
    progress.write(progress.take_unwritten())
    auth.create(engine, customer="acme", name=WORD)
    put_webhook(engine, "acme", f"https://example.com/{WORD}", None, is_by_operator=True)
    return ids


def check_all(queue: Queue, ids: dict[str, str], is_restored: bool = False) -> None:
    """Everything can be read as it was written."""
    for id in ids.values():
        assert (queue.payload(id), queue.input(id).name) == ({"iban": WORD}, f"{WORD}.txt")
        with queue.file(id) as file:
            assert file.read() == WORD.encode()
    done = ids["done"]
    assert (queue.text(done), queue.facts(done), queue.thumbnail(done)) == (WORD, {"of": WORD}, WORD.encode())
    assert queue.result(done)["title"] == WORD
    assert queue.document(ids["failed"]).reason == f"bad: {WORD}"
    assert queue.document(ids["spent"]).reason == f"attempt 1 of 1 failed: busy: {WORD}"
    assert [entry.reason for entry in queue.history(ids["retried"]) if entry.reason] == [f"later: {WORD}"]
    assert queue.steps(ids["stepped"])[0].result["title"] == WORD
    part, other = queue.parts(ids["split"])
    assert (part.reason, other.state) == (f"torn: {WORD}", "cancelled")
    assert queue.document(ids["split"]).reason == f"its part {part.id} failed: torn: {WORD}"
    assert [entry.reason for entry in queue.history(ids["split"]) if entry.reason] == [
        f"its part {part.id} failed: torn: {WORD}"
    ]
    options: dict[str, Any] = {"content": WORD.encode(), "name": f"{WORD}.txt", "key": "stepped", "steps": ["read", "index"]}
    assert queue.submit("acme", {"iban": WORD}, **options).repeated
    assert [attempt.traceback for attempt in queue.attempts(ids["failed"])] == [WORD]
    progress = queue.progress(ids["running"])
    if not is_restored:  # then it is that of a claim on another queue
        assert progress is not None
        assert (progress.progress, progress.partial) == (WORD, {"partial": WORD})
    assert [document.id for document in queue.documents(reason=f"bad: {WORD}")] == [ids["failed"]]
    assert [document.id for document in queue.documents(reason="failed: busy")] == [ids["spent"]]
    assert list(queue.documents(reason="enc1")) == []
    hook = webhook_of(queue.engine, "acme")
    assert hook is not None
    assert hook.url == f"https://example.com/{WORD}"
    assert [key.name for key in auth.list_keys(queue.engine)] == [WORD]


def test_nothing_of_it_can_be_read_in_the_store_or_its_files(url: str, use: Use, tmp_path: Path) -> None:
    use(KEY)
    with Queue(url, blobs=str(tmp_path / "blobs")) as queue:
        ids = fill(queue)
        check_all(queue, ids)
        assert holding({WORD}, stored(queue, tmp_path)) == []
        assert holding({"acme", ids["done"]}, stored(queue, tmp_path))  # the search finds what is plain
        secret = webhook_of(queue.engine, "acme")
        assert secret is not None
        assert holding({secret.secrets[0].secret}, stored(queue, tmp_path)) == []


def test_without_keys_everything_is_stored_as_before(url: str, tmp_path: Path, use: Use) -> None:
    use()
    with Queue(url, blobs=str(tmp_path / "blobs")) as queue:
        check_all(queue, fill(queue))
        assert len(holding({WORD}, stored(queue, tmp_path))) > 3
        assert inner_engine(queue.engine).records("encryption", "", 10) == []


def test_a_queue_is_not_opened_without_its_key(lasting_url: str, use: Use, tmp_path: Path) -> None:
    url = lasting_url
    first = use(KEY).first
    assert first is not None
    with Queue(url, blobs=str(tmp_path / "blobs")) as queue:
        queue.submit("acme", {"n": 1})
    for keys in ((), (OTHER,), ("none", OTHER)):
        use(*keys)
        with pytest.raises(KeyMissing, match=f"this queue is encrypted with key {first.id}, which this program does not have"):
            Queue(url)
    use(OTHER, KEY)
    with Queue(url) as queue:
        assert [queue.payload(document.id) for document in queue.documents()] == [{"n": 1}]


def test_a_worker_without_the_key_gives_documents_back_and_claims_no_more(
    url: str, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    use()
    with Queue(url) as queue:  # it began before encryption did
        plain = queue.submit("acme", {"n": 1}).id
        keyring = use(KEY)
        encrypting = engine_module.EncryptedEngine(inner_engine(queue.engine), keyring)
        inside = Queue.__new__(Queue)
        inside.url, inside.keyring, inside.engine, inside._in_transaction = url, keyring, encrypting, False
        secret = inside.submit("acme", {"n": 2}).id
        assert [claim.id for claim in queue.engine.claim("old", 10, 60_000)] == [plain]
        row = queue.engine.document(secret)
        assert row is not None
        assert (row.state, row.attempts, row.reason) == ("ready", 0, None)
        assert keyring.first is not None
        with pytest.raises(KeyMissing, match=keyring.first.id):
            queue.engine.claim("old", 10, 60_000)
        assert [change.what for change in queue.engine.changes(None, 100)].count("released") == 1  # it did not try again
        monkeypatch.setattr(engine_module, "LOCKED_SECONDS", 0.0)
        with pytest.raises(KeyMissing):
            queue.engine.claim("old", 10, 60_000)
        with pytest.raises(StoreUnfit, match="add that key to FAIRLANE_ENCRYPTION_KEYS"):
            queue.payload(secret)
        (claim,) = encrypting.claim("new", 10, 60_000)
        assert (claim.id, claim.attempts, json.loads(claim.payload)) == (secret, 1, {"n": 2})
        with pytest.raises(KeyMissing, match=keyring.first.id):
            queue.engine.take_over([(claim.id, claim.token)], "old", 60_000)
        row = queue.engine.document(secret)
        assert row is not None
        assert (row.state, row.attempts) == ("ready", 0)


def test_whoever_takes_a_claim_over_reads_its_payload(url: str, use: Use) -> None:
    use(KEY)
    with Queue(url) as queue:
        queue.submit("acme", {"n": 1})
        (claim,) = queue.engine.claim("bridge", 1, 60_000)
        (taken,) = queue.engine.take_over([(claim.id, claim.token)], "worker", 60_000)
        assert taken is not None
        assert json.loads(taken.payload) == {"n": 1}
        assert queue.engine.take_over([(claim.id, claim.token)], "worker", 60_000) == [None]
        inner = inner_engine(queue.engine)
        (row,) = inner.pack(json.dumps(["documents", None]), 10).documents
        inner.rewrite("payload", [Rewrite(row.snapshot.number, row.payload, row.payload[:-9] + "AAAAAAAA" + row.payload[-1])])
        assert queue.engine.take_over([(taken.id, taken.token)], "worker", 60_000) == [None]
        document = queue.document(claim.id)
        assert document.state == "failed"
        assert "corrupt: " in (document.reason or "")


def test_texts_that_were_swapped_or_changed_are_noticed(url: str, use: Use) -> None:
    use(KEY)
    with Queue(url) as queue:
        ids = [queue.submit("acme", {"n": n}).id for n in range(2)]
        inner = inner_engine(queue.engine)
        rows = inner.pack(json.dumps(["documents", None]), 10).documents
        assert all(is_sealed(row.payload) for row in rows)
        inner.rewrite("payload", [Rewrite(rows[0].snapshot.number, rows[0].payload, rows[1].payload)])
        with pytest.raises(StoreError, match=f"payload/{ids[0]} was changed, or belongs elsewhere"):
            queue.payload(ids[0])
        assert [claim.id for claim in queue.engine.claim("worker", 10, 60_000)] == [ids[1]]
        failed = queue.document(ids[0])
        assert failed.state == "failed"
        assert str(failed.reason).startswith(f"corrupt: what is stored as payload/{ids[0]} was changed")
        queue.engine.put_record("keys", "a", '"A"')
        queue.engine.put_record("keys", "b", '"B"')
        other = inner.record("keys", "b")
        assert other is not None
        inner.put_record("keys", "a", other.value)
        with pytest.raises(StoreError, match="record/keys/a was changed"):
            queue.engine.record("keys", "a")


def test_files_that_were_swapped_are_noticed(tmp_path: Path, use: Use) -> None:
    use(KEY)
    with Queue(f"sqlite:///{tmp_path}/queue.db") as queue:
        first, second = (queue.submit("acme", content=b"same bytes").id for _ in range(2))
        (one,), (other,) = (list(tmp_path.rglob(f"*/{id}/input")) for id in (first, second))
        one.write_bytes(other.read_bytes())
        with pytest.raises(BlobDamaged, match=first):
            queue.file(first)
        queue.file(second).close()


def test_a_repeated_submission_is_found_and_its_digest_cannot_be_guessed(url: str, use: Use) -> None:
    use(KEY)
    with Queue(url) as queue:
        receipt = queue.submit("acme", {"iban": WORD}, key="k")
        assert queue.submit("acme", {"iban": WORD}, key="k") == receipt._replace(repeated=True)
        with pytest.raises(KeyConflict):
            queue.submit("acme", {"iban": "other"}, key="k")
        (row,) = inner_engine(queue.engine).pack(json.dumps(["documents", None]), 10).documents
        assert row.digest is not None
        from fairlane.queue.validation import body_digest

        assert body_digest("default", json.dumps({"iban": WORD})) not in row.digest


def test_a_submission_of_before_is_found_when_encryption_begins_and_ends(tmp_path: Path, use: Use) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    receipts = {}
    for keys, name in (((), "plain"), ((KEY,), "encrypted"), (("none", KEY), "plain again")):
        use(*keys)
        with Queue(url) as queue:
            receipts[name] = queue.submit("acme", {"n": name}, key=name)
            for known, receipt in receipts.items():
                assert queue.submit("acme", {"n": known}, key=known).id == receipt.id
                with pytest.raises(KeyConflict):
                    queue.submit("acme", {"n": "wrong"}, key=known)
                assert queue.payload(receipt.id) == {"n": known}


def test_a_plain_file_that_begins_like_an_encrypted_one_is_a_plain_file(tmp_path: Path, use: Use) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    keyring = use(KEY)
    with Queue(url) as queue:
        id = queue.submit("acme", content=b"bytes").id
    (path,) = tmp_path.rglob(f"*/{id}/input")
    trick = path.read_bytes()
    for keys in ((), (KEY,)):
        keyring = use(*keys)
        with Queue(f"sqlite:///{tmp_path}/{len(keys)}.db") as queue:
            again = queue.submit("acme", content=trick).id
            with queue.file(again) as file:
                assert file.read() == trick
    use()
    with Queue(f"sqlite:///{tmp_path}/2.db") as queue:
        plain = queue.submit("acme", content=trick).id
    keyring = use(KEY)
    with Queue(f"sqlite:///{tmp_path}/2.db") as queue, queue.file(plain) as file:
        assert file.read() == trick
    assert keyring.first is not None


def test_a_key_file_can_be_named_by_the_program(tmp_path: Path, use: Use) -> None:
    use()
    path = tmp_path / "keys"
    path.write_text(KEY)
    path.chmod(0o600)
    url = f"sqlite:///{tmp_path}/queue.db"
    with Queue(url, encryption_key_file=str(path)) as queue:
        id = queue.submit("acme", {"n": 1}).id
        assert queue.payload(id) == {"n": 1}
    with pytest.raises(KeyMissing):
        Queue(url)
    with pytest.raises(BadValue, match="url"):
        Queue("nowhere://", encryption_key_file=str(path))
