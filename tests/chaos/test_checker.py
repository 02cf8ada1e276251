"""The checker finds what is wrong: histories that are right but for one thing."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import pytest

from chaos.checker import check_at_rest, check_store
from chaos.history import ClientLog, Clients, Settlement, StoreSnapshot, read_clients, read_log, snapshot
from fairlane import Queue
from fairlane.core.document import Done, Failed, Retried


@dataclass
class History:
    """A history that a test may spoil."""

    waiting: StoreSnapshot  # before anything was claimed
    store: StoreSnapshot  # at rest
    clients: Clients


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Four documents: one done, one done after a retry, one failed after a take-over, one cancelled while it ran; one stale
    settlement."""
    path = tmp_path_factory.mktemp("right") / "queue.db"
    clients = Clients()
    with Queue(f"sqlite:///{path}") as queue:
        for place in range(4):
            customer, key = f"customer-{place % 2}", f"key-{place}"
            clients.attempted.add((customer, key))
            clients.acknowledged.append((customer, key, queue.submit(customer, place, key=key, now=place).id))
        waiting = snapshot(path)
        one, two, three, four = queue.engine.claim("worker", 4, 1000, now_ms=10_000)
        (taken,) = queue.engine.take_over([(three.id, three.token)], "other", 1000, now_ms=10_000)
        assert taken is not None
        queue.engine.settle([(one, Done('"mark-1"')), (two, Retried(0, "mark-2")), (taken, Failed("mark-3"))], now_ms=10_001)
        queue.cancel(four.id)
        (again,) = queue.engine.claim("worker", 1, 1000, now_ms=10_002)
        queue.engine.settle([(again, Done('"mark-4"'))], now_ms=10_003)
        assert queue.engine.settle([(one, Done('"mark-5"'))], now_ms=10_004) == [one]
    clients.claimed += [(claim.id, claim.token) for claim in (one, two, three, taken, four, again)]
    clients.cancelled.add(four.id)
    for settlement in (
        Settlement("mark-1", one.id, 1, "done", True),
        Settlement("mark-2", two.id, 1, "retried", True),
        Settlement("mark-3", three.id, 2, "failed", True),
        Settlement("mark-4", again.id, 2, "done", None),  # killed before the answer
        Settlement("mark-5", one.id, 1, "done", False),
    ):
        clients.settlements[settlement.mark] = settlement
    return History(waiting, snapshot(path), clients)


def test_a_right_history_is_right(right: History) -> None:
    assert check_store(right.waiting) == []
    assert check_at_rest(right.store, right.clients) == []


def _lose_a_document(history: History) -> None:
    gone = history.store.documents.pop(0)
    history.store.changes = [line for line in history.store.changes if line.document != gone.id]


def _give_another_id(history: History) -> None:
    (customer, key, _), (_, _, id) = history.clients.acknowledged[:2]
    history.clients.acknowledged[0] = (customer, key, id)


def _submit_twice(history: History) -> None:
    history.store.documents.append(history.store.documents[0]._replace(number=5, id="twin"))


def _end_twice(history: History) -> None:
    line = next(line for line in history.store.changes if line.what == "done")
    history.store.changes.append(line._replace(number=len(history.store.changes) + 1))


def _settle_as_done_and_failed(history: History) -> None:
    line = next(line for line in history.store.changes if line.what == "done")
    history.store.changes.append(line._replace(number=len(history.store.changes) + 1, what="failed"))


def _skip_a_token(history: History) -> None:
    place = next(place for place, line in enumerate(history.store.changes) if line.what == "claimed")
    history.store.changes[place] = history.store.changes[place]._replace(token=2)


def _forget_a_take_over(history: History) -> None:
    history.store.changes = [line for line in history.store.changes if line.what != "taken_over"]


def _never_end(history: History) -> None:
    history.store.changes = [line for line in history.store.changes if line.what != "failed"]
    place = next(place for place, one in enumerate(history.store.documents) if one.state == "failed")
    history.store.documents[place] = history.store.documents[place]._replace(state="running")


def _cut_the_feed(history: History) -> None:
    del history.store.changes[-1]
    del history.store.changes[0]


def _document(**values: object) -> Callable[[History], None]:
    def spoil(history: History) -> None:
        history.store.documents[0] = history.store.documents[0]._replace(**values)  # type: ignore[arg-type]

    return spoil


def _customer(**values: object) -> Callable[[History], None]:
    def spoil(history: History) -> None:
        history.store.customers[0] = history.store.customers[0]._replace(**values)  # type: ignore[arg-type]

    return spoil


def _settlement(mark: str, **values: object) -> Callable[[History], None]:
    def spoil(history: History) -> None:
        one = history.clients.settlements["mark-1"]._replace(mark=mark, **values)  # type: ignore[arg-type]
        history.clients.settlements[mark] = one

    return spoil


def _cancel_what_is_done(history: History) -> None:
    history.clients.cancelled.update(document.id for document in history.store.documents)


