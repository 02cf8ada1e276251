"""A check is atomic: many producers at once leave the counter where one would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fairlane import Policy, Queue
from tests.engine.conftest import url_of

PROCESSES, EACH = 8, 500
PRODUCER = """
import sys
from fairlane import Queue
with Queue(sys.argv[1]) as queue:
    for number in range(int(sys.argv[2])):
        print(queue.submit("acme", number).counter)
"""


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_eight_processes_of_500_submissions_leave_counters_0_to_minus_3999_each_once(tmp_path: Path, engine: str) -> None:
    url = url_of(engine, tmp_path)
    command = [sys.executable, "-c", PRODUCER, url, str(EACH)]
    producers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    answers = [producer.communicate(timeout=120)[0].split() for producer in producers]
    assert [producer.returncode for producer in producers] == [0] * PROCESSES
    expected = [-number for number in range(PROCESSES * EACH)]
    assert sorted((int(one) for answer in answers for one in answer), reverse=True) == expected
    assert all(sorted(map(int, answer), reverse=True) == list(map(int, answer)) for answer in answers)
    with Queue(url) as queue:
        stored = list(queue.documents("acme"))[::-1]
        assert [document.counter for document in stored] == expected  # in the order of their numbers
        assert [document.priority for document in stored] == [Policy().priority(counter) for counter in expected]
        assert queue.look("acme").counter == -3999
        assert queue.look("acme").waiting == PROCESSES * EACH
