"""Settings that defeat priorities: no worker starts with them, and nothing is published to a queue without priorities."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kombu.pools
import pytest
from celery import Celery
from kombu.entity import Queue

from fairlane import BadValue, Mistake
from fairlane.contrib.celery import Fairlane
from fairlane.contrib.celery.verify import SETTINGS, Concurrency, quorum_findings, worker_advice, worker_findings
from fairlane.contrib.publish_check import NEUTRAL

from .running import ROOT, Project, Worker, open_broker

FINE: dict[str, dict[str, Any]] = {
    "amqp://": {"task_queue_max_priority": 9},
    "redis://": {"broker_transport_options": {"priority_steps": list(range(9))}},
}
AppOf = Callable[..., Celery]


@pytest.fixture
def app_of(tmp_path: Path) -> Iterator[AppOf]:
    """Apps whose settings are fine, but for those of a test."""
    made: list[Celery] = []

    def app_of(broker: str, *, fair: Any = None, late: bool | None = None, **settings: Any) -> Celery:
        app = Celery("shop", broker=broker, set_as_current=False)
        app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1)
        app.conf.update({**FINE.get(broker, {}), **settings})
        Fairlane(app, f"sqlite:///{tmp_path}/counters.db", "customer", **(fair or {}))

        @app.task(name="shop.ocr", shared=False, acks_late=late)
        def ocr(customer: str) -> None: ...

        made.append(app)
        return app

    yield app_of
    for app in made:
        app.close()
    kombu.pools.reset()


def found(app: Celery, *, autoscale_max: int | None = None) -> dict[str, str]:
    """What keeps a worker of an app from serving in order, by the name of the setting."""
    concurrency = Concurrency(app.conf.worker_prefetch_multiplier, autoscale_max)
    return {finding.setting: finding.sentence for finding in worker_findings(app, concurrency)}


@pytest.mark.parametrize("broker", FINE)
def test_with_the_settings_of_the_docs_nothing_is_found(app_of: AppOf, broker: str) -> None:
    assert found(app_of(broker)) == {}


@pytest.mark.parametrize("broker", FINE)
@pytest.mark.parametrize(("multiplier", "taken"), [(4, "takes 4 tasks for each process"), (0, "takes all tasks there are")])
def test_prefetching_is_found(app_of: AppOf, broker: str, multiplier: int, taken: str) -> None:
    sentences = found(app_of(broker, worker_prefetch_multiplier=multiplier))
    assert list(sentences) == ["worker_prefetch_multiplier"]
    assert f"worker_prefetch_multiplier is {multiplier}: the worker {taken}" in sentences["worker_prefetch_multiplier"]
    assert sentences["worker_prefetch_multiplier"].endswith("set it to 1")


@pytest.mark.parametrize("broker", FINE)
def test_early_acknowledgement_is_found(app_of: AppOf, broker: str) -> None:
    sentences = found(app_of(broker, task_acks_late=False))
    assert list(sentences) == ["task_acks_late"]
    assert "task_acks_late is False, and tasks are acknowledged when they begin (shop.ocr)" in sentences["task_acks_late"]
    assert found(app_of(broker, task_acks_late=False, late=True)) == {}
    assert list(found(app_of(broker, late=False))) == ["task_acks_late"]


def test_on_redis_a_worker_may_take_what_it_has_processes_for(app_of: AppOf) -> None:
    defaults = {"worker_prefetch_multiplier": 4, "task_acks_late": False, "worker_disable_prefetch": True}
    assert found(app_of("redis://", **defaults)) == {}
    assert set(found(app_of("amqp://", **defaults))) == {
        "worker_prefetch_multiplier",
        "task_acks_late",
    }  # Celery ignores it there


@pytest.mark.parametrize("broker", FINE)
def test_autoscaling_is_found(app_of: AppOf, broker: str) -> None:
    assert "autoscale goes up to 10 processes" in found(app_of(broker), autoscale_max=10)["autoscale"]


@pytest.mark.parametrize(
    ("settings", "queue", "shown"),
    [
        ({"task_queue_max_priority": None}, "celery", "no x-max-priority"),
        ({"task_queue_max_priority": 5}, "celery", "x-max-priority 5"),
        ({"task_queue_max_priority": None, "task_queues": [Queue("celery", max_priority=8)]}, "celery", "x-max-priority 8"),
        ({"task_queues": [Queue("celery"), Queue("bulk", queue_arguments={"x-max-priority": 3})]}, "bulk", "x-max-priority 3"),
    ],
)
def test_queues_of_rabbitmq_without_nine_priorities_are_found(
    app_of: AppOf, settings: dict[str, Any], queue: str, shown: str
) -> None:
    sentences = found(app_of("amqp://", **settings))
    assert list(sentences) == ["task_queue_max_priority"]
    assert f"the queue {queue!r} has {shown}: RabbitMQ serves nine priorities only with 9 or more" in "".join(
        sentences.values()
    )


@pytest.mark.parametrize(
    "queues",
    [
        [Queue("celery", max_priority=9)],
        [Queue("celery", queue_arguments={"x-max-priority": 10})],
        [Queue("celery", queue_arguments={"x-queue-type": "quorum"})],
    ],
)
def test_queues_of_rabbitmq_with_nine_priorities_are_fine(app_of: AppOf, queues: list[Queue]) -> None:
    assert found(app_of("amqp://", task_queue_max_priority=None, task_queues=queues)) == {}


def test_only_the_queues_that_a_worker_reads_are_looked_at(app_of: AppOf) -> None:
    app = app_of("amqp://", task_queue_max_priority=None, task_queues=[Queue("celery", max_priority=9), Queue("plain")])
    assert list(found(app)) == ["task_queue_max_priority"]
    app.amqp.queues.select(["celery"])
    assert found(app) == {}


@pytest.mark.parametrize("steps", [None, [0, 3, 6, 9], list(range(8)), [*range(8, -1, -1)]])
def test_coarse_steps_of_redis_are_found(app_of: AppOf, steps: list[int] | None) -> None:
    options = {} if steps is None else {"priority_steps": steps}
    sentences = found(app_of("redis://", broker_transport_options=options))
    assert list(sentences) == ["priority_steps"]
    assert sentences["priority_steps"].endswith("set it to list(range(9))")


@pytest.mark.parametrize(
    ("version", "is_fine"), [("3.10.8", False), ("4.2.9", False), ("4.3.0", True), ("4.10.1", True), ("5.0.0", True)]
)
def test_quorum_queues_have_enough_priorities_since_4_3(version: str, is_fine: bool) -> None:
    """As the documentation of RabbitMQ says; the server of the tests is older."""
    queues = [Queue("celery", queue_arguments={"x-queue-type": "quorum"}), Queue("other")]
    sentences = [finding.sentence for finding in quorum_findings(queues, version)]
    assert len(sentences) == (0 if is_fine else 1)
    assert is_fine or f"the queue 'celery' is a quorum queue, and this RabbitMQ is {version}" in sentences[0]


def test_other_brokers_are_refused_by_name(app_of: AppOf) -> None:
    app = app_of("memory://")
    message = (
        "the broker of this Celery app is of the type 'memory', and Fairlane knows the priorities of RabbitMQ and Redis only"
    )
    with pytest.raises(Mistake, match=message):
        found(app)
    with pytest.raises(Mistake, match=message):
        app.tasks["shop.ocr"].delay("acme")
    app.tasks["shop.ocr"].delay(None)  # of nobody, and so none of ours


@pytest.mark.parametrize("accept", ["task_acks_late", ("acks_late",)])
def test_a_setting_that_nobody_knows_cannot_be_accepted(app_of: AppOf, accept: Any) -> None:
    with pytest.raises(BadValue, match=r"^accept is .*; it must be a tuple of names among autoscale, priority_steps"):
        app_of("amqp://", fair={"accept": accept})


def test_the_docs_name_every_setting_and_every_option() -> None:
    docs, reference = ((ROOT / "docs" / f"{name}.md").read_text() for name in ("celery", "reference"))
    assert f"at priority {NEUTRAL}" in docs
    assert f"at priority {NEUTRAL}" in reference
    for setting in SETTINGS:
        assert f"`{setting}`" in reference, setting
        assert setting.removeprefix("x-").replace("queue-type", "quorum") in docs, setting
    options = list(signature(Fairlane).parameters)
    assert f"`Fairlane({', '.join([*options[:3], *(f'{option}=' for option in options[3:])])})`" in reference
    for option in (*options, "counts", "verify_counters", "close"):
        assert f"| `{option}" in reference, option


# -- publishing ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broker_name", "bad", "name"),
    [
        ("rabbitmq", {"task_queue_max_priority": None}, "task_queue_max_priority"),
        ("redis", {"broker_transport_options": {}}, "priority_steps"),
        ("rabbitmq", {"task_queue_max_priority": None, "task_default_queue_type": "quorum"}, "x-queue-type"),
    ],
)
def test_nothing_is_published_to_a_queue_without_priorities(
    app_of: AppOf, broker_name: str, bad: dict[str, Any], name: str
) -> None:
    broker, queue = open_broker(broker_name), f"without-{name}"
    settings = {"task_default_queue": queue, **FINE[f"{broker.url.partition(':')[0]}://"], **bad}
    app = app_of(broker.url, **settings)
    for _ in range(2):
        with pytest.raises(Mistake, match=r"; the task was not published$"):
            app.tasks["shop.ocr"].delay("acme")
    assert vars(app)["fairlane"].counts == (0, 0), "and nobody is charged"
    accepting = app_of(broker.url, fair={"accept": (name,)}, **settings)
    accepting.tasks["shop.ocr"].delay("acme")
    assert len(broker.take(queue)) == 1


def test_each_queue_is_verified_when_it_is_first_used(app_of: AppOf) -> None:
    broker = open_broker("rabbitmq")
    queues = [Queue("nine", max_priority=9), Queue("plain")]
    app = app_of(broker.url, task_queue_max_priority=None, task_queues=queues, task_default_queue="nine")
    app.tasks["shop.ocr"].delay("acme")
    with pytest.raises(Mistake, match="the queue 'plain' has no x-max-priority"):
        app.tasks["shop.ocr"].apply_async(("acme",), queue="plain")
    assert len(broker.take("nine")) == 1


# -- a worker --------------------------------------------------------------------------------------------------------------


def defaults_of_celery() -> dict[str, Any]:
    bad = {"worker_prefetch_multiplier": 4, "task_acks_late": False, "task_queue_max_priority": None}
    return {**bad, "broker_transport_options": {}}


@pytest.mark.parametrize("name", ["rabbitmq", "redis"])
def test_a_worker_with_bad_settings_does_not_start(name: str, tmp_path: Path) -> None:
    project = Project(tmp_path, open_broker(name), f"sqlite:///{tmp_path}/counters.db", settings=defaults_of_celery())
    done = project.celery("worker", "--autoscale", "4,1")
    missing = "priority_steps" if name == "redis" else "task_queue_max_priority"
    assert (done.returncode, "Traceback" in done.stderr + done.stdout) == (1, False), done.stderr
    assert "this worker would not serve tasks in the order of their priorities:\n- " in done.stderr
    for setting in ("worker_prefetch_multiplier is 4:", "task_acks_late is False,", missing, "autoscale goes up to 4"):
        assert setting in done.stderr
    assert (
        f'accept=("autoscale", "{missing}", "task_acks_late", "worker_prefetch_multiplier",))'
        in done.stderr.replace('"priority_steps", "task_acks_late"', '"priority_steps", "task_acks_late"')
        or name == "rabbitmq"
    )
    check = project.celery("fairlane", "check")
    assert (check.returncode, check.stdout) == (1, "")
    assert check.stderr.count("\n- ") == 2


@pytest.mark.parametrize("name", ["rabbitmq", "redis"])
def test_a_worker_starts_when_its_settings_are_accepted(name: str, tmp_path: Path) -> None:
    accept = ["worker_prefetch_multiplier", "task_acks_late", "task_queue_max_priority", "priority_steps"]
    store = f"sqlite:///{tmp_path}/counters.db"
    project = Project(tmp_path, open_broker(name), store, settings=defaults_of_celery(), options={"accept": accept})
    check = project.celery("fairlane", "check")
    assert check.stdout.startswith("Workers serve tasks in the order of their priorities, and the counters answer.\n")
    assert check.returncode == 0
    with Worker(project, 1) as worker:
        worker.wait_until_ready()
        logged = worker.log.read_text()
    advice = "tasks without a customer, those of Celery itself among them, have no priority"
    assert (advice in check.stdout, advice in logged) == (name == "rabbitmq", name == "rabbitmq")


def test_with_a_default_priority_there_is_nothing_to_advise(app_of: AppOf) -> None:
    assert len(list(worker_advice(app_of("amqp://")))) == 1
    assert list(worker_advice(app_of("amqp://", task_default_priority=9))) == []
    assert list(worker_advice(app_of("redis://"))) == []


def test_the_command_says_when_the_counters_are_away(tmp_path: Path) -> None:
    project = Project(tmp_path, open_broker("redis"), "redis://127.0.0.1:1/0")
    done = project.celery("fairlane", "check")
    assert done.returncode == 1
    assert "- the server at redis://127.0.0.1:1/0" in done.stderr
    plain = Project(tmp_path, open_broker("redis"), "")
    assert "this app has no Fairlane; add Fairlane(app, url, customer=…)" in plain.celery("fairlane", "check").stderr


def test_a_worker_reads_autoscale_from_its_command_line() -> None:
    fixed = SimpleNamespace(prefetch_multiplier=1, max_concurrency=None, min_concurrency=4)
    same = SimpleNamespace(prefetch_multiplier=1, max_concurrency=4, min_concurrency=4)
    scaled = SimpleNamespace(prefetch_multiplier=2, max_concurrency=8, min_concurrency=2)
    assert [Concurrency.of_worker(worker) for worker in (fixed, same, scaled)] == [(1, None), (1, None), (2, 8)]
