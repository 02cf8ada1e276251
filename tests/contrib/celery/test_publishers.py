"""Many publishers at once leave the counter exactly where one would, also when they are forked."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fairlane import Queue
from tests.servers import postgres, redis

from .running import Project, open_broker
from .test_publish import TABLE

PUBLISHERS, EACH = 8, 12
FORK = """
import os
app.fairlane.verify_counters()  # opens the store, as a server that loads the project before it forks may have
children = []
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if not pid:
        status = 1
        try:
            for _ in range(int(sys.argv[2])):
                work.delay("acme")
            status = 0 if app.fairlane.counts == (int(sys.argv[2]), 0) else 2
        finally:
            os._exit(status)
    children.append(pid)
print([os.waitpid(pid, 0)[1] for pid in children])
"""


def store_of(name: str, folder: Path) -> str:
    if name == "postgres":
        return postgres.empty_queue(postgres.shared(), "tests_celery")
    return redis.shared("redis").url() if name == "redis" else f"sqlite:///{folder}/counters.db"


@pytest.mark.parametrize(("name", "store_name"), [("rabbitmq", "postgres"), ("redis", "sqlite"), ("redis", "redis")])
def test_eight_publishers_at_once_leave_the_exact_counter(name: str, store_name: str, tmp_path: Path) -> None:
    store = store_of(store_name, tmp_path)
    project = Project(tmp_path, open_broker(name), store)
    assert project.publish(FORK, str(PUBLISHERS), str(EACH)) == f"{[0] * PUBLISHERS}\n"
    published = PUBLISHERS * EACH
    with Queue(store) as queue:
        assert queue.look("acme").counter == 1 - published
    messages = project.broker.take(project.queue)
    expected = Counter([*TABLE, *[9] * (published - len(TABLE))])
    assert Counter(message["headers"]["fairlane"]["priority"] for message in messages) == expected
    assert Counter(project.broker.numbers.index(message["number"]) + 1 for message in messages) == expected
