"""The what-if simulation as a program: replays the last hours under the current rules and under others.

It reads the question as JSON from standard input and writes the answer to standard output. The server runs it as a process of
its own, so that it stays responsive meanwhile and can end it.

Laws:
- Both answers come from the simulator, on the same documents: reality is not compared with a simulation. What was measured
  stands beside them, and why they differ if they do.
- It reads at most `CHANGES_MAX` changes.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import Any

from fairlane.core.errors import FairlaneError, Mistake
from fairlane.queue import Queue
from fairlane.queue.history import first_since, newest
from fairlane.sim.contenders import Contender
from fairlane.sim.history import current_contender, load_history
from fairlane.sim.measures import measure
from fairlane.sim.replay import replay

CHANGES_MAX = 600_000
NICENESS = 10


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Replay the last hours twice."""
    with Queue(question["url"], create=False) as queue:
        after = max(first_since(queue.engine, question["since_ms"]), newest(queue.engine) - CHANGES_MAX)
        workload, past = load_history(queue, after)
        now = current_contender(queue)
    changed = {name: question[name] for name in ("reset", "reset_interval") if question.get(name) is not None}
    if question.get("thresholds") is not None:
        changed["thresholds"] = tuple(question["thresholds"])
    turns = question.get("turns") or now.rules.turns
    then = Contender("then", replace(now.rules, policy=replace(now.rules.policy, **changed), turns=turns), now.terms)
    observation = past.observation
    measured, simulated = past.measure(), measure(replay(workload, now, observation.running_max))
    return {
        "measured": measured.as_json(),
        "now": simulated.as_json(),
        "then": measure(replay(workload, then, question.get("workers") or observation.running_max)).as_json(),
        "doubts": [doubt._asdict() for doubt in past.doubts(measured, simulated)],
        "documents": len(workload),
        "from": observation.first_ms,
        "to": observation.last_ms,
        "notes": list(workload.notes),
    }


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
