"""Capacity: what waits by kind, the slots wanted for a target wait, and figures that one can alarm on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from fairlane.api.capacity import KindLoad
from fairlane.core.document import Done, Retried
from fairlane.queue.models import Kind
from fairlane.queue.workers import WORKERS, WorkerRecord
from tests.docs.snippets import snippet

from .running import Server, until
from .test_metrics import Followed


@pytest.fixture
def followed() -> Followed:
    followed = Followed()
    followed.follow()
    return followed


def register(followed: Followed, name: str, *kinds: str, slots: int = 4, **fields: Any) -> None:
    """Write a record as a worker does."""
    engine = followed.queue.engine
    now_ms = engine.now()
    record = WorkerRecord(name, "host", 1, "0.1.0", engine.schema, kinds, slots, now_ms, now_ms, "working", {}, drain=False)
    engine.put_record(WORKERS, name, record._replace(**fields).encode())


def take(followed: Followed, count: int, *kinds: str) -> int:
    """Let the worker w take documents of some kinds and finish them; return how many."""
    claims = followed.queue.engine.claim("w", count, 60_000, dict.fromkeys(kinds, 3))
    followed.queue.engine.settle([(claim, Done()) for claim in claims])
    return len(claims)


def urgent_wait(followed: Followed) -> float:
    return followed.measure()["fairlane_urgent_wait_seconds"]


# -- slots wanted ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waiting", "running", "arrivals", "usual", "wanted"),
    [
        (0, 0, 0.0, 1.0, 0),  # nothing to do: none
        (1, 0, 0.0, 0.001, 1),  # something waits: at least one
        (300, 0, 0.0, 1.0, 10),  # 300 seconds of work within 30
        (0, 0, 2.0, 3.0, 6),  # two documents a second, three seconds each
        (300, 0, 2.0, 1.0, 12),
        (0, 7, 0.1, 1.0, 7),  # what runs is not stopped
        (300, 10, 0.0, 1.0, 10),  # the same as without those that run: adding slots does not ask for more
    ],
)
def test_slots_wanted_keep_up_and_start_what_waits_in_time(
    waiting: int, running: int, arrivals: float, usual: float, wanted: int
) -> None:
    assert KindLoad(waiting, 0, running, 0.0, 4, "served", arrivals, usual).slots_wanted(30) == wanted


# -- kinds -------------------------------------------------------------------------------------------------------------


def test_what_waits_runs_and_has_slots_by_kind(followed: Followed) -> None:
    register(followed, "w", "ocr", slots=3)
    register(followed, "x", "ocr", "fax", slots=5)
    followed.queue.submit_many("ada", range(4), kind="ocr")
    followed.queue.submit("ada", 1, kind="zip")
    followed.queue.engine.claim("w", 1, 60_000, {"ocr": 3})
    metrics = followed.measure()
    assert metrics['fairlane_kind_ready_documents{kind="ocr"}'] == 3
    assert metrics['fairlane_kind_running_documents{kind="ocr"}'] == 1
    assert metrics['fairlane_kind_slots{kind="ocr"}'] == 8
    assert (metrics['fairlane_workers{state="working"}'], metrics["fairlane_slots"]) == (2, 8)
    assert metrics['fairlane_kind_unserved_documents{kind="ocr"}'] == 0
    assert metrics['fairlane_kind_unserved_documents{kind="zip"}'] == 1
    assert metrics['fairlane_documents_total{event="started",kind="ocr"}'] == 1
    assert metrics['fairlane_kind_wait_seconds_count{kind="ocr"}'] == 1


def test_drained_gone_and_outdated_workers_are_counted(followed: Followed) -> None:
    register(followed, "a", "ocr", drain=True, state="drained")
    register(followed, "b", "ocr", seen_ms=0)
    register(followed, "c", "ocr", schema=0)
    followed.queue.submit("ada", 1, kind="ocr")
    metrics = followed.measure()
    counts = [metrics[f'fairlane_workers{{state="{state}"}}'] for state in ("working", "draining", "drained", "gone")]
    assert counts == [1, 0, 1, 1]
    assert metrics["fairlane_outdated_workers"] == 1


def test_kinds_beyond_the_first_share_a_label(followed: Followed) -> None:
    for number in range(50):
        followed.queue.submit("ada", 1, kind=f"kind-{number:02}")
    metrics = followed.measure()
    assert sum(name.startswith("fairlane_kind_ready_documents") for name in metrics) == 21
    assert sum(value for name, value in metrics.items() if name.startswith("fairlane_kind_ready_documents")) == 50
    assert metrics['fairlane_kind_unserved_documents{kind="other"}'] == 30


def test_a_document_that_failed_and_waits_for_its_next_attempt_is_not_ready(followed: Followed) -> None:
    register(followed, "w", "ocr")
    followed.queue.submit("ada", 1, kind="ocr")
    (claim,) = followed.queue.engine.claim("w", 1, 60_000, {"ocr": 3})
    followed.queue.engine.settle([(claim, Retried(600_000, "later"))])
    metrics = followed.measure()
    assert (metrics['fairlane_ready_documents{priority="1"}'], metrics["fairlane_running_documents"]) == (0, 0)


def test_a_delayed_document_waits_when_its_time_has_come(followed: Followed) -> None:
    now_ms = followed.queue.engine.now()
    followed.queue.submit("ada", 1, kind="ocr", delay=5, now=(now_ms - 10_000) / 1000)
    assert followed.measure()['fairlane_kind_ready_documents{kind="ocr"}'] == 1


def test_what_was_forgotten_or_revived_is_counted_right(followed: Followed) -> None:
    register(followed, "w", "ocr")
    followed.queue.submit_many("ada", range(3), kind="ocr")
    failed = followed.queue.submit("bob", 1, kind="ocr").id
    followed.measure()
    followed.queue.forget("ada")
    (claim,) = followed.queue.engine.claim("w", 1, 60_000, {"ocr": 1})
    followed.queue.engine.settle([(claim, Retried(0, "no"))])
    assert followed.queue.document(failed).state == "failed"
    assert followed.measure()['fairlane_kind_ready_documents{kind="ocr"}'] == 0
    followed.queue.retry(failed)
    assert followed.measure()['fairlane_kind_ready_documents{kind="ocr"}'] == 1


def test_what_is_held_back_asks_for_no_slots(followed: Followed) -> None:
    register(followed, "w", "ocr")
    followed.queue.submit_many("ada", range(300), kind="ocr")
    followed.queue.submit_many("bob", range(30), kind="ocr")

    def load() -> KindLoad:
        followed.measure()
        assert followed.metrics.snapshot is not None
        return followed.metrics.snapshot.loads["ocr"]

    assert (load().waiting, load().held_back) == (330, 0)
    assert load().slots_wanted(1) >= 330
    followed.queue.pause("ada")
    assert (load().waiting, load().held_back) == (330, 300)
    assert 30 <= load().slots_wanted(1) < 40
    followed.queue.pause("bob")
    assert load().slots_wanted(60) <= 6  # for what came lately


def test_what_is_held_back_is_not_unserved_although_no_worker_takes_its_kind(followed: Followed) -> None:
    followed.queue.submit_many("ada", range(3), kind="fax")
    followed.queue.submit("bob", kind="fax")
    assert followed.measure()['fairlane_kind_unserved_documents{kind="fax"}'] == 4
    followed.queue.pause("ada")
    assert followed.measure()['fairlane_kind_unserved_documents{kind="fax"}'] == 1


def test_a_kind_at_its_limit_asks_for_no_more_slots_than_that_and_raises_no_alarm(followed: Followed) -> None:
    register(followed, "w", "ocr", "fax")
    now = followed.queue.engine.now() / 1000
    followed.queue.submit_many("ada", range(3), kind="ocr", now=now - 100)
    followed.queue.limit_kind("ocr", running_max=2)

    def load() -> KindLoad:
        followed.measure()
        assert followed.metrics.snapshot is not None
        return followed.metrics.snapshot.loads["ocr"]

    assert (load().waiting, load().held_back, load().slots_wanted(0.001)) == (3, 0, 2)
    assert urgent_wait(followed) >= 100  # a slot would start it
    followed.queue.engine.claim("w", 3, 60_000, {"ocr": 3})
    assert (load().waiting, load().held_back, load().slots_wanted(0.001)) == (1, 1, 2)
    assert urgent_wait(followed) == 0
    followed.queue.submit_many("bob", range(90), kind="fax")
    claims = followed.queue.engine.claim("w", 90, 60_000, {"ocr": 3, "fax": 3})
    assert {claim.kind for claim in claims} == {"fax"}
    assert followed.measure()["fairlane_overdue_documents"] == 0  # the rules promise nothing of a kind with a limit
    followed.queue.limit_kind("ocr", running_max=None)
    assert load().held_back == 0
    assert followed.measure()["fairlane_overdue_documents"] == 1


def test_a_kind_with_a_rate_asks_for_the_slots_that_its_starts_keep_busy() -> None:
    limit = Kind("ocr", 0, None, 2.0, 1, None, 1)
    load = KindLoad(300, 0, 0, 0.0, 4, "served", 1.0, 3.0, limit)
    assert (load.slots_wanted(30), load.held_back) == (6, 0)
    at_limit = load._replace(limit=limit._replace(held_by="kind rate"))
    assert (at_limit.slots_wanted(30), at_limit.held_back) == (6, 300)  # the same at every moment
    assert load._replace(waiting=1, arrivals_a_second=0.0, usual_seconds=0.001).slots_wanted(30) == 1


# -- what one can alarm on ---------------------------------------------------------------------------------------------


def test_a_flood_that_goes_well_raises_no_alarm(followed: Followed) -> None:
    register(followed, "w", "ocr", "fax")
    followed.queue.submit_many("flood", range(600), kind="ocr")
    followed.measure()
    for number in range(60):
        followed.queue.submit(f"light-{number}", 1, kind="fax" if number % 2 else "ocr")
        take(followed, 11, "ocr", "fax")
        assert followed.measure()["fairlane_overdue_documents"] == 0


def test_documents_that_workers_pass_over_for_longer_than_promised_are_overdue(followed: Followed) -> None:
    register(followed, "w", "ocr", "fax")
    followed.measure()
    followed.queue.submit("ada", 1, kind="fax")
    followed.queue.submit_many("bob", range(40), kind="ocr")
    followed.measure()
    assert take(followed, 16, "ocr") == 16
    assert followed.measure()["fairlane_overdue_documents"] == 0
    take(followed, 1, "ocr")
    assert followed.measure()["fairlane_overdue_documents"] == 1
    followed.queue.pause("ada")  # an operator's wish is no emergency
    assert followed.measure()["fairlane_overdue_documents"] == 0
    followed.queue.resume("ada")
    followed.queue.configure(dispatch="strict")  # which promises nothing
    assert followed.measure()["fairlane_overdue_documents"] == 0


def test_the_longest_wait_of_what_should_be_served_soon(followed: Followed) -> None:
    register(followed, "w", "ocr")
    now = followed.queue.engine.now() / 1000
    for number in range(40):  # the last of them have priority 9: they are meant to wait
        followed.queue.submit("big", number, kind="ocr", now=now - 1000)
    followed.queue.submit("ada", 1, kind="ocr", now=now - 100)
    followed.queue.submit("bob", 1, kind="nobody takes it", now=now - 500)
    assert 1000 <= urgent_wait(followed) < 1100
    followed.queue.pause("big")
    assert 100 <= urgent_wait(followed) < 200
    followed.queue.tune("ada", cap=1)
    followed.queue.engine.claim("w", 1, 60_000, {"ocr": 3})
    followed.queue.submit("ada", 2, kind="ocr", now=now - 90)
    assert urgent_wait(followed) == 0  # ada is at its cap, big is paused, and the other kind has an alarm of its own


# -- over HTTP ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(Path(tmp_path_factory.mktemp("http")))
    running.queue.submit_many("ada", range(90), kind="ocr")
    yield running
    running.close()


def dotted(value: Any, path: str) -> Any:
    """Read a member by its path, as KEDA's metrics-api scaler does with `valueLocation`."""
    for name in path.split("."):
        value = value[name]
    return value


