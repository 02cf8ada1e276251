"""The what-if simulation as a program: replays the last hours under the current rules and under others.

It reads the question as JSON from standard input and writes the answer to standard output. The server runs it as a process of
its own, so that it stays responsive meanwhile and can end it.

Laws:
- Both answers come from the simulator, on the same documents: reality is not compared with a simulation.
- It reads at most `CHANGES_MAX` changes.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import Any, NamedTuple

from fairlane.api.feed import first_since, newest
from fairlane.core.errors import FairlaneError, Mistake
from fairlane.queue import Queue
from fairlane.sim.contenders import Contender
from fairlane.sim.history import ATTEMPT_ENDS, current_contender, load_history, read_feed
from fairlane.sim.measures import measure
from fairlane.sim.replay import replay

CHANGES_MAX = 600_000
NICENESS = 10


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Replay the last hours twice."""
    with Queue(question["url"], create=False) as queue:
        after = max(first_since(queue.engine, question["since_ms"]), newest(queue.engine) - CHANGES_MAX)
        period = _measure_period(queue, after)
        workload = load_history(queue, after)
        now = current_contender(queue)
    changed = {name: question[name] for name in ("reset", "reset_interval") if question.get(name) is not None}
    if question.get("thresholds") is not None:
        changed["thresholds"] = tuple(question["thresholds"])
    then = Contender("then", replace(now.rules, policy=replace(now.rules.policy, **changed)), now.terms)
    workers = question.get("workers") or period.running_max
    return {
        "now": measure(replay(workload, now, period.running_max)).as_json(),
        "then": measure(replay(workload, then, workers)).as_json(),
        "documents": len(workload),
        "from": period.first_ms,
        "to": period.last_ms,
        "notes": list(workload.notes),
    }


class Period(NamedTuple):
    """The time that the changes cover, and how many documents ran at once."""

    first_ms: int
    last_ms: int
    running_max: int


def _measure_period(queue: Queue, after: int) -> Period:
    first_ms = last_ms = 0
    running_max, running = 1, set[str]()
    for change in read_feed(queue, after):
        first_ms, last_ms = first_ms or change.at_ms, change.at_ms
        if change.what == "claimed" and change.document is not None:
            running.add(change.document)
            running_max = max(running_max, len(running))
        elif change.what in ATTEMPT_ENDS and change.document is not None:
            running.discard(change.document)
    return Period(first_ms, last_ms, running_max)


def main() -> None:
    """Answer the question on standard input."""
    os.nice(NICENESS)
    question = json.load(sys.stdin)
    try:
        result: dict[str, Any] = answer(question)
    except Mistake as error:
        result = {"mistake": str(error)}
    except FairlaneError:
        result = {"mistake": None}
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
