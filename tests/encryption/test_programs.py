"""Everything that people do with a queue, with one that is encrypted: work, serve, back up, move, export, verify, forget."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from fairlane import Queue, Worker
from fairlane.backup import back_up, restore
from fairlane.core.errors import BlobDamaged
from fairlane.demo.formats import FORMATS
from fairlane.demo.texts import letter as make_letter
from fairlane.encryption import KeyMissing
from fairlane.encryption.files import HEAD_BYTES, FileCipher
from fairlane.encryption.keyring import KEYS_VARIABLE, new_key
from fairlane.queue.audit import Actor
from fairlane.reencrypt import reencrypt
from fairlane.sim.verify import verify
from fairlane.transfer import move
from fairlane.worker import Document
from tests.api.running import Server, until
from tests.cli.running import run, run_program
from tests.console.page_client import signed_in
from tests.engine.conftest import url_of
from tests.privacy.archive import Exported
from tests.privacy.everything import holding, stored
from tests.servers import redis
from tests.servers.s3 import BUCKET, s3_server
from tests.worker.conftest import Bench, yield_loop

from .conftest import Use
from .test_store import WORD, check_all, fill

KEY = new_key()


def plain_in(queue: Queue, folder: Path) -> list[str]:
    return holding({WORD}, stored(queue, folder))


@pytest.mark.parametrize("is_async", [False, True])
def test_handlers_read_files_and_keep_results(tmp_path: Path, use: Use, is_async: bool) -> None:
    use(KEY)
    url = f"sqlite:///{tmp_path}/queue.db"

    def handle(document: Document) -> dict[str, object]:
        with document.open() as file:
            text = file.read().decode()
        document.partial({"so far": text})
        if document.payload == "fail":
            raise ValueError(text)
        return {"title": text, **document.put_results(text=text.upper(), facts={"of": text})}

    async def handle_async(document: Document) -> dict[str, object]:
        await yield_loop()
        return handle(document)

    with Queue(url) as queue:
        done = queue.submit("acme", content=WORD.encode(), name=WORD).id
        failed = queue.submit("acme", "fail", content=WORD.encode()).id
        bench = Bench(url)
        worker: Worker = bench.worker(queue=queue if is_async else url)
        worker.handler("extract", attempts=2)(handle_async if is_async else handle)
        bench.run(worker)
        assert (queue.result(done)["title"], queue.text(done), queue.facts(done)) == (WORD, WORD.upper(), {"of": WORD})
        assert queue.document(failed).reason == f"attempt 2 of 2 failed: ValueError: {WORD}"
        assert [WORD in str(attempt.traceback) for attempt in queue.attempts(failed)] == [True, True]
        assert holding({WORD, WORD.upper()}, stored(queue, tmp_path)) == []


def test_the_built_in_worker_extracts_in_the_sandbox(tmp_path: Path, use: Use) -> None:
    use(KEY)
    url = f"sqlite:///{tmp_path}/queue.db"
    (tmp_path / "temporary").mkdir()
    with Queue(url) as queue:
        letter = replace(make_letter(Random(1), 1, 2), title=f"About {WORD}")
        ids = [queue.submit("acme", content=FORMATS[form](letter), name=f"{WORD}.{form}").id for form in ("pdf", "docx", "eml")]
        code, output, errors = run_program(
            "work", "--until-empty", "--json", "--url", url, environment={"TMPDIR": str(tmp_path / "temporary")}
        )
        assert code == 0, output + errors
        for id in ids:
            assert WORD in queue.text(id)
            assert queue.facts(id)["sha256"] == queue.input(id).sha256
        assert plain_in(queue, tmp_path) == []  # nothing is left in the worker's temporary folder either


def test_a_worker_without_the_key_says_so_and_touches_nothing(tmp_path: Path, use: Use) -> None:
    keyring = use(KEY)
    url = f"sqlite:///{tmp_path}/queue.db"
    with Queue(url) as queue:
        id = queue.submit("acme", content=b"bytes").id
        use()
        code, output, errors = run_program("work", "--until-empty", "--url", url)
        assert keyring.first is not None
        assert (code, output) == (3, "")
        assert f"this queue is encrypted with key {keyring.first.id}, which this program does not have" in errors
        row = queue.engine.document(id)
        assert row is not None
        assert (row.state, row.attempts, row.token) == ("ready", 0, 0)


def test_a_worker_without_the_key_of_a_file_lets_the_document_wait(tmp_path: Path, use: Use) -> None:
    """It began before encryption did, and claimed the document when that was plain."""
    use()
    url = f"sqlite:///{tmp_path}/queue.db"
    with Queue(url) as queue:
        id = queue.submit("acme", content=b"bytes").id
        keyring = use(KEY)
        assert keyring.first is not None
        (path,) = tmp_path.rglob(f"*/{id}/input")
        path.write_bytes(b"".join(FileCipher(keyring).encrypt(f"{id}/input", [path.read_bytes()])))
        use()

        def handle(document: Document) -> None:
            document.open().close()

        bench = Bench(url)
        worker = bench.worker(queue=url)
        worker.handler("extract", attempts=1)(handle)
        stop = bench.start(worker)
        until(lambda: queue.document(id).state == "delayed", "the postponed document")
        stop()
        assert queue.document(id).attempts == 0
        (postponed,) = (entry.reason for entry in queue.history(id) if entry.reason)
        assert postponed == f"this worker does not have encryption key {keyring.first.id}"


def test_the_service_takes_serves_and_logs_nothing_plain(tmp_path: Path, use: Use) -> None:
    use(KEY)
    server = Server(tmp_path, work=True, variables={KEYS_VARIABLE: KEY})
    try:
        with server.client(server.key("acme")) as client:
            name = {"Content-Type": "text/plain", "Idempotency-Key": "one"}
            sent = [
                client.post("/v1/documents", params={"name": f"{WORD}.txt"}, content=f"{WORD} text", headers=name)
                for _ in range(2)
            ]
            assert [answer.status_code for answer in sent] == [202, 202]
            (id,) = {answer.json()["id"] for answer in sent}  # the same key, the same document
            batch = client.post("/v1/batches", json={"documents": [{"payload": WORD}]}, headers={"Idempotency-Key": "b"})
            assert batch.status_code == 202
            until(lambda: client.get(f"/v1/documents/{id}").json()["state"] == "done", "the end of the document")
            assert WORD in client.get(f"/v1/documents/{id}/text").text
            assert client.get(f"/v1/documents/{id}/file").content == f"{WORD} text".encode()
            assert client.get(f"/v1/documents/{id}/thumbnail").content.startswith(b"\x89PNG")
            assert client.get(f"/v1/batches/{batch.json()['id']}").json()["counts"]
        with signed_in(server, server.operator) as page:
            shown = page.get(f"/page/documents/{batch.json()['documents'][0]['id']}/payload")
            assert WORD in shown.text
        with Queue(server.url) as queue:
            assert plain_in(queue, tmp_path) == []
    finally:
        server.close()


def test_a_backup_is_encrypted_and_needs_the_key(tmp_path: Path, use: Use) -> None:
    use(KEY)
    url = f"sqlite:///{tmp_path}/queue.db"
    with Queue(url) as queue:
        ids = fill(queue)
        for folder, check in (("linked", False), ("checked", True)):
            copied = back_up(url, tmp_path / folder, check=check, actor=Actor("cli", WORD, "host"))
            assert (copied.documents, copied.files, copied.lost) == (9, 11, 0)  # two of them are parts
        assert plain_in(queue, tmp_path) == []
        restored = f"sqlite:///{tmp_path}/restored.db"
        assert restore(tmp_path / "checked", restored).lost == 0
        with Queue(restored) as again:
            check_all(again, ids, is_restored=True)
        (path,) = (tmp_path / "linked").rglob(f"{ids['done']}/input")
        path.chmod(0o600)
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert restore(tmp_path / "linked", f"sqlite:///{tmp_path}/damaged.db").lost_documents == (ids["done"],)
        use()
        with pytest.raises(KeyMissing):
            restore(tmp_path / "checked", f"sqlite:///{tmp_path}/no.db")
        with pytest.raises(KeyMissing):
            back_up(url, tmp_path / "no")
        assert not (tmp_path / "no").exists()
        assert not (tmp_path / "no.db").exists()


@pytest.mark.parametrize("target", ["postgres", "redis"])
def test_a_queue_moves_without_its_key_and_stays_encrypted(tmp_path: Path, use: Use, target: str) -> None:
    use(KEY)
    source, to_url = f"sqlite:///{tmp_path}/queue.db", url_of(target, tmp_path)
    with Queue(source) as queue:
        ids = fill(queue)
        running = next(row for row in queue.documents(state="running"))
        queue.cancel(running.id)
    use()  # it copies what is there, as it is
    move(source, to_url, to_blobs=str(tmp_path / "moved"))
    with pytest.raises(KeyMissing):
        Queue(to_url)
    use(KEY)
    with Queue(to_url, blobs=str(tmp_path / "moved")) as queue:
        assert plain_in(queue, tmp_path) == []
        assert queue.text(ids["done"]) == WORD
        assert queue.document(ids["failed"]).reason == f"bad: {WORD}"
        assert queue.submit("acme", {"iban": WORD}, content=WORD.encode(), name=f"{WORD}.txt", key="done").id == ids["done"]
    redis.drop_url(to_url)


def test_export_verify_and_forget_work_as_without(url: str, use: Use, tmp_path: Path) -> None:
    use(KEY)
    with Queue(url, blobs=str(tmp_path / "blobs")) as queue:
        ids = fill(queue)
        assert verify(queue).differences == ()
        exported = queue.export("acme", tmp_path / "acme.tar")
        assert (exported.documents, exported.files, exported.missing) == (9, 11, 0)
        archive = Exported(tmp_path / "acme.tar")
        payloads = [row["payload"] for row in archive.rows("documents")]
        assert {payload if isinstance(payload, str) else payload["iban"] for payload in payloads} == {WORD}
        assert archive.members[f"files/{ids['done']}/text.md"].decode() == WORD
        assert f"bad: {WORD}" in {change["note"] for change in archive.rows("changes")}
        (tmp_path / "acme.tar").unlink()
        assert queue.forget("acme").documents == 9
        assert holding({"acme", *ids.values()}, stored(queue, tmp_path)) == []


def test_a_damaged_file_fails_its_document_and_says_why(tmp_path: Path, use: Use) -> None:
    use(KEY)
    url = f"sqlite:///{tmp_path}/queue.db"
    with Queue(url) as queue:
        id = queue.submit("acme", content=b"x" * 200_000).id
        (path,) = tmp_path.rglob(f"*/{id}/input")
        content = path.read_bytes()
        path.write_bytes(content[:70_000] + content[70_001:])
        with pytest.raises(BlobDamaged, match="bytes that its key does not open"):
            queue.file(id)
        code, _, errors = run_program("work", "--until-empty", "--json", "--url", url)
        assert code == 0, errors
        assert str(queue.document(id).reason).startswith("corrupt: the bytes of document")


def test_commands_say_what_is_missing(tmp_path: Path, use: Use) -> None:
    keyring = use(KEY)
    url = f"sqlite:///{tmp_path}/queue.db"
    with Queue(url) as queue:
        id = queue.submit("acme", {"n": 1}).id
    assert run("show", id, "--url", url).exit_code == 0
    use()
    assert keyring.first is not None
    result = run("show", id, "--url", url)
    assert (result.exit_code, keyring.first.id in result.stderr) == (3, True)
    result = run("doctor", "--url", url)
    assert (result.exit_code, keyring.first.id in result.stderr) == (3, True)
    result = run("show", id, "--url", url, FAIRLANE_ENCRYPTION_KEYS="nonsense")
    assert (result.exit_code, "encryption key 1 in FAIRLANE_ENCRYPTION_KEYS is not one" in result.stderr) == (2, True)


def test_files_on_s3_are_encrypted_also_in_parts(tmp_path: Path, use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        use(KEY)
        url, blobs = f"sqlite:///{tmp_path}/queue.db", f"s3://{BUCKET}/encrypted"
        content = (WORD.encode() + bytes(range(256))) * 90_000  # 23 MB: three parts
        with Queue(url, blobs=blobs) as queue:
            ids = [queue.submit("acme", content=each).id for each in (content, b"", b"small")]
        keyring = use(new_key(), KEY)
        done = reencrypt(url, blobs)
        assert (done.files, done.left, len(done.struck)) == (3, 0, 1)
        assert keyring.first is not None
        with Queue(url, blobs=blobs) as queue:
            files = queue.files.open()
            for id, expected in zip(ids, (content, b"", b"small"), strict=True):
                with queue.file(id) as file:
                    assert file.read() == expected
            for stored_file in files.list_files():
                with files.blobs.open(stored_file.key) as raw:
                    head = raw.read(HEAD_BYTES)
                    assert WORD.encode() not in raw.read()
                assert FileCipher(keyring).is_current(head)
            first = next(file for file in files.list_files() if file.document == ids[0])
            with files.blobs.open(first.key) as raw:
                files.blobs.put({first.key: [raw.read()[:-100_000]]})
            with pytest.raises(BlobDamaged):
                queue.file(ids[0])
