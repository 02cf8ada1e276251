"""A queue moves to another store: nothing is lost or doubled, whenever the move is killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.core.document import Done, Retried
from fairlane.core.errors import Mistake, StoreFrozen, Unknown
from fairlane.engine import Engine
from fairlane.engine.protocol import Packed
from fairlane.queue.files import default_location
from fairlane.transfer import TransferProgress, move, stop
from tests.engine.conftest import url_of
from tests.servers import redis

ZERO = timedelta()


@pytest.fixture
def source(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/old.db"


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/new.db"


def fill(url: str, documents: int) -> None:
    """Fill a queue with documents in every state, customers with terms, keys, results and records."""
    dice = random.Random(documents)
    with Queue(url) as queue:
        for number in range(documents):
            customer = dice.choice(("ada", "bob", "żółw", "whale", "whale"))
            key = f"key-{number}" if number % 3 else None
            queue.submit(
                customer, {"n": number}, key=key, kind=dice.choice(("scan", "extract")), delay=dice.choice((0, 0, 900))
            )
        for claim in queue.engine.claim("worker", documents // 4, 60_000):
            queue.engine.settle([(claim, dice.choice((Done('{"pages":1}'), Retried(5000, "later"))))])
        queue.tune("bob", weight=2, cap=3)
        queue.pause("ada")
        queue.configure(reset="sliding")
        queue.engine.put_record("group", "key", '"value"')


def contents(engine: Engine) -> list[Packed]:
    """Return everything in a queue, without what a move itself changes: frozen rules, counts of changes and records."""
    pages: list[Packed] = []
    mark: str | None = None
    while True:
        page = engine.pack(mark, 500)
        mark = page.cursor
        if page.queue is not None:
            rules = page.queue.rules
            page = page._replace(
                queue=page.queue._replace(rules=type(rules)(rules.policy, rules.dispatch), last_change=0, last_record=0)
            )
        pages.append(page)
        if mark is None:
            return pages


def contents_of(url: str) -> list[Packed]:
    with Queue(url) as queue:
        return contents(queue.engine)


def test_the_target_equals_the_source(source: str, target: str) -> None:
    fill(source, 700)
    before = contents_of(source)
    moved = move(source, target)
    assert moved.documents == 700
    assert moved.customers == 4
    assert contents_of(target) == before
    with Queue(source) as old, Queue(target) as new:
        assert [look._replace(resets_in=ZERO, oldest_wait=ZERO) for look in old.customers(now=0)] == [
            look._replace(resets_in=ZERO, oldest_wait=ZERO) for look in new.customers(now=0)
        ]


def test_a_moved_queue_goes_on_where_it_stood(source: str, target: str) -> None:
    with Queue(source) as queue:
        queue.submit_many("whale", [{"n": number} for number in range(30)], now=1000)
        first = queue.submit("ada", {"n": 1}, key="once", now=1000)
    move(source, target)
    with Queue(target) as queue:
        assert queue.submit("ada", {"n": 1}, key="once", now=1001) == first._replace(repeated=True)
        assert queue.submit("whale", now=1001).counter == -30
        assert queue.engine.claim("worker", 1, 1000)[0].customer == "whale"  # number 1 is still the first of priority 1


def test_the_source_says_where_it_is_going_and_where_it_went(source: str, target: str) -> None:
    fill(source, 20)
    seen: list[str] = []

    def on_progress(progress: TransferProgress) -> None:
        with Queue(source) as queue, pytest.raises(StoreFrozen) as refused:
            queue.submit("ada")
        seen.append(str(refused.value))

    move(source, target, on_progress)
    assert f"is being moved to {target}" in seen[0]
    with Queue(source) as queue:
        with pytest.raises(StoreFrozen, match=r"was moved to .*new.db: use that one; nothing was changed"):
            queue.check("ada")
        with pytest.raises(StoreFrozen):
            queue.engine.claim("worker", 1, 1000)
        assert queue.look("whale").waiting  # looking is still allowed


def test_nothing_leaves_while_a_worker_holds_it(source: str, target: str) -> None:
    with Queue(source) as queue:
        queue.submit_many("ada", [1, 2])
        claims = queue.engine.claim("worker", 2, 60_000)
        running: list[int] = []

        def on_progress(progress: TransferProgress) -> None:
            running.append(progress.running)
            if progress.phase == "waiting" and claims:
                assert queue.engine.extend(claims, 90_000) == []  # what runs may go on, and end
                assert queue.engine.settle([(claims.pop(), Done("1"))]) == []

        move(source, target, on_progress)
    assert running[:2] == [2, 1]
    with Queue(target) as queue:
        assert queue.look("ada").done == 2


def test_a_move_that_is_killed_is_finished_by_the_next_one(source: str, target: str, tmp_path: Path) -> None:
    fill(source, 1200)
    before = contents_of(source)
    program = (
        "import os, sys, signal\n"
        "from fairlane import transfer\n"
        "left = int(sys.argv[3])\n"
        "def dying(engine, name):\n"
        "    original = getattr(engine, name)\n"
        "    def verb(*args, **kwargs):\n"
        "        global left\n"
        "        left -= 1\n"
        "        if left == 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return original(*args, **kwargs)\n"
        "    setattr(engine, name, verb)\n"
        "original = transfer.open_engine\n"
        "def open_engine(*args, **kwargs):\n"
        "    engine = original(*args, **kwargs)\n"
        "    for name in ('configure', 'put_record', 'unpack'): dying(engine, name)\n"
        "    return engine\n"
        "transfer.open_engine = open_engine\n"
        "transfer.move(sys.argv[1], sys.argv[2])\n"
    )
    killed = 0
    for calls in (*range(1, 8), *(3, 4, 5) * 10):
        ended = subprocess.run([sys.executable, "-c", program, source, target, str(calls)], capture_output=True, check=False)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
        killed += 1
    assert killed >= 10
    assert contents_of(target) == before
    with Queue(target) as queue:
        assert queue.rules().frozen is None
        assert queue.engine.record("fairlane", "move") is None


def test_a_target_that_holds_something_is_refused(source: str, target: str) -> None:
    fill(source, 5)
    fill(target, 5)
    with pytest.raises(Mistake, match="already holds a queue"):
        move(source, target)
    with Queue(source) as queue:
        queue.check("bob")  # and the source is not frozen


def test_a_target_that_is_being_filled_from_elsewhere_is_refused(source: str, target: str, tmp_path: Path) -> None:
    fill(source, 5)
    with Queue(target) as queue:
        queue.engine.put_record("fairlane", "move", '{"from":"sqlite:///other.db","mark":null,"is_over":false}')
    with pytest.raises(Mistake, match=r"is being filled from sqlite:///other\.db"):
        move(source, target)


def test_a_queue_is_moved_once(source: str, target: str, tmp_path: Path) -> None:
    fill(source, 5)
    move(source, target)
    with pytest.raises(Mistake, match="it was moved to"):
        move(source, f"sqlite:///{tmp_path}/third.db")
    with pytest.raises(Mistake, match="it was moved to"):
        move(source, target)


def test_a_move_can_be_stopped_before_it_is_over(source: str, target: str) -> None:
    fill(source, 5)
    with pytest.raises(Mistake, match="is not being moved"):
        stop(source)

    def interrupted(progress: TransferProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        move(source, target, interrupted)
    stop(source)
    with Queue(source) as queue:
        assert queue.submit("bob").priority == 1


def test_a_queue_that_is_not_there_cannot_be_moved(source: str, target: str) -> None:
    with pytest.raises(Unknown):
        move(source, target)
    assert not os.path.exists(target.removeprefix("sqlite:///"))


def test_a_queue_cannot_be_moved_to_itself(source: str) -> None:
    with pytest.raises(Mistake, match="itself"):
        move(source, source)


def submit_files(url: str, number: int, blobs: str | None = None) -> dict[str, bytes]:
    """Submit so many files; return their contents by document id."""
    contents = {f"document {n}": f"content {n}".encode() * n for n in range(1, number + 1)}
    with Queue(url, blobs=blobs) as queue:
        return {queue.submit("ada", content=content, name=name).id: content for name, content in contents.items()}


def read_files(url: str, ids: dict[str, bytes], blobs: str | None = None) -> dict[str, bytes]:
    with Queue(url, blobs=blobs) as queue, ExitStack() as opened:
        return {id: opened.enter_context(queue.file(id)).read() for id in ids}


def test_files_go_to_where_the_target_looks_for_them_and_stay_where_they_were(source: str, target: str) -> None:
    contents = submit_files(source, 5)
    seen: list[TransferProgress] = []
    assert move(source, target, seen.append).files == 5
    assert seen[-1] == TransferProgress("files", 0, 5, 5)
    assert read_files(target, contents) == contents
    assert read_files(source, contents) == contents


def test_files_that_are_already_there_are_not_copied_again(source: str, target: str, tmp_path: Path) -> None:
    contents = submit_files(source, 5)
    shutil.copytree(str(default_location(source)), str(default_location(target)))
    lost, cut = sorted(Path(str(default_location(target))).rglob("input"))[1:3]
    lost.unlink()
    cut.write_bytes(b"x")
    assert move(source, target).files == 2
    assert read_files(target, contents) == contents
    other = f"sqlite:///{tmp_path}/third.db"
    assert move(target, other, to_blobs=default_location(target)).files == 0
    assert read_files(other, contents, default_location(target)) == contents


def test_a_queue_with_files_says_where_they_go_before_anything_is_frozen(source: str, tmp_path: Path) -> None:
    location = str(tmp_path / "files")
    contents = submit_files(source, 1, location)
    nowhere = f"sqlite:///{tmp_path}/new.db"
    with pytest.raises(Mistake, match=r"say where they shall be: --to-blobs"):
        move(source, "memory://", from_blobs=location)
    server = url_of("redis", tmp_path)
    submit_files(server, 1, location)
    with pytest.raises(Mistake, match=r"say where they are: --from-blobs"):
        move(server, nowhere)
    for url in (source, server):
        with Queue(url) as queue:
            assert queue.rules().frozen is None
    redis.drop_url(server)
    assert move(source, nowhere, from_blobs=location, to_blobs=location).files == 0
    assert read_files(nowhere, contents, location) == contents
