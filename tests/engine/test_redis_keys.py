"""The keys of a queue: one hash slot, no trace of a forgotten customer, and nothing that grows for ever."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Policy, Queue
from fairlane.core.document import Done, Failed, Outcome, Released, Retried, Submission
from fairlane.core.policy import Rules, Terms
from fairlane.engine import Engine, open_engine
from fairlane.engine.protocol import DocumentFilter, Packed
from fairlane.engine.redis import engine as engine_module
from fairlane.engine.redis import scripts
from fairlane.engine.redis.connection import RedisPool
from fairlane.engine.redis.url import parse_url
from fairlane.engine.walk import walk_documents
from tests.servers import redis
from tests.servers.redis import Server, fresh_queue

MAP = (Path(scripts.__file__).parent / "lua" / "README.md").read_text(encoding="utf-8")
PROCESSES, EACH = 8, 500
PIECE = 100_000  # so many documents stand in one hash
PRODUCER = """
import sys
from fairlane import Queue
with Queue(sys.argv[1]) as queue:
    for number in range(int(sys.argv[2])):
        print(queue.submit("acme", number).counter)
"""

EMPTY_LINES = """
local count = 0
for _, text in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  count = count + (text == '' and 1 or 0)
end
return count
"""


class KeyedQueue:
    """A queue whose keys a test can read."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.name = fresh_queue()
        self.url = server.url(self.name)
        self.engine: Engine = open_engine(self.url)

    def key_names(self) -> set[str]:
        with self.server.client() as client:
            keys = client.keys("*" + self.name + "*")
        return {key.removeprefix("{fairlane:" + self.name + "}:") for key in keys}

    def holds(self, text: str) -> list[str]:
        """The keys whose name or value holds a text."""
        with self.server.client() as client:
            names = client.keys("{fairlane:" + self.name + "}:*")
            connection = client.connection_pool.get_connection()
            holding = [name for name in names if text in name]
            for name in names:
                connection.send_command("DUMP", name)
                if text.encode() in connection.read_response(disable_decoding=True):
                    holding.append(name)
        return holding


@pytest.fixture(params=redis.PRODUCTS)
def keyed(request: pytest.FixtureRequest) -> Iterator[KeyedQueue]:
    keyed = KeyedQueue(redis.shared(request.param))
    yield keyed
    keyed.engine.close()
    redis.drop(keyed.server, keyed.name)


def use_everything(engine: Engine, customer: str, at: int = 0) -> None:
    """Documents in every state, terms, checks, keys, results, lines of the feed."""
    engine.tune(customer, Terms(weight=2), 0, now_ms=at)
    engine.check(customer, 1000, now_ms=at)
    batch = [
        Submission(f"{customer}-{n}", customer, ("extract", "scan")[n % 2], f'"{customer}"', key=f"k{n}") for n in range(40)
    ]
    engine.submit(batch, now_ms=at)
    engine.submit([Submission(f"{customer}-late", customer, "extract", "{}", delay_ms=10**6)], now_ms=at)
    claims = engine.claim(f"worker of {customer}", 9, 1000, now_ms=at)
    outcomes: list[Outcome] = [
        Done(f'"{customer}"'),
        Failed(f"{customer} is corrupt"),
        Retried(0, customer),
        Retried(10**6, customer),
        Released(),
    ]
    engine.settle(list(zip(claims, outcomes, strict=False)), now_ms=at)
    engine.cancel([claims[-1].id, f"{customer}-39"], now_ms=at)


def end_everything(engine: Engine) -> None:
    """Whatever waits or runs is cancelled, and purged with the feed."""
    for document in walk_documents(engine):
        engine.cancel([document.id], now_ms=0)
    while any(engine.purge(0, 100, now_ms=10**9)):
        pass


def test_all_keys_of_a_queue_share_one_hash_slot_and_are_on_the_map(keyed: KeyedQueue) -> None:
    use_everything(keyed.engine, "ada")
    keyed.engine.put_record("settings", "a", "1")
    keyed.engine.configure(Rules(), now_ms=0)
    keyed.engine.forget("nobody", 5)
    with keyed.server.client() as client:
        names = client.keys("*" + keyed.name + "*")
    assert len(names) > 20
    assert {re.match(r"\{([^}]*)\}:", name)[1] for name in names} == {f"fairlane:{keyed.name}"}  # type: ignore[index]
    for key in keyed.key_names():
        assert f"`{re.split(':', key)[0]}" in MAP, f"{key} is not on the map of keys"


