"""Forgetting a customer is proven: nothing that is kept anywhere holds its id, or anything that it sent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.encryption.keyring import KEYS_VARIABLE, new_key
from fairlane.queue.audit import AuditFilter, walk_audit
from fairlane.queue.audited_queue import AuditedQueue
from fairlane.queue.record_groups import GROUPS
from tests.api.receivers import Listener
from tests.api.running import Server, until
from tests.api.test_webhooks import listener as listener  # a fixture
from tests.engine.conftest import ENGINES, url_of
from tests.servers import redis

from .everything import CUSTOMER, MARK, STAFF, Derived, fill, fill_audit, fill_records, groups, holding, stored, use_service

NEIGHBOUR = "neighbour 4402"


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    url = url_of(request.param, tmp_path)
    yield url
    redis.drop_url(url)


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_nothing_of_a_forgotten_customer_is_stored_anywhere(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_encrypted: bool
) -> None:
    if is_encrypted:
        monkeypatch.setenv(KEYS_VARIABLE, new_key())
    with Queue(url, blobs=str(tmp_path / "blobs")) as queue:
        fill(queue, NEIGHBOUR, "hjw4402", "other")
        fill(queue, CUSTOMER)
        fill_records(queue, CUSTOMER)
        fill_audit(queue, CUSTOMER)
        naming = {group.name for group in GROUPS if group.owner or group.follows or group.of_documents}
        assert groups(queue) >= naming  # every feature that names customers was used
        derived = Derived(queue, CUSTOMER).words
        assert holding({MARK}, stored(queue, tmp_path))
        assert all(holding({word}, stored(queue, tmp_path)) for word in derived)  # the search would find them
        actions = [entry.action for entry in walk_audit(queue.engine, AuditFilter())]
        forgotten = AuditedQueue(queue, STAFF).forget(CUSTOMER)
        assert (forgotten.documents, forgotten.files_left, forgotten.not_rewritten) == (11, 0, None)
        assert holding({MARK, *derived}, stored(queue, tmp_path)) == []
        kept = list(walk_audit(queue.engine, AuditFilter()))
        assert [entry.action for entry in kept] == ["customer.forget", *actions]  # who did what and when stays
        assert {entry.who for entry in kept if entry.who.role != "customer"} == {STAFF}
        assert len({entry.customer for entry in kept}) == 1
        assert [look.customer for look in queue.customers()] == [NEIGHBOUR]
        assert queue.look(NEIGHBOUR).failed + queue.look(NEIGHBOUR).waiting > 5


@pytest.fixture(params=[name for name in ENGINES if name != "memory"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server whose files, temporary files and log are in one folder."""
    url = url_of(request.param, tmp_path)
    (tmp_path / "temporary").mkdir()
    options = ("--allow-private-webhooks", "--blobs", str(tmp_path / "blobs"))
    server = Server(tmp_path, *options, url=url, variables={"TMPDIR": str(tmp_path / "temporary")})
    yield server
    server.close()
    redis.drop_url(url)


def test_a_running_service_keeps_and_logs_nothing_of_it_either(served: Server, listener: Listener, tmp_path: Path) -> None:
    with Queue(served.url, blobs=str(tmp_path / "blobs")) as queue:
        fill(queue, NEIGHBOUR, "hjw4402", "other")
        fill(queue, CUSTOMER)
        use_service(served, CUSTOMER, f"{listener.url}&{MARK}")
        derived = Derived(queue, CUSTOMER).words
        assert len(holding({MARK}, stored(queue, tmp_path))) > 10
        assert queue.forget(CUSTOMER).records > 10
        forgotten_at = time.time()
        with served.client(served.operator) as operator:  # it goes on, and says nothing of the customer
            until(lambda: MARK not in operator.get("/metrics").text, "metrics without the customer")
            listed = operator.get("/v1/customers").json()["customers"]
            assert [each["customer"] for each in listed] == [NEIGHBOUR]
        served.stop()
        lines = served.logged()
        before, since = (
            [json.dumps(line) for line in lines if (line["at"] > forgotten_at) is is_since] for is_since in (False, True)
        )
        assert MARK in "".join(before)  # what was logged is for whoever keeps it to delete
        assert "/v1/customers" in "".join(since)
        assert not [word for word in (MARK, *derived) if word in "".join(since)]
        served.log.unlink()
        assert holding({MARK, *derived}, stored(queue, tmp_path)) == []
