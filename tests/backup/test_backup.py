"""Backups of a queue in use: complete, with every file, and restored as a queue of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlane import Mistake, Queue, StoreError
from fairlane.backup import FILES_FOLDER, MANIFEST, QUEUE_FILE, Copied, back_up, restore
from fairlane.core.document import Claim, Done, Failed
from fairlane.core.errors import StoreBusy, StoreUnfit
from fairlane.queue.files import HOLD_MS, HOLDS
from fairlane.sim.verify import verify
from tests.engine.conftest import url_of
from tests.queue.conftest import age, bytes_of, done_with_results, stored_documents
from tests.servers.s3 import BUCKET, s3_server


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/queue.db"


@pytest.fixture
def queue(url: str) -> Iterator[Queue]:
    with Queue(url) as queue:
        yield queue


def restored(tmp_path: Path, name: str = "restored.db") -> Queue:
    """Restore the backup, and open what came out."""
    restore(tmp_path / "backup", f"sqlite:///{tmp_path}/{name}")
    return Queue(f"sqlite:///{tmp_path}/{name}", create=False)


def fill(queue: Queue) -> dict[str, bytes]:
    """Submit a document without a file, which is done and has a text, and several with a file; returns the latter."""
    plain = queue.submit("acme", {"n": 1}, key="payload").id
    assert done_with_results(queue, text="text") == plain
    return {queue.submit(f"customer {n % 3}", content=b"file %d" % n, key=f"k{n}").id: b"file %d" % n for n in range(10)}


# -- what is in it ---------------------------------------------------------------------------------------------------


def test_everything_is_in_it_and_comes_back(queue: Queue, url: str, tmp_path: Path) -> None:
    files = fill(queue)
    queue.tune("acme", weight=2, cap=5)
    queue.configure(reset_interval=60)
    queue.engine.put_record("mine", "key", '"value"')
    first = queue.submit("acme", content=b"with results").id
    while done_with_results(queue, text="text", facts={"pages": 1}, thumbnail=b"png") != first:
        pass
    copied = back_up(url, tmp_path / "backup")
    assert (copied.documents, copied.lost, copied.erased) == (len(list(queue.documents())), 0, 0)
    assert copied.files == copied.links == sum(1 for _ in queue.files.open().list_files())
    with restored(tmp_path) as again:
        states = [(document.id, document.state) for document in queue.documents()]
        assert [(document.id, document.state) for document in again.documents()] == states
        assert [bytes_of(again, id) for id in files] == list(files.values())
        assert (again.text(first), again.facts(first), again.thumbnail(first)) == ("text", {"pages": 1}, b"png")
        assert (again.terms("acme"), again.rules()) == (queue.terms("acme"), queue.rules())
        assert again.engine.record("mine", "key") is not None
        assert again.submit("acme", {"n": 1}, key="payload").repeated
        assert again.look("acme").counter == queue.look("acme").counter
        assert verify(again).differences == ()
        assert again.sweep(grace=0).removed == 0


def test_the_two_queues_do_not_share_files(queue: Queue, url: str, tmp_path: Path) -> None:
    files = fill(queue)
    back_up(url, tmp_path / "backup")
    restore(tmp_path / "backup", f"sqlite:///{tmp_path}/other.db", queue.files.location)
    with Queue(f"sqlite:///{tmp_path}/other.db", blobs=queue.files.location) as other:
        queue.engine.cancel(list(files))
        queue.purge(0)
        queue.sweep(grace=0)
        assert [bytes_of(other, id) for id in files] == list(files.values())
        other.engine.cancel(list(files))
        assert other.purge(0) == len(files) + 1
        assert stored_documents(other) == []


def test_what_is_written_is_for_its_owner_only(queue: Queue, url: str, tmp_path: Path) -> None:
    fill(queue)
    before = os.umask(0)
    try:
        back_up(url, tmp_path / "backup")
        restore(tmp_path / "backup", f"sqlite:///{tmp_path}/restored.db")
    finally:
        os.umask(before)
    for top in (tmp_path / "backup", tmp_path / "restored.db", tmp_path / "restored.db.blobs"):
        for path in (top, *top.rglob("*")):
            assert path.stat().st_mode & 0o077 == 0, path


def test_files_on_s3_are_copied_and_checked(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        where = f"s3://{BUCKET}/backup"
        with Queue(url, blobs=where) as queue:
            id, damaged = queue.submit("acme", content=b"one").id, queue.submit("acme", content=b"two").id
            (key,) = (file.key for file in queue.files.open().list_files() if file.document == damaged)
            queue.files.open().blobs.put({key: [b"2wo"]})
            copied = back_up(url, tmp_path / "backup", where)
        assert (copied.files, copied.links, copied.lost_documents) == (1, 0, (damaged,))
        restore(tmp_path / "backup", f"sqlite:///{tmp_path}/restored.db", f"s3://{BUCKET}/elsewhere")
        with Queue(f"sqlite:///{tmp_path}/restored.db", blobs=f"s3://{BUCKET}/elsewhere") as again:
            assert bytes_of(again, id) == b"one"


# -- while it is in use ----------------------------------------------------------------------------------------------


def test_under_steady_submissions_everything_acknowledged_before_is_in_it(queue: Queue, url: str, tmp_path: Path) -> None:
    acknowledged: dict[str, bytes | None] = {}
    is_over, has_begun = threading.Event(), threading.Event()

    def submit(worker: int) -> None:
        number = 0
        with Queue(url) as own:
            while not is_over.is_set():
                number += 1
                content = b"%d of %d" % (number, worker)
                acknowledged[own.submit(f"customer {worker}", content=content).id] = content
                acknowledged[own.submit(f"customer {worker}", {"n": number}).id] = None
                if len(acknowledged) > 300:
                    has_begun.set()

    def work() -> None:
        with Queue(url) as own:
            while not is_over.is_set():
                own.engine.settle([(claim, Done()) for claim in own.engine.claim("w", 5, 60_000)])

    threads = [threading.Thread(target=submit, args=(n,)) for n in range(3)] + [threading.Thread(target=work)]
    for thread in threads:
        thread.start()
    try:
        assert has_begun.wait(60)
        before, during = dict(acknowledged), len(acknowledged)
        copied = back_up(url, tmp_path / "backup")
        assert len(acknowledged) > during  # nobody waited for the backup
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert copied.lost == 0
    with restored(tmp_path) as again:
        kept = {document.id for document in again.documents()}
        assert before.keys() <= kept <= acknowledged.keys()
        with_file = [id for id in kept if acknowledged[id] is not None]
        assert [bytes_of(again, id) for id in with_file] == [acknowledged[id] for id in with_file]
        assert verify(again).differences == ()


def test_a_copy_in_several_steps_is_the_queue_when_it_began(queue: Queue, url: str, tmp_path: Path) -> None:
    before = {receipt.id for receipt in queue.submit_many("acme", ["x" * 200_000 for _ in range(40)])}
    steps: list[tuple[int, int]] = []

    def submit_at_each_step(what: str, done: int, total: int) -> None:
        if what == "queue":
            steps.append((done, total))
            assert len(steps) < 100  # it does not begin again at every commit of others
            queue.submit("late", {"n": done})

    back_up(url, tmp_path / "backup", None, submit_at_each_step)
    assert len(steps) > 1
    with restored(tmp_path) as again:
        assert {document.id for document in again.documents()} == before


def during_the_copy(act: Callable[[], object]) -> Callable[[str, int, int], None]:
    """Act once, when the queue was copied and its files were not yet."""
    is_done: list[bool] = []

    def on_progress(what: str, done: int, total: int) -> None:
        if what == "queue" and done == total and not is_done:
            is_done.append(True)
            act()

    return on_progress


def test_what_is_purged_meanwhile_keeps_its_files_until_the_backup_has_them(queue: Queue, url: str, tmp_path: Path) -> None:
    files = fill(queue)
    in_use = f"sqlite:///{tmp_path}/queue.db"

    def purge() -> None:
        with Queue(in_use) as other:
            other.engine.cancel(list(files))
            assert other.purge(0) == len(files) + 1
            age(tmp_path / "queue.db.blobs")
            with pytest.raises(StoreBusy, match="a backup of this queue is under way"):
                other.sweep()

    assert back_up(url, tmp_path / "backup", None, during_the_copy(purge)).lost == 0
    with restored(tmp_path) as again:
        assert [bytes_of(again, id) for id in files] == list(files.values())
    assert queue.sweep(grace=0).removed == len(files) + 1  # what the purge had to leave
    queue.cancel(queue.submit("acme", content=b"new").id)
    queue.purge(0)
    assert stored_documents(queue) == []  # files go with their documents again


def test_a_customer_that_is_forgotten_meanwhile_is_erased_at_once(queue: Queue, url: str, tmp_path: Path) -> None:
    kept, erased = queue.submit("acme", content=b"kept").id, queue.submit("gone", content=b"secret").id
    copied = back_up(url, tmp_path / "backup", None, during_the_copy(lambda: queue.forget("gone")))
    assert stored_documents(queue) == [kept]
    assert (copied.files, copied.lost, copied.erased) == (1, 0, 1)
    assert not list((tmp_path / "backup").rglob(f"*/{erased}/*"))


# -- when something goes wrong ---------------------------------------------------------------------------------------


def test_a_backup_that_is_killed_harms_nothing_and_is_not_restored(queue: Queue, url: str, tmp_path: Path) -> None:
    files = fill(queue)
    script = (
        "import os, signal, sys; from pathlib import Path; from fairlane.backup import back_up\n"
        "def die(what, done, total):\n    what == sys.argv[3] and os.kill(os.getpid(), signal.SIGKILL)\n"
        "back_up(sys.argv[1], Path(sys.argv[2]), None, die)"
    )
    for what in ("queue", "documents"):
        ran = subprocess.run([sys.executable, "-c", script, url, str(tmp_path / what), what], check=False)
        assert ran.returncode == -signal.SIGKILL
        with pytest.raises(Mistake, match=r"has no manifest.json; it is a backup that was interrupted"):
            restore(tmp_path / what, f"sqlite:///{tmp_path}/restored.db")
        with pytest.raises(Mistake, match="exists; name a new folder; if it is a backup that was interrupted, remove it"):
            back_up(url, tmp_path / what)
    assert [bytes_of(queue, id) for id in files] == list(files.values())
    assert back_up(url, tmp_path / "backup").lost == 0  # the next one does not mind
    holds = queue.engine.records(HOLDS, "", 10)
    assert len(holds) == 2
    for hold in holds:  # as if the time had passed
        assert 0 < json.loads(hold.value) - queue.engine.now() <= HOLD_MS
        queue.engine.put_record(HOLDS, hold.key, "1")
    queue.engine.cancel(list(files))
    queue.purge(0)
    assert stored_documents(queue) == []


def test_a_disk_without_room_leaves_no_half_backup(queue: Queue, url: str, tmp_path: Path) -> None:
    fill(queue)
    script = (
        "import resource, sys, signal; from pathlib import Path; from fairlane.backup import back_up\n"
        "from fairlane.core.errors import StoreError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "def tight(what, done, total): resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "try: back_up(sys.argv[1], Path(sys.argv[2]), None, tight)\n"
        "except StoreError as error: sys.exit(f'said: {error}')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, url, str(tmp_path / "backup")], check=False, capture_output=True, text=True
    )
    assert ran.stderr.startswith("said: "), ran.stderr
    assert not (tmp_path / "backup").exists()
    assert queue.submit("acme", {"still": "here"}).id


def test_a_restore_overwrites_nothing(queue: Queue, url: str, tmp_path: Path) -> None:
    fill(queue)
    back_up(url, tmp_path / "backup")
    with pytest.raises(Mistake, match=r"queue.db exists; a restore overwrites nothing"):
        restore(tmp_path / "backup", url)
    (tmp_path / "new.db-wal").write_bytes(b"of another file")
    with pytest.raises(Mistake, match=r"new.db-wal exists"):
        restore(tmp_path / "backup", f"sqlite:///{tmp_path}/new.db")
    with pytest.raises(Mistake, match=r"has no manifest.json; it is no backup"):
        restore(tmp_path / "queue.db.blobs", f"sqlite:///{tmp_path}/newer.db")


def test_a_damaged_backup_is_recognised(queue: Queue, url: str, tmp_path: Path) -> None:
    files = fill(queue)
    back_up(url, tmp_path / "backup")
    stored = sorted((tmp_path / "backup" / FILES_FOLDER).rglob("input"))
    content = stored[0].read_bytes()
    stored[0].unlink()  # it is a hard link: writing into it would damage the original too
    stored[0].write_bytes(content[:-1] + b"x")
    stored[1].unlink()
    copied = restore(tmp_path / "backup", f"sqlite:///{tmp_path}/restored.db")
    assert (copied.files, copied.lost) == (len(files) + 1 - 2, 2)
    assert set(copied.lost_documents) == {path.parent.name for path in stored[:2]}
    copy = tmp_path / "backup" / QUEUE_FILE
    copy.write_bytes(copy.read_bytes()[:-1] + b"x")
    with pytest.raises(StoreUnfit, match="is damaged: it is not what was backed up"):
        restore(tmp_path / "backup", f"sqlite:///{tmp_path}/another.db")
    assert not list(tmp_path.glob("another.db*"))
    (tmp_path / "backup" / MANIFEST).write_text('{"fairlane_backup": 99}')
    with pytest.raises(StoreUnfit, match="is not a backup that this version of Fairlane knows"):
        restore(tmp_path / "backup", f"sqlite:///{tmp_path}/another.db")


def test_files_that_are_missing_in_the_queue_are_reported(queue: Queue, url: str, tmp_path: Path) -> None:
    missing, damaged = queue.submit("acme", content=b"one").id, queue.submit("acme", content=b"two").id
    for path in (tmp_path / "queue.db.blobs").rglob("input"):
        if path.parent.name == missing:
            path.unlink()
        else:
            path.write_bytes(b"2wo")
    assert back_up(url, tmp_path / "quick").lost_documents == (missing,)
    assert back_up(url, tmp_path / "checked", check=True).lost_documents == (damaged, missing)


def test_a_restore_that_was_killed_is_simply_run_again(queue: Queue, url: str, tmp_path: Path) -> None:
    files = fill(queue)
    back_up(url, tmp_path / "backup")
    script = (
        "import os, signal, sys; from pathlib import Path; from fairlane.backup import restore\n"
        "restore(Path(sys.argv[1]), sys.argv[2], None, lambda *_: os.kill(os.getpid(), signal.SIGKILL))"
    )
    target = f"sqlite:///{tmp_path}/restored.db"
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path / "backup"), target], check=False).returncode < 0
    assert not (tmp_path / "restored.db").exists()
    with restored(tmp_path) as again:
        assert [bytes_of(again, id) for id in files] == list(files.values())
        assert len(list((tmp_path / "restored.db.blobs").iterdir())) == 1
    assert sorted(os.listdir(tmp_path)) == sorted(
        {"backup", "queue.db", "queue.db-shm", "queue.db-wal", "queue.db.blobs", "restored.db", "restored.db.blobs"}
    )


# -- a queue of its own ----------------------------------------------------------------------------------------------


def test_workers_of_the_original_cannot_change_what_was_restored(queue: Queue, url: str, tmp_path: Path) -> None:
    running, waiting, failed = (queue.submit("acme", {"n": n}).id for n in range(3))

    def claim(of: Queue, id: str) -> Claim:
        (claimed,) = of.engine.claim("w", 1, 60_000)
        assert claimed.id == id
        return claimed

    old = claim(queue, running)
    queue.cancel(waiting)
    queue.engine.settle([(claim(queue, failed), Failed("no"))])
    waiting = queue.submit("acme", {"n": 3}).id
    back_up(url, tmp_path / "backup")
    claimed_later = claim(queue, waiting)  # in the original, after the backup
    queue.retry(failed)
    retried_later = claim(queue, failed)
    last_change = max(change.number for change in queue.changes())
    with restored(tmp_path) as again:
        stale = [old, claimed_later, retried_later]
        assert again.engine.extend(stale, 60_000) == stale
        again.retry(failed)
        own = [claim(again, failed), claim(again, waiting)]
        assert again.engine.settle([(claim, Done('"old"')) for claim in stale]) == stale
        assert again.engine.settle([(claim, Done('"new"')) for claim in own]) == []
        assert (again.result(waiting), again.result(failed)) == ("new", "new")
        assert again.document(running).state == "running"
        assert again.engine.reclaim(10, now_ms=again.engine.now() + 61_000) == 1  # its lease ends as it would have
        assert min(change.number for change in again.changes(last_change)) > last_change  # a follower misses nothing
        assert len(list(again.changes(last_change))) == 6


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("memory://", "a queue in memory ends with its process"),
        ("postgresql://app@db.example/app", r"first pg_dump --format=custom .* fairlane backup .* --files-only"),
        ("redis://cache.example", r"first redis-cli -u SERVER-URL --rdb .* fairlane backup .* --files-only"),
    ],
)
def test_what_a_server_keeps_is_left_to_the_server(url: str, advice: str, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=advice):
        back_up(url, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_files_of_a_queue_on_a_server_are_copied_after_its_dump(tmp_path: Path) -> None:
    url = url_of("postgres", tmp_path)
    with Queue(url, blobs=str(tmp_path / "blobs")) as queue:
        with pytest.raises(Mistake, match="this queue has no files"):
            back_up(url, tmp_path / "backup", str(tmp_path / "blobs"), files_only=True)
        ids = [queue.submit("acme", content=b"%d" % n).id for n in range(5)]
        assert back_up(url, tmp_path / "backup", str(tmp_path / "blobs"), files_only=True).files == 5
        shutil.rmtree(tmp_path / "blobs")
        last = queue.submit("acme", content=b"last").id
        assert restore(tmp_path / "backup", url, str(tmp_path / "blobs")).files == 5
        assert restore(tmp_path / "backup", url, str(tmp_path / "blobs")).files == 0  # what is there stays
        assert [bytes_of(queue, id) for id in [*ids, last]] == [b"0", b"1", b"2", b"3", b"4", b"last"]
    with Queue(f"sqlite:///{tmp_path}/queue.db") as another:
        another.submit("acme", content=b"one")
    with pytest.raises(Mistake, match="these files belong to another queue"):
        restore(tmp_path / "backup", f"sqlite:///{tmp_path}/queue.db")
    with pytest.raises(Mistake, match="--files-only is for queues that a server keeps"):
        back_up(f"sqlite:///{tmp_path}/queue.db", tmp_path / "other", files_only=True)


def test_a_folder_that_cannot_be_made_is_a_clear_error(queue: Queue, url: str, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="there is no folder"):
        back_up(url, tmp_path / "nowhere" / "backup")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="the backup cannot be written to"):
        back_up(url, tmp_path / "file" / "backup")
    assert isinstance(back_up(url, tmp_path / "backup"), Copied)
