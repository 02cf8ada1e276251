"""How claims leave the worker: outcomes on their way to the store, and claims that were lost.

Laws:
- Every claim leaves in one way: settled or lost, counted once and reported once.
- A lost claim is never sent to the store. What is on its way there is for the store to decide.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from fairlane.core.document import Claim, Continued, Done, Failed, Outcome, Released, Retried

from .claims import ActiveClaim, Claims
from .hooks import Hooks
from .progress import ProgressStore
from .store import Exchange, Settlement

SETTLE_AT_ONCE = 500


class Summary(NamedTuple):
    """What became of the documents that a worker had in one run."""

    done: int = 0
    failed: int = 0
    retried: int = 0
    released: int = 0
    lost: int = 0
    postponed: int = 0
    continued: int = 0  # they went on to their next step, or were split into parts


class Outbox:
    """Outcomes that are not settled yet, and the count of those that are."""

    def __init__(
        self,
        claims: Claims,
        progress: ProgressStore,
        hooks: Hooks,
        wake: Callable[[], None],
        on_lost: Callable[[Claim], None] = lambda _: None,
    ) -> None:
        self._claims = claims
        self._progress = progress
        self._hooks = hooks
        self._on_lost = on_lost
        self._wake = wake  # the run loop: there is something to settle
        self._finished: deque[ActiveClaim] = deque()
        self._sending: list[ActiveClaim] = []
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._finished) + len(self._sending)

    def add(self, active: ActiveClaim, outcome: Outcome) -> None:
        """Add the outcome of a claim, unless it has one or was lost."""
        if not active.is_lost and active.outcome is None:
            active.outcome = outcome
            self._finished.append(active)
        self._wake()

    def next_batch(self) -> list[Settlement]:
        """Return what to settle next; `confirm` must follow."""
        self._sending = [self._finished.popleft() for _ in range(min(len(self._finished), SETTLE_AT_ONCE))]
        return [(active.claim, active.outcome or Released()) for active in self._sending]

    def confirm(self, exchange: Exchange) -> None:
        """Drop what the store has settled of the last batch, and keep the rest for the next."""
        sent, self._sending = self._sending, []
        self._finished.extendleft(reversed(sent[exchange.settled :]))
        lost = {(claim.id, claim.token) for claim in exchange.lost}
        for active in sent[: exchange.settled]:
            if (active.claim.id, active.claim.token) in lost:
                self.lose(active, "the store refused its outcome: the lease had been lost, or the document was cancelled")
            else:
                self._settled(active)

    def _settled(self, active: ActiveClaim) -> None:
        self._claims.drop(active)
        state, reason = new_state(active)
        self._counts[state] += 1
        self._progress.forget(active.claim, isinstance(active.outcome, Done | Continued))
        facts = active.facts()
        name = "unfinished" if state in ("failed", "retried") else "finished"
        self._hooks.emit(name, outcome=state, reason=reason, seconds=active.seconds, **facts)

    def lose(self, active: ActiveClaim, reason: str) -> bool:
        """Drop a claim that is no longer ours; False if its outcome is on its way to the store."""
        if active in self._sending:
            return False
        if active in self._finished:
            self._finished.remove(active)
        active.is_lost = True
        self._claims.drop(active)
        self._counts["lost"] += 1
        self._on_lost(active.claim)
        self._progress.forget(active.claim, is_done=False)
        self._hooks.emit("lost", reason=reason, **active.facts())
        return True

    def give_up_batch(self) -> None:
        """Wait no longer for the answer about what is on its way: it may be lost now."""
        self._sending = []

    def summary(self) -> Summary:
        """Return what became of the documents so far."""
        return Summary(**self._counts)


def new_state(active: ActiveClaim) -> tuple[str, str | None]:
    """Return what the store made of an outcome, and why."""
    match active.outcome:
        case Done():
            return "done", None
        case Continued():
            return "continued", None
        case Failed(reason=reason):
            return "failed", reason
        case Retried(reason=reason, counted=False):
            return "postponed", reason
        case Retried(reason=reason):
            return ("failed" if active.claim.attempts >= active.claim.attempts_max else "retried"), reason
        case _:
            return "released", None
