"""What the bridge makes of a publication: a document for a task of a customer, and an error where it cannot hold one."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kombu.pools
import pytest
from celery import Celery, signals
from kombu.common import Broadcast
from kombu.entity import Exchange

from fairlane import BadValue, LimitReached, Mistake, Queue, StoreError
from fairlane.contrib.celery import Bridge
from fairlane.contrib.celery.message import TaskMessage
from tests.contrib.counters import TABLE

from .running import Project, open_broker
from .test_publishers import EACH, FORK, PUBLISHERS, store_of

MakeApp = Callable[..., Celery]
NOWHERE = "amqp://guest@127.0.0.1:1//"  # the bridge publishes without a broker


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/queue.db"


@pytest.fixture
def make_app(store: str) -> Iterator[MakeApp]:
    made: list[Celery] = []

    def make(customer: Any = "customer", *, bridge: Any = None, broker: str = NOWHERE, **settings: Any) -> Celery:
        app = Celery("shop", broker=broker, set_as_current=False)
        app.conf.update(task_publish_retry=False, **settings)
        Bridge(app, store, customer, **(bridge or {"timeout": 60}))
        made.append(app)
        return app

    yield make
    for app in made:
        vars(app)["fairlane"].close()
        app.close()
    kombu.pools.reset()


@pytest.fixture
def app(make_app: MakeApp) -> Celery:
    return make_app()


def ocr(app: Celery, **options: Any) -> Any:
    @app.task(name="shop.ocr", shared=False, **options)
    def ocr(customer: str | None = None, path: object = "") -> None: ...

    return ocr


def messages(store: str) -> list[TaskMessage]:
    with Queue(store) as queue:
        return [TaskMessage.parse(queue.engine.body(each.id).payload) for each in queue.documents()][::-1]  # type: ignore[union-attr]


def test_without_a_broker_tasks_are_accepted_and_checked_by_the_table(app: Celery, store: str) -> None:
    task = ocr(app)
    ids = [task.delay("acme").id for _ in TABLE]
    with Queue(store) as queue:
        documents = list(queue.documents())[::-1]
    assert [document.id for document in documents] == ids
    assert [document.priority for document in documents] == TABLE
    assert {document.kind for document in documents} == {"celery:celery"}
    assert vars(app)["fairlane"].counts == (len(TABLE), 0)


@pytest.mark.parametrize("store_name", ["postgres", "redis"])
def test_eight_publishers_at_once_leave_the_exact_counter(store_name: str, tmp_path: Path) -> None:
    url = store_of(store_name, tmp_path)
    project = Project(tmp_path, open_broker("rabbitmq"), url, is_bridge=True)
    assert project.publish(FORK, str(PUBLISHERS), str(EACH)) == f"{[0] * PUBLISHERS}\n"
    published = PUBLISHERS * EACH
    with Queue(url) as queue:
        assert queue.look("acme").counter == 1 - published
        priorities = Counter(document.priority for document in queue.documents())
    assert priorities == Counter([*TABLE, *[9] * (published - len(TABLE))])
    assert project.broker.take(project.queue) == []


def test_a_message_is_kept_as_celery_made_it(app: Celery, store: str) -> None:
    seen: list[str] = []

    def add_trace(headers: dict[str, Any], **_: Any) -> None:
        headers["trace"] = "7"

    def note(sender: str, **_: Any) -> None:
        seen.append(sender)

    signals.before_task_publish.connect(add_trace)
    signals.after_task_publish.connect(note)
    try:
        ocr(app).apply_async(("acme", "ż"), queue="gpu", headers={"tenant": "t"}, reply_to="me", expires=60, task_id="my-own")
    finally:
        signals.before_task_publish.disconnect(add_trace)
        signals.after_task_publish.disconnect(note)
    (message,) = messages(store)
    assert (message.task, message.id, message.queue, message.content_type) == ("shop.ocr", "my-own", "gpu", "application/json")
    assert {"trace": "7", "tenant": "t", "id": "my-own", "retries": 0}.items() <= message.headers.items()
    assert message.headers["expires"]
    assert message.properties == {"correlation_id": "my-own", "reply_to": "me"}
    assert '["acme", "\\u017c"]' in str(message.data())
    assert seen == ["shop.ocr"]
    with Queue(store) as queue:
        assert queue.document("my-own").kind == "celery:gpu"


def test_any_serialiser_of_celerys_is_kept(make_app: MakeApp, store: str) -> None:
    app = make_app(task_serializer="pickle", accept_content=["pickle"])
    ocr(app).delay("acme", {1, 2})
    (message,) = messages(store)
    assert (message.content_type, message.is_base64) == ("application/x-python-serialize", True)
    assert isinstance(message.data(), bytes)


def test_a_task_id_that_is_used_again_is_another_document(app: Celery, store: str) -> None:
    task = ocr(app)
    for _ in range(2):
        task.apply_async(("acme",), task_id="nightly")
    with Queue(store) as queue:
        second, first = queue.documents()
    assert first.id == "nightly"
    assert uuid.UUID(second.id).version == 7


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"exchange": "x", "routing_key": "y"}, Mistake, "is published to an exchange, which decides where it goes"),
        ({"queue": Broadcast("everybody")}, Mistake, "is published to an exchange, which decides where it goes"),
        ({"exchange": Exchange("x"), "routing_key": "y"}, Mistake, "name a queue, or leave out its customer"),
        ({"headers": {"when": object()}}, BadValue, r"the message of task shop\.ocr is .* it must be JSON"),
        ({"args": ("acme", "x" * 300_000)}, BadValue, r"the message of task shop\.ocr is .*at most 262,144 bytes"),
        ({"args": (["acme"],)}, BadValue, r"the customer of task shop\.ocr is \['acme'\]"),
        ({"task_id": "x" * 201}, BadValue, "task_id"),
    ],
    ids=str,
)
def test_what_cannot_be_held_is_an_error_and_charges_nobody(
    app: Celery, store: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    task = ocr(app)
    task.delay("acme")
    with pytest.raises(error, match=message):
        task.apply_async(**{"args": ("acme",), **options})
    with Queue(store) as queue:
        assert (queue.look("acme").counter, queue.look("acme").waiting) == (0, 1)


def test_protocol_one_is_refused(make_app: MakeApp) -> None:
    with pytest.raises(Mistake, match="task_protocol is 1; the bridge holds tasks of protocol 2 only"):
        ocr(make_app(task_protocol=1)).delay("acme")


def test_limits_of_a_customer_hold(app: Celery, store: str) -> None:
    with Queue(store) as queue:
        queue.tune("acme", waiting_max=1)
    task = ocr(app)
    task.delay("acme")
    with pytest.raises(LimitReached):
        task.delay("acme")


def test_a_store_that_is_away_is_an_error(make_app: MakeApp, tmp_path: Path) -> None:
    (tmp_path / "queue.db").mkdir()  # no queue can be there
    with pytest.raises(StoreError, match="is a folder, not the file of a queue"):
        ocr(make_app()).delay("acme")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "https://fairlane.example.com"}, "url is 'https://fairlane.example.com'; it must be the store itself"),
        ({"attempts": 0}, "attempts is 0; it must be a whole number from 1 to 100"),
        ({"lease": 0.5}, "lease"),
        ({"timeout": "soon"}, "timeout"),
    ],
)
def test_bad_options_are_refused(store: str, options: dict[str, Any], message: str) -> None:
    app = Celery("shop", set_as_current=False)
    with pytest.raises(BadValue, match=message):
        Bridge(app, **{"url": store, "customer": "customer", **options})
    app.close()


def test_a_priority_by_hand_is_ignored_with_a_warning(app: Celery, store: str, caplog: pytest.LogCaptureFixture) -> None:
    ocr(app).apply_async(("acme",), priority=9)
    with Queue(store) as queue:
        assert [document.priority for document in queue.documents()] == [1]
    assert "shop.ocr is published with a priority; a document has the one that its check gives" in caplog.text