def test_an_autoscaler_reads_how_many_slots_are_wanted(operator: httpx.Client) -> None:
    def wanted(path: str, **query: Any) -> Any:
        return dotted(operator.get("/v1/capacity", params=query).json(), path)

    until(lambda: wanted("waiting") == 90, "the count of what waits")
    assert wanted("kinds.ocr.slots_wanted", target_wait=30) == wanted("slots_wanted", kind="ocr") >= 3
    assert wanted("slots_wanted", target_wait=1) >= 90
    assert (wanted("unserved"), wanted("slots"), wanted("workers")) == (90, 0, 0)
    assert operator.get("/v1/capacity", params={"kind": "never seen"}).json()["slots_wanted"] == 0
    assert operator.get("/v1/capacity", params={"target_wait": 0}).status_code == 422


def members(value: Any) -> Any:
    """Return what a value of JSON is made of: the names of its members, and their types."""
    return {name: members(each) for name, each in value.items()} if isinstance(value, dict) else type(value)


def test_the_response_in_the_docs_has_the_members_of_a_real_one(operator: httpx.Client) -> None:
    written = json.loads(snippet("docs/service.md", '{"target_wait": 30'))

    def measured() -> Any:
        answer = operator.get("/v1/capacity", params={"target_wait": written["target_wait"]}).json()
        return answer if "ocr" in answer["kinds"] else None

    answer = until(measured, "the figures of the kind")
    assert members(written) == members(answer)


def test_the_scaler_in_the_docs_reads_the_slots_wanted_with_a_viewers_key(server: Server) -> None:
    access, scaled = yaml.safe_load_all(snippet("docs/service.md", "apiVersion: keda.sh/v1alpha1"))
    (trigger,) = scaled["spec"]["triggers"]
    assert (trigger["type"], trigger["metadata"]["authMode"]) == ("metrics-api", "bearer")
    assert trigger["authenticationRef"]["name"] == access["metadata"]["name"]
    assert [secret["parameter"] for secret in access["spec"]["secretTargetRef"]] == ["token"]
    assert int(trigger["metadata"]["targetValue"]) > 0
    url = httpx.URL(trigger["metadata"]["url"])
    with server.client(server.viewer) as viewer:

        def wanted() -> Any:
            return dotted(viewer.get(url.raw_path.decode()).raise_for_status().json(), trigger["metadata"]["valueLocation"])

        assert until(wanted, "a slot to be wanted") >= 1