def all_reads(engine: Engine) -> list[object]:
    """Every document of a queue, one by one and in pages, with its body, and the feed."""
    documents = list(walk_documents(engine))
    ids = [document.id for document in documents]
    return [
        *documents, *map(engine.document, ids), *map(engine.body, ids), *(engine.outlook(id, now_ms=9) for id in ids),
        *(list(walk_documents(engine, DocumentFilter(customer=customer))) for customer in ("ada-the-first", "bob")),
        *engine.changes(None, 1000),
    ]  # fmt: skip


def begin_after(engine: Engine, number: int) -> None:
    """The next document gets the next number."""
    packed = engine.pack(None, 1)
    assert packed.queue is not None
    engine.unpack(packed._replace(queue=packed.queue._replace(last_number=number)))


def all_packed(engine: Engine, limit: int) -> list[Packed]:
    """All that a queue holds, some rows at a time."""
    packed = [engine.pack(None, limit)]
    while packed[-1].cursor is not None:
        packed.append(engine.pack(packed[-1].cursor, limit))
    return packed


def test_documents_on_both_sides_of_a_seam_are_as_in_memory(keyed: KeyedQueue) -> None:
    """They stand in pieces; verbs that meet documents of two pieces at once must do as the memory engine does."""
    judge, moved = open_engine("memory://"), KeyedQueue(keyed.server)
    replies: list[list[object]] = []
    for engine in (judge, keyed.engine):
        begin_after(engine, PIECE - 20)
        use_everything(engine, "ada-the-first")  # all her ids are in one piece
        use_everything(engine, "bob", 1)
        alone = [engine.submit([Submission(f"one-{n}", "bob", "extract", f"{n}")], now_ms=2)[0] for n in range(3)]
        claims = engine.claim("w", 30, 1000, now_ms=3)
        lost = engine.extend(claims, 2000, now_ms=4), engine.settle([(claim, Done("1")) for claim in claims[:20]], now_ms=5)
        replies.append([alone, claims, lost, *all_reads(engine)])
        again = engine.submit([Submission(f"x-{n}", "bob", "scan", '"bob"', key=f"k{n}") for n in range(40)], now_ms=6)
        replies[-1] += [again, engine.reclaim(100, now_ms=10_000), engine.purge(0, 15, now_ms=10_001), *all_reads(engine)]
    assert replies[0] == replies[1]
    assert {key for key in keyed.key_names() if key.startswith(("documents:", "payloads:", "results:"))} == {
        f"{name}:{piece:011d}" for name in ("documents", "payloads", "results") for piece in (0, 1)
    }
    for packed in all_packed(keyed.engine, 7):
        moved.engine.unpack(packed)
    assert all_packed(moved.engine, 1000) == all_packed(judge, 1000)
    for queue in (keyed, moved):
        while queue.engine.forget("ada-the-first", 7, now_ms=10_002):
            pass
        end_everything(queue.engine)
        assert not [key for key in queue.key_names() if key.startswith(("documents:", "payloads:", "results:", "ids:"))]
    judge.close()
    moved.engine.close()
    redis.drop(moved.server, moved.name)


def test_every_key_that_scripts_name_is_on_the_map() -> None:
    text = scripts.assemble("") + "".join(map(scripts.read_file, scripts.verbs()))
    for name in {name.rstrip(":") for name in re.findall(r"prefix \.\. '([a-z-]+:?)'", text)}:
        assert f"`{name}" in MAP, name


def test_nothing_names_a_customer_that_was_forgotten(keyed: KeyedQueue) -> None:
    use_everything(keyed.engine, "Wacław")
    use_everything(keyed.engine, "bob", 1)
    assert keyed.holds("Wacław")
    while keyed.engine.forget("Wacław", 7, now_ms=2):
        pass
    assert keyed.holds("Wacław") == []
    assert [customer.id for customer in keyed.engine.customers("", 10)] == ["bob"]
    assert keyed.holds("bob")


def test_lines_of_a_forgotten_customer_are_hidden_before_they_are_swept(keyed: KeyedQueue) -> None:
    run = RedisPool(parse_url(keyed.url)).run  # forgets, and is killed before it sweeps
    use_everything(keyed.engine, "ada")
    keyed.engine.submit([Submission("b", "bob", "extract", "{}")], now_ms=5)
    while run("forget", [6, "ada", 100], "never")[0]:
        pass
    assert [(change.customer, change.what) for change in keyed.engine.changes(None, 100)] == [
        ("bob", "submitted"),
        (None, "forgotten"),
    ]
    assert keyed.engine.purge(0, 100, now_ms=6).changes == 2
    assert "forgotten" in keyed.key_names()
    keyed.engine.check("ada", 1000, now_ms=7)  # it is back, under another number
    open_engine(keyed.url).close()  # whoever opens the queue next ends what was begun
    assert "forgotten" not in keyed.key_names()
    assert [change.what for change in keyed.engine.changes(None, 100)] == ["checked"]


