"""Steering: what operators change in a running queue: priorities by hand, limits of kinds, resets, workers that drain."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fairlane.core.document import validate_text
from fairlane.core.errors import WrongState
from fairlane.engine import Engine

from .audit import Actor, actor_name, cli_actor
from .backlog import BacklogStep, backlog_start, recheck_step, table_step
from .forget import OnProgress
from .kinds import change_limit, read_kind, walk_kinds
from .models import KEEP, Keep, Kind
from .validation import document_id, unknown_document, validate_priority
from .workers import set_drain


class SteeringVerbs:
    """What an operator does with documents, customers, kinds and workers; `Queue` has these verbs."""

    engine: Engine
    actor: Actor | None = None  # who makes the changes; None: the user who runs this program

    def _by(self) -> str:
        """Return who makes a change, as the feed names it."""
        return actor_name(self.actor or cli_actor())

    def prioritize(self, id: str, priority: int) -> None:
        """Set the priority of a waiting document by hand, without a check; it stays until it is set again."""
        validate_priority("priority", priority)
        if self.engine.prioritize([document_id(id)], priority, self._by()):
            return
        row = self.engine.document(id)
        if row is None:
            raise unknown_document(id)
        raise WrongState(f"document {id} is {row.state}; only a waiting document can be given another priority")

    def apply_table(self, customer: str | None = None, *, on_progress: OnProgress = lambda *_: None) -> int:
        """Give waiting documents, of one customer or of all, the priority that the table of now gives; return how many changed.

        It is read from the counter of their check. It goes in small steps; if it is interrupted, call it again.
        """
        if customer is not None:
            validate_text("customer", customer)
        return _all_steps(backlog_start(self.engine), lambda at: table_step(self.engine, customer, at), on_progress)

    def reset(self, customer: str, *, with_backlog: bool = False, on_progress: OnProgress = lambda *_: None) -> int:
        """Set a customer back as if it had never been seen; its documents keep their priorities, unless with its backlog.

        Then its waiting documents are checked again in the order of submission, as if they came now, in small steps; if that is
        interrupted, reset it again. Return how many got another priority.
        """
        start = backlog_start(self.engine) if with_backlog else None
        self.engine.reset(validate_text("customer", customer))
        return _all_steps(start, lambda at: recheck_step(self.engine, customer, at), on_progress)

    def kinds(self) -> Iterator[Kind]:
        """Yield kinds with their limits, by name: that have or had one, that workers take, or of which documents are ready."""
        return walk_kinds(self.engine)

    def kind(self, kind: str) -> Kind:
        """Return a kind with its limit."""
        return read_kind(self.engine, kind)

    def limit_kind(
        self,
        kind: str,
        *,
        running_max: int | Keep | None = KEEP,
        rate: float | Keep | None = KEEP,
        burst: float | Keep = KEEP,
    ) -> Kind:
        """Limit what all workers together do with a kind: documents that run at once, and starts a second, `burst` at once.

        What is not named stays, None is no limit.
        """
        return change_limit(self.engine, kind, running_max, rate, burst)

    def drain_worker(self, worker: str) -> list[str]:
        """Let a worker, by name or instance id, finish what it has and claim no more; return the instance ids."""
        return set_drain(self.engine, worker, True)

    def undrain_worker(self, worker: str) -> list[str]:
        """Let a drained worker claim again; return the instance ids."""
        return set_drain(self.engine, worker, False)


def _all_steps(start: str | None, step: Callable[[str], BacklogStep], on_progress: OnProgress) -> int:
    """Take step after step from a cursor on; return how many documents changed."""
    changed, cursor = 0, start
    while cursor is not None:
        done = step(cursor)
        changed, cursor = changed + done.changed, done.next
        on_progress("reprioritized", changed, 0)
    return changed
