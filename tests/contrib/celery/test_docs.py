"""The modules and commands of docs/celery.md, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fairlane import Queue
from tests.contrib.counters import TABLE
from tests.contrib.modules import adapted, after
from tests.docs.snippets import snippet
from tests.terminal import bash, beside

from .running import open_broker, redis_with_port

LIGHT = after(snippet("docs/celery.md", " from celery import Celery\n+from fairlane.contrib.celery import Fairlane"))
ON_REDIS = after(snippet("docs/celery.md", "+app.conf.update(broker_transport_options"))
VERIFY = snippet("docs/celery.md", "celery -A proj fairlane check")
BRIDGE = after(snippet("docs/celery.md", " from celery import Celery\n+from fairlane.contrib.celery import Bridge"))
RUN = snippet("docs/celery.md", "celery -A proj worker")
# RabbitMQ may drop the last messages of a program that ends at once, if it need not confirm them.
PUBLISH = """python -c '
import proj
proj.app.conf.broker_transport_options.setdefault("confirm_publish", True)
for page in range(4):
    id = proj.ocr.delay("acme", f"{page}.pdf").id
print(id)
'
"""


@pytest.mark.parametrize("name", ["rabbitmq", "redis"])
def test_the_light_way(name: str, tmp_path: Path) -> None:
    module, broker, store = LIGHT, open_broker(name), f"sqlite:///{tmp_path}/counters.db"
    if name == "redis":
        module = re.sub(r"^app\.conf\.update.*\n", ON_REDIS, module, flags=re.MULTILINE)
    (tmp_path / "proj.py").write_text(adapted(module, store, {"amqp://rabbitmq": broker.url}))
    printed = bash(PUBLISH + VERIFY, tmp_path, FAIRLANE_URL=store)
    assert "Workers serve tasks in the order of their priorities, and the counters answer.\n" in printed
    assert re.search(r"^ acme +-3 +2 ", printed, re.MULTILINE)
    numbers = [message["number"] for message in broker.take("celery")]
    assert numbers == [broker.numbers[priority - 1] for priority in TABLE[:4]]


def test_the_bridge(tmp_path: Path) -> None:
    store, servers = f"sqlite:///{tmp_path}/queue.db", f"redis://127.0.0.1:{redis_with_port().port}"
    changes = {"amqp://rabbitmq": f"{servers}/2", "redis://redis": f"{servers}/3"}
    (tmp_path / "proj.py").write_text(adapted(BRIDGE, store, changes))
    id = bash(PUBLISH, tmp_path).strip()
    worker, feeder, check, documents, explain, workers = RUN.replace("1f0c4e5a-…", id).splitlines()
    explained = bash(explain, tmp_path, FAIRLANE_URL=store)
    assert "acme's counter stood at -3 when it was submitted. About 3 documents are ahead of it; no worker takes" in explained
    with beside(worker, tmp_path), beside(feeder, tmp_path), Queue(store) as queue:
        assert queue.wait(id, timeout=60).state == "done"
        printed = bash(f"{check}\n{documents}\n{workers}", tmp_path, FAIRLANE_URL=store)
    assert "Workers take from the broker what they can run, and the store answers.\n" in printed
    assert re.search(rf"^{id} .*  done, attempt 1 ", printed, re.MULTILINE)
    assert re.search(r"^ celery@\S+ .*working", printed, re.MULTILINE)
    assert re.search(r"^ feeder@\S+ .*working", printed, re.MULTILINE)