def test_a_long_feed_is_swept_in_parts_and_others_lines_stay(keyed: KeyedQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "LINES_MAX", 7)
    for n in range(30):
        keyed.engine.check("ada" if n % 3 else "bob", 1000, now_ms=n)
    assert keyed.engine.forget("ada", 10, now_ms=99) == []
    lines = keyed.engine.changes(None, 100)
    assert [line.number for line in lines] == [*range(1, 31, 3), 31]
    assert keyed.engine.changes(4, 3) == lines[2:5]
    with keyed.server.client() as client:
        assert client.eval(EMPTY_LINES, 1, f"{{fairlane:{keyed.name}}}:feed") == 20


def test_only_a_constant_number_of_keys_is_left_when_everything_ended_and_was_forgotten(keyed: KeyedQueue) -> None:
    def run(customers: list[str]) -> set[str]:
        for at, customer in enumerate(customers):
            use_everything(keyed.engine, customer, at)
        end_everything(keyed.engine)
        for customer in customers:
            while keyed.engine.forget(customer, 100, now_ms=10**9):
                pass
        end_everything(keyed.engine)
        return keyed.key_names()

    left = run(["ada"])
    assert left == {"queue", "rules", "kinds"}
    assert run([f"customer-{n}" for n in range(30)]) == left


def test_a_drained_queue_leaves_no_index_behind(keyed: KeyedQueue) -> None:
    keyed.engine.submit([Submission(f"d{n}", "ada", "extract", "{}") for n in range(60)], now_ms=0)
    while claims := keyed.engine.claim("w", 7, 1000, now_ms=1):
        keyed.engine.settle([(claim, Done()) for claim in claims], now_ms=1)
    assert not [key for key in keyed.key_names() if key.startswith(("turns", "ages", "ready", "leases", "delayed"))]


def test_eight_processes_of_500_submissions_leave_counters_0_to_minus_3999_each_once(keyed: KeyedQueue) -> None:
    command = [sys.executable, "-c", PRODUCER, keyed.url, str(EACH)]
    producers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    answers = [producer.communicate(timeout=120)[0].split() for producer in producers]
    assert [producer.returncode for producer in producers] == [0] * PROCESSES
    expected = [-number for number in range(PROCESSES * EACH)]
    assert sorted((int(counter) for answer in answers for counter in answer), reverse=True) == expected
    with Queue(keyed.url) as queue:
        stored = list(queue.documents("acme"))[::-1]
        assert [document.counter for document in stored] == expected  # in the order of their numbers
        assert [document.priority for document in stored] == [Policy().priority(counter) for counter in expected]
        assert [change.number for change in queue.changes()] == list(range(1, 4001))


def test_a_reader_of_the_feed_misses_no_line_of_many_writers(keyed: KeyedQueue) -> None:
    def write(writer: int) -> None:
        for n in range(100):
            keyed.engine.submit([Submission(f"{writer}-{n}", f"c{writer}", "extract", "{}")])

    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(6)]
    for writer in writers:
        writer.start()
    seen: list[int] = []
    while any(writer.is_alive() for writer in writers) or len(seen) < 600:
        seen += [change.number for change in keyed.engine.changes(seen[-1] if seen else 0, 50)]
    assert seen == list(range(1, 601))


def test_a_page_that_is_hard_to_fill_is_read_in_parts(keyed: KeyedQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "SCAN_MAX", 3)
    keyed.engine.submit([Submission(f"d{n}", f"c{n % 2}", "extract", "{}") for n in range(50)], now_ms=0)
    keyed.engine.submit([Submission("late", "c0", "extract", "{}", delay_ms=5)], now_ms=0)
    keyed.engine.submit([Submission(f"e{n}", "c1", "extract", "{}") for n in range(50)], now_ms=0)
    assert [document.id for document in walk_documents(keyed.engine, DocumentFilter(state="delayed"))] == ["late"]
    assert [document.id for document in walk_documents(keyed.engine, DocumentFilter(customer="c0", state="delayed"))] == [
        "late"
    ]
    assert [document.number for document in walk_documents(keyed.engine, DocumentFilter(customer="c0"))] == [
        51,
        *range(49, 0, -2),
    ]
    assert len(list(walk_documents(keyed.engine, DocumentFilter(state="ready"), before=60))) == 58
    assert list(walk_documents(keyed.engine, DocumentFilter(customer="nobody"))) == []
    claims = keyed.engine.claim("w", 20, 1000, now_ms=0)
    assert [document.number for document in walk_documents(keyed.engine, DocumentFilter(state="running"))] == sorted(
        (claim.number for claim in claims), reverse=True
    )
