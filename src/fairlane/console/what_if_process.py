"""What would the last hours have looked like under other rules, or with other workers? A program that answers one question.

It reads the question as JSON from standard input and writes the answer to standard output; the server runs it as a process of
its own, so that it stays live meanwhile and can end it.

Laws:
- Both answers come from the simulator, on the same documents: what really happened is not compared with what is simulated.
- It reads at most `CHANGES_MAX` changes.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import Any

from fairlane.api.feed import first_since, newest
from fairlane.core.errors import FairlaneError, Mistake
from fairlane.queue import Queue
from fairlane.sim.contenders import Contender
from fairlane.sim.history import ATTEMPT_ENDS, current_contender, load_history, read_feed
from fairlane.sim.measures import measure
from fairlane.sim.replay import replay

CHANGES_MAX = 600_000
NICER = 10


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Both replays of the last hours."""
    with Queue(question["url"], create=False) as queue:
        after = max(first_since(queue.engine, question["since_ms"]), newest(queue.engine) - CHANGES_MAX)
        busy = _busy(queue, after)
        workload = load_history(queue, after)
        now = current_contender(queue)
    policy = now.rules.policy
    wanted = {name: question[name] for name in ("reset", "reset_interval") if question.get(name) is not None}
    if question.get("thresholds") is not None:
        wanted["thresholds"] = tuple(question["thresholds"])
    then = Contender("then", replace(now.rules, policy=replace(policy, **wanted)), now.terms)
    workers = question.get("workers") or busy.most
    return {
        "now": measure(replay(workload, now, busy.most)).as_json(),
        "then": measure(replay(workload, then, workers)).as_json(),
        "documents": len(workload),
        "from": busy.first_ms,
        "to": busy.last_ms,
        "notes": list(workload.notes),
    }


class _Busy:
    """How many documents ran at once."""

    def __init__(self) -> None:
        self.first_ms = self.last_ms = 0
        self.most = 1


def _busy(queue: Queue, after: int) -> _Busy:
    told, running = _Busy(), set[str]()
    for change in read_feed(queue, after):
        told.first_ms = told.first_ms or change.at_ms
        told.last_ms = change.at_ms
        if change.what == "claimed" and change.document is not None:
            running.add(change.document)
            told.most = max(told.most, len(running))
        elif change.what in ATTEMPT_ENDS and change.document is not None:
            running.discard(change.document)
    return told


def main() -> None:
    """Answer the question on standard input."""
    os.nice(NICER)
    question = json.load(sys.stdin)
    try:
        told: dict[str, Any] = answer(question)
    except Mistake as error:
        told = {"mistake": str(error)}
    except FairlaneError:
        told = {"mistake": None}
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
