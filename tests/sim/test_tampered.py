"""A store in which somebody changed a figure: verify finds it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from fairlane import Queue
from fairlane.core.document import Done, Failed
from fairlane.sim.verify import Difference, Verification, verify

RETRIED, SET_BY_HAND = 7, 10  # the document that its customer retried, and that whose priority an operator set
Tamper = Callable[[str], Verification]


@pytest.fixture
def tamper(tmp_path: Path) -> Tamper:
    """A queue with everything in it, one statement on its file, and what verify says then."""
    path = tmp_path / "queue.db"
    with Queue(f"sqlite:///{path}") as queue:
        queue.submit_many("acme", range(6), now=100)
        queue.configure(thresholds=(-1, -2, -3), reset="sliding")
        queue.tune("bolt", weight=2)
        ids = [queue.submit("bolt", now=101 + tick).id for tick in range(5)]
        queue.submit("bolt", made_from=ids[4], now=108)
        queue.check("checked", now=109)
        queue.check("checked", now=110)
        (claim,) = queue.engine.claim("worker", 1, 1000, now_ms=111_000)
        queue.engine.settle([(claim, Done(cost=3000))], now_ms=112_000)
        (claim,) = queue.engine.claim("worker", 1, 1000, now_ms=113_000)
        queue.engine.settle([(claim, Failed("corrupt"))], now_ms=114_000)
        queue.engine.retry(claim.id, as_customer=True, now_ms=115_000)
        assert claim.number == RETRIED
        queue.engine.prioritize([ids[3]], 4, "ada", now_ms=116_000)
        changed = queue.engine.document(ids[3])
        assert changed is not None
        assert changed.number == SET_BY_HAND

    def tamper(statement: str) -> Verification:
        connection = apsw.Connection(str(path))
        connection.execute(statement)
        assert connection.changes() == 1
        connection.close()
        with Queue(f"sqlite:///{path}", create=False) as queue:
            return verify(queue)

    return tamper


def test_the_same_store_untouched_has_no_differences(tamper: Tamper) -> None:
    assert tamper("UPDATE queue SET last_record = last_record") == (15, 0, 3, ())


CUSTOMER = "UPDATE customers SET {} WHERE id = 'acme'"
LANE = "UPDATE lanes SET {} WHERE part = 0 AND priority = 2 AND customer = (SELECT number FROM customers WHERE id = 'acme')"
DOCUMENT = "UPDATE documents SET {} WHERE number = 3"


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        (CUSTOMER.format("counter = counter - 1"), {"counter"}),
        (CUSTOMER.format("counter = 0"), {"counter"}),
        (CUSTOMER.format("updated_ms = updated_ms + 1"), {"last update"}),
        ("UPDATE customers SET parts = '[[93700, 1]]' WHERE id = 'bolt'", {"sent lately"}),
        (DOCUMENT.format("counter = counter + 1000"), {"counter"}),
        (DOCUMENT.format("priority = 9"), {"priority"}),
        (DOCUMENT.format("policy_version = 2"), {"policy version"}),
        (DOCUMENT.format("terms_version = 1"), {"terms version"}),
        (DOCUMENT.format("checked_ms = checked_ms + 2000000"), {"counter", "priority", "last update"}),
        (DOCUMENT.format("cost = 2000"), {"counter", "priority"}),
        ("UPDATE documents SET priority = priority + 1 WHERE number = 12", {"priority"}),
        (f"UPDATE documents SET counter = counter + 1000 WHERE number = {RETRIED}", {"counter"}),
        (f"UPDATE documents SET priority = 9 WHERE number = {RETRIED}", {"priority"}),
        (f"UPDATE documents SET checked_priority = 9 WHERE number = {RETRIED}", {"priority"}),
        (f"UPDATE documents SET priority = 9 WHERE number = {SET_BY_HAND}", {"priority"}),
        (
            'UPDATE changes SET note = replace(note, \'"before": {"counter": 0\', \'"before": {"counter": -1000\') '
            "WHERE what = 'revived'",
            {"counter"},
        ),
        (LANE.format("waiting = waiting + 1"), {"waiting"}),
        (LANE.format("documents = documents - 1"), {"documents kept"}),
        (LANE.format("bytes = bytes + 1"), {"bytes kept"}),
        ("UPDATE documents SET bytes = 0 WHERE number = 3", {"bytes kept"}),
        ("UPDATE terms SET body = '{\"weight\": 3}'", {"terms"}),
        (
            "UPDATE changes SET note = replace(note, '-1000', '-2000') WHERE what = 'checked' AND note LIKE '%-1000%'",
            {"counter"},
        ),
        ("UPDATE changes SET note = '1000 9000' WHERE what = 'corrected'", {"counter"}),
        ("DELETE FROM changes WHERE what = 'tuned'", {"counter", "priority", "terms", "terms version", "sent lately"}),
        ("DELETE FROM changes WHERE what = 'configured'", {"priority", "policy version", "sent lately"}),
        ("DELETE FROM changes WHERE number = 2", {"counter", "priority"}),
    ],
)
def test_every_tampering_is_found(tamper: Tamper, statement: str, what: set[str]) -> None:
    found = tamper(statement).differences
    assert {one.what for one in found} == what


def test_a_difference_is_reported_with_both_figures(tamper: Tamper) -> None:
    first, second = tamper(DOCUMENT.format("priority = 9, counter = -1500")).differences
    assert isinstance(first, Difference)
    assert (first.customer, first.stored, first.replayed) == ("acme", -1.5, -2)
    assert str(first) == f"document {first.document}: counter is -1.5; by the rules it should be -2"
    assert str(second) == f"document {first.document}: priority is 9; by the rules it should be 1"


def test_a_difference_of_a_customer_is_reported_with_its_name(tamper: Tamper) -> None:
    (only,) = tamper(CUSTOMER.format("counter = -1000")).differences
    assert str(only) == "customer 'acme': counter is -1; by the rules it should be -7"