AT_REST: list[tuple[Callable[[History], None], str]] = [
    (_lose_a_document, "which is lost"),
    (_give_another_id, "which is another one"),
    (_submit_twice, "made 2 documents"),
    (_end_twice, "ended 2 times"),
    (_end_twice, "although it was done"),
    (_settle_as_done_and_failed, "although it was done"),
    (_skip_a_token, "has token 2, expected 1"),
    (_forget_a_take_over, "has token 2, expected 1"),
    (_forget_a_take_over, "has token 2, its lines give 1"),
    (_settlement("mark-9", id="three", token=1), "the feed has nothing"),
    (_never_end, "is running and ended 0 times, not once"),
    (_cut_the_feed, "gaps or repeats"),
    (_cut_the_feed, "although it was not there"),
    (_document(attempts=2), "has 2 attempts of 3, its lines give 1"),
    (_document(attempts=4), "has 4 attempts of 3"),
    (_document(token=7), "has token 7, its lines give 1"),
    (_document(state="cancelled"), "is cancelled, but its lines of the feed end with"),
    (_document(counter=-1000), "has counter -1000, priority 1; by replay 0"),
    (_document(priority=2), "priority 2; by replay 0"),
    (_document(key="nobody's"), "which no client submitted"),
    (_customer(counter=-2000), "stands at -2000; replay gives -1000"),
    (_customer(updated_ms=5), "replay gives"),
    (_customer(done=9), "counts 9 done"),
    (_customer(waiting=1), "counts 1 waiting, its documents give 0"),
    (_customer(running=-1), "counts -1 running"),
    (_settlement("mark-1", is_accepted=False), "was refused, yet changed something"),
    (_settlement("mark-9"), "and what it wrote is lost"),
    (_settlement("mark-9"), "was settled 2 times"),
    (_settlement("mark-9", outcome="failed"), "was accepted as failed; the feed has done"),
    (_settlement("mark-9", token=4), "the feed has nothing"),
    (_cancel_what_is_done, "was cancelled, and is done"),
    (lambda history: history.clients.claimed.append(history.clients.claimed[0]), "was given to 2 claimers"),
    (lambda history: history.clients.claimed.append((history.clients.claimed[0][0], 9)), "the feed does not know it"),
    (lambda history: setattr(history.store, "dispatches", 4), "4 dispatches were counted and 5 claims"),
    (lambda history: setattr(history.store, "integrity", "row 3 missing"), "integrity_check: row 3 missing"),
]


@pytest.mark.parametrize(("spoil", "found"), AT_REST)
def test_the_checker_finds(spoil: Callable[[History], None], found: str, right: History) -> None:
    spoiled = deepcopy(right)
    spoil(spoiled)
    assert any(found in wrong for wrong in check_at_rest(spoiled.store, spoiled.clients))


def _lane(**values: object) -> Callable[[StoreSnapshot], None]:
    def spoil(store: StoreSnapshot) -> None:
        store.lanes[0] = store.lanes[0]._replace(**values)  # type: ignore[arg-type]

    return spoil


def _priority(**values: int) -> Callable[[StoreSnapshot], None]:
    def spoil(store: StoreSnapshot) -> None:
        store.priorities[0] = store.priorities[0]._replace(**values)

    return spoil


def _kind(**values: object) -> Callable[[StoreSnapshot], None]:
    def spoil(store: StoreSnapshot) -> None:
        assert store.kinds is not None
        store.kinds[0] = store.kinds[0]._replace(**values)  # type: ignore[arg-type]

    return spoil


WAITING: list[tuple[Callable[[StoreSnapshot], None], str]] = [
    (_lane(competing=None), "has start tag 0, and the index by age says None"),
    (_kind(clocks=(1, *(0,) * 8)), "has start tag 0, below the clock 1 of its kind"),
    (_kind(first=(1, 0, 0, 2)), "as its first, its lanes have (1, 0, 0, 1)"),
    (_kind(first=None), "has None and"),
    (_kind(oldest=(0, 2)), "as its first, its lanes have"),
    (lambda store: setattr(store, "kinds", []), "kind default is missing"),
    (_lane(head=3), "has head 3, the lowest ready number is 1"),
    (_lane(head=None, head_ready_ms=None), "has head None, the lowest ready number is 1"),
    (_lane(head_ready_ms=99), "the lowest ready number is 1"),
    (_lane(start=None), "has start tag None and head 1"),
    (lambda store: store.lanes.clear(), "is missing"),
    (lambda store: store.ready.clear(), "is ready, and not so in its lane"),
    (lambda store: store.ready.append(store.ready[0]._replace(number=9)), "document 9 is in lane"),
    (lambda store: store.documents.__setitem__(0, store.documents[0]._replace(state="running")), "document 1 is in lane"),
    (_priority(ready=3), "priority 1 counts 3 ready in 2 lanes, there are 4 in 2"),
    (_priority(lanes=1), "priority 1 counts 4 ready in 1 lanes, there are 4 in 2"),
]


@pytest.mark.parametrize(("spoil", "found"), WAITING)
def test_the_checker_finds_in_lanes(spoil: Callable[[StoreSnapshot], None], found: str, right: History) -> None:
    spoiled = deepcopy(right.waiting)
    spoil(spoiled)
    assert any(found in wrong for wrong in check_store(spoiled))


def test_a_log_shows_what_is_unknown_and_leaves_out_a_line_that_was_cut_off(tmp_path: Path) -> None:
    log = ClientLog(tmp_path / "one.log")
    log.write("submitting", [("acme", "key-1")])
    log.write("started", 7)  # it was killed and came back
    log.write("settling", [("mark", "id", 1, "done")])
    with (tmp_path / "one.log").open("a") as file:
        file.write('["settled", [["ma')
    assert [line[0] for line in read_log(tmp_path / "one.log")] == ["submitting", "started", "settling"]
    clients = read_clients([tmp_path / "one.log"])
    assert clients.unknown == 1
    assert clients.settlements["mark"].is_accepted is None
    assert clients.attempted == {("acme", "key-1")}
