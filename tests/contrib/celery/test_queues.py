"""A worker that reads several queues of Redis: the priority decides before the queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from .running import Project, Worker, open_broker

PUBLISH = """
for number in range(23):
    work.apply_async(("whale", f"whale {number}"), queue=f"{app.conf.task_default_queue}-a")
for number in range(6):
    work.apply_async((f"light {number}", f"light {number}"), queue=f"{app.conf.task_default_queue}-b")
"""


@pytest.mark.parametrize("strategy", ["round_robin", "priority"])
def test_on_redis_the_priority_decides_before_the_queue(strategy: str, tmp_path: Path) -> None:
    """Whatever queue_order_strategy is: it orders queues within a priority only."""
    options = {"priority_steps": list(range(9)), "queue_order_strategy": strategy}
    settings = {"broker_transport_options": options}
    project = Project(tmp_path, open_broker("redis"), f"sqlite:///{tmp_path}/counters.db", settings=settings)
    project.publish(PUBLISH)
    with Worker(project, 1, "--queues", f"{project.queue}-a,{project.queue}-b"):
        numbers = [line["number"] for line in project.wait_for(29)]
    assert numbers == sorted(numbers)
    assert numbers[:9] == [0] * 9  # three of the whale, six of the light ones
