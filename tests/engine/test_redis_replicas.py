"""Replicas: with `replicas` in the URL what was acknowledged survives a failover, and silent replicas are an error."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from chaos.proxy import FaultyProxy
from fairlane import BadValue, Queue, StoreError, StoreUnreachable
from fairlane.core.document import Done, Submission
from fairlane.engine import Engine, open_engine
from fairlane.engine.redis.errors import NotReplicated
from fairlane.engine.redis.url import parse_url
from fairlane.engine.walk import walk_documents
from tests.servers import redis
from tests.servers.redis import Server, fresh_queue

DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0")
QUICKLY = "replicas=1&replicas_timeout=0.3"  # for what must not be confirmed
PATIENTLY = "replicas=1&replicas_timeout=20"  # for what must be


class Pair(NamedTuple):
    """A primary and its replica."""

    primary: Server
    replica: Server
    link: FaultyProxy
    queue: str

    def open(self, options: str) -> Engine:
        return open_engine(f"{self.primary.url(self.queue)}&{options}")

    def freeze(self) -> None:
        os.kill(self.replica.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.replica.pid, signal.SIGCONT)
        self.wait_for_replica()

    def wait_for_replica(self) -> None:
        with self.primary.client() as client:
            client.publish("replicas", "")  # so that there is something to acknowledge
            while client.execute_command("WAIT", 1, 1000) < 1:
                os.sched_yield()

    def fail_over(self) -> Engine:
        """Kill the primary and promote the replica, which has what it received."""
        self.primary.kill()
        self.link.cut()
        with self.replica.client() as client:
            client.replicaof("NO", "ONE")
        return open_engine(self.replica.url(self.queue))


@pytest.fixture(params=redis.PRODUCTS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    primary = Server(request.param, *DURABLE, port=redis.free_port())
    link = FaultyProxy(primary.port)
    replica = Server(request.param, *DURABLE, "--replicaof", "127.0.0.1", str(link.port), port=redis.free_port())
    pair = Pair(primary, replica, link, fresh_queue())
    pair.wait_for_replica()
    yield pair
    link.close()
    primary.remove()
    replica.remove()


def document(id: str, key: str | None = None) -> Submission:
    return Submission(id, "ada", "extract", "{}", key=key, digest=key)


def ids(engine: Engine) -> set[str]:
    return {row.id for row in walk_documents(engine)}


def test_what_was_acknowledged_survives_a_failover(pair: Pair) -> None:
    engine = pair.open(PATIENTLY)
    acknowledged = {engine.submit([document(f"d{n}")])[0].id for n in range(30)}
    engine.close()
    pair.link.freeze()
    engine = pair.open(QUICKLY)
    for n in range(2):
        with pytest.raises(StoreError):
            engine.submit([document(f"e{n}")])
    engine.close()
    promoted = pair.fail_over()
    assert acknowledged <= ids(promoted)
    promoted.close()


def test_without_the_option_acknowledged_documents_are_lost_and_the_engine_says_that_they_may_be(pair: Pair) -> None:
    engine = pair.open("")
    assert engine.durability.startswith("not durable at a failover: ")
    engine.submit([document("a")])
    with pair.primary.client() as client:
        client.wait(1, 5000)
    pair.link.freeze()
    engine.submit([document("b")])
    engine.close()
    promoted = pair.fail_over()
    assert "b" not in ids(promoted)
    promoted.close()


def test_an_unconfirmed_submission_says_so_and_its_key_gives_the_receipt_once_it_is_confirmed(pair: Pair) -> None:
    engine, other = pair.open(QUICKLY), pair.open(QUICKLY)
    pair.freeze()
    with pytest.raises(NotReplicated, match=r"has done submit, but only 0 of 1 replicas confirmed it within 0.3 s"):
        engine.submit([document("b", "k")])
    with pytest.raises(NotReplicated):  # it wrote nothing, and is not acknowledged all the same
        other.submit([document("c", "k")])
    pair.thaw()
    patient = pair.open(PATIENTLY)
    assert patient.submit([document("d", "k")])[0].id == "b"
    assert ids(patient) == {"b"}
    for each in (engine, other, patient):
        each.close()


def test_while_replicas_are_known_to_be_silent_nothing_is_written(pair: Pair) -> None:
    engine = pair.open(QUICKLY)
    pair.freeze()
    with pytest.raises(NotReplicated):
        engine.check("ada", 1000)
    with pytest.raises(StoreUnreachable, match=r"only 0 of 1 replicas of .* answer, so nothing was changed"):
        engine.submit([document("a")])
    assert ids(engine) == set()  # reads need no replica
    pair.thaw()
    engine.submit([document("a")])
    assert ids(engine) == {"a"}
    engine.close()


def test_an_unconfirmed_claim_gives_its_documents_back_without_spending_an_attempt(pair: Pair) -> None:
    engine, patient = pair.open(QUICKLY), pair.open(PATIENTLY)
    patient.submit([document("a"), document("b")])
    (running,) = patient.claim("w", 1, 60_000)
    pair.freeze()
    with pytest.raises(NotReplicated):
        engine.claim("w", 5, 60_000)
    assert engine.extend([running], 90_000) == []  # what runs goes on
    pair.thaw()
    assert patient.settle([(running, Done("1"))]) == []
    (again,) = patient.claim("w", 5, 60_000)
    assert (again.id, again.attempts) == ("b", 1)
    engine.close()
    patient.close()


def test_an_unconfirmed_take_over_gives_the_document_back_without_spending_an_attempt(pair: Pair) -> None:
    engine, patient = pair.open(QUICKLY), pair.open(PATIENTLY)
    patient.submit([document("a")])
    (claim,) = patient.claim("bridge", 1, 60_000)
    pair.freeze()
    with pytest.raises(NotReplicated):
        engine.take_over([(claim.id, claim.token)], "w", 60_000)
    pair.thaw()
    assert patient.extend([claim], 60_000) == [claim]
    (again,) = patient.claim("bridge", 1, 60_000)
    assert (again.attempts, again.token) == (1, 3)
    engine.close()
    patient.close()


def test_durability_says_what_holds(pair: Pair) -> None:
    engine = pair.open(PATIENTLY)
    assert engine.durability.startswith("durable: acknowledged after the data is on the primary's disk and 1 replica received")
    assert {finding.name: finding.level for finding in engine.diagnose()}["durability"] == "fine"
    engine.close()
    with Queue(f"{pair.primary.url(pair.queue)}&replicas=2&replicas_timeout=1") as queue:
        finding = next(finding for finding in queue.engine.diagnose() if finding.name == "durability")
        assert (finding.level, finding.message) == (
            "bad", "2 replicas must confirm each write, and 1 are connected: nothing can be written",
        )  # fmt: skip
        with pytest.raises(StoreError, match=r"[01] of 2 replicas"):  # 0 on a busy machine
            queue.submit("ada")
    engine = pair.open("")
    assert {finding.name: finding.level for finding in engine.diagnose()}["durability"] == "warning"
    engine.close()


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("replicas=x", "replicas"),
        ("replicas=17", "replicas"),
        ("replicas=-1", "replicas"),
        ("replicas=1&replicas_timeout=never", "replicas_timeout"),
    ],
)
def test_options_that_cannot_be_are_refused(option: str, name: str) -> None:
    with pytest.raises(BadValue, match=f"{name} in the url"):
        parse_url(f"redis://host?{option}")
