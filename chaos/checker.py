"""Checks of a run's records; each yields a sentence for every problem.

Laws:
- An unknown outcome stays unknown: it happened once or not at all, never twice.
- The store's counts equal what folding its feed gives.
- The checks of the store hold at every moment; those at rest only when no document waits or runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from fairlane.core.document import ENDED, TRANSITIONS, ChangeRow
from fairlane.core.policy import STEP, Policy, Standing
from fairlane.queue.models import WORKER_EVENTS

from .history import Clients, Document, Ready, StoreSnapshot

CLOSINGS = ("done", "failed", "continued", "split", "retried", "postponed", "released", "expired", "cancelled")
_WAITS = {"ready": "waiting", "delayed": "waiting"}  # the feed has no change for a delayed document that becomes due
STEPS: dict[str, tuple[set[str | None], str]] = {
    what: ({_WAITS.get(state or "", state) for state in before}, _WAITS.get(after[0], after[0]))
    for what, (before, after) in TRANSITIONS.items()
}


class DocumentHistory:
    """The history of one document, folded from its changes in the feed."""

    def __init__(self) -> None:
        self.state: str | None = None
        self.token = 0
        self.attempts = 0
        self.endings = 0  # since it was last revived
        self.claims = 0
        self.closing: dict[int, ChangeRow] = {}  # by token: the change that ended that claim, if it was not taken over
        self.wrong: list[str] = []

    def apply(self, line: ChangeRow) -> None:
        """Apply the next change of the feed."""
        before, after = STEPS[line.what]
        if self.state not in before:
            self.wrong.append(f"{line.what} (line {line.number}) although it was {self.state or 'not there'}")
        expected = self.token + (line.what in WORKER_EVENTS)
        if line.token != expected:
            self.wrong.append(f"{line.what} (line {line.number}) has token {line.token}, expected {expected}")
        if line.what in CLOSINGS and self.state == "running":
            self.closing[expected] = line
        self.state, self.token = after, expected
        self._count(line.what)

    def _count(self, what: str) -> None:
        self.claims += what == "claimed"
        self.attempts += (what == "claimed") - (what in ("released", "postponed"))
        self.endings += what in ENDED
        if what in ("revived", "continued", "split"):
            self.attempts = 0
        if what == "revived":
            self.endings = 0


def fold_feed(store: StoreSnapshot) -> dict[str, DocumentHistory]:
    """Fold the feed into a history for each document id."""
    histories: dict[str, DocumentHistory] = defaultdict(DocumentHistory)
    for line in store.changes:
        if line.document is not None and line.what in STEPS:
            histories[line.document].apply(line)
    return dict(histories)


def check_store(store: StoreSnapshot) -> list[str]:
    """Check what holds at every moment, from the store's records alone."""
    histories = fold_feed(store)
    checks = (_file, _feed, _histories, _counts, _keys, _counters, _lanes, _ready, _tags, _kinds, _priorities, _parts)
    return [wrong for check in checks for wrong in check(store, histories)]


def _parts(store: StoreSnapshot, _: dict[str, DocumentHistory]) -> Iterator[str]:
    """A document waits for as many parts as are not done, as long as these can be done."""
    left = Counter(document.whole for document in store.documents if document.whole is not None and document.state != "done")
    for document in store.documents:
        if document.state == "delayed" and document.parts_left != left[document.id]:
            yield f"document {document.number} waits for {document.parts_left} parts, and {left[document.id]} are not done"


def check_at_rest(store: StoreSnapshot, clients: Clients) -> list[str]:
    """Check what holds when everything has ended, from the store's records and the clients' logs."""
    histories = fold_feed(store)
    checks = (_ended, _acknowledged, _attempted, _claims, _settlements, _cancels)
    return check_store(store) + [wrong for check in checks for wrong in check(store, histories, clients)]


# -- the store alone -------------------------------------------------------------------------------------------------


def _file(store: StoreSnapshot, _: dict[str, DocumentHistory]) -> Iterator[str]:
    if store.integrity != "ok":
        yield f"integrity_check: {store.integrity}"


def _feed(store: StoreSnapshot, _: dict[str, DocumentHistory]) -> Iterator[str]:
    numbers = [line.number for line in store.changes]
    if numbers != list(range(1, len(numbers) + 1)):
        yield "the feed has gaps or repeats"
    claims = sum(line.what == "claimed" for line in store.changes)
    if claims != store.dispatches:
        yield f"{store.dispatches} dispatches were counted and {claims} claims are in the feed"


def _histories(store: StoreSnapshot, histories: dict[str, DocumentHistory]) -> Iterator[str]:
    for document in store.documents:
        history = histories.get(document.id) or DocumentHistory()
        yield from (f"document {document.number}: {wrong}" for wrong in history.wrong)
        if _WAITS.get(document.state, document.state) != history.state:
            yield f"document {document.number} is {document.state}, but its lines of the feed end with {history.state}"
        if document.token != history.token:
            yield f"document {document.number} has token {document.token}, its lines give {history.token}"
        if document.attempts != history.attempts or not 0 <= document.attempts <= document.attempts_max:
            yield (
                f"document {document.number} has {document.attempts} attempts of {document.attempts_max}, "
                f"its lines give {history.attempts}"
            )
        if history.endings > 1:
            yield f"document {document.number} ended {history.endings} times"
    for id in histories.keys() - {document.id for document in store.documents}:
        yield f"document {id} is in the feed and nowhere else"


def _counts(store: StoreSnapshot, _: dict[str, DocumentHistory]) -> Iterator[str]:
    states = Counter((document.customer, _WAITS.get(document.state, document.state)) for document in store.documents)
    for customer in store.customers:
        for name in ("waiting", "running", *ENDED):
            counted, folded = getattr(customer, name), states[customer.id, name]
            if counted != folded:
                yield f"customer {customer.id} counts {counted} {name}, its documents give {folded}"


def _keys(store: StoreSnapshot, _: dict[str, DocumentHistory]) -> Iterator[str]:
    keys = Counter((document.customer, document.key) for document in store.documents if document.key is not None)
    for (customer, key), count in keys.items():
        if count > 1:
            yield f"key {key} of {customer} made {count} documents"


def _counters(store: StoreSnapshot, _: dict[str, DocumentHistory]) -> Iterator[str]:
    """Recompute every counter; in these runs every check has a document, so the documents are all that is needed."""
    policy = Policy()
    own: dict[str, list[Document]] = defaultdict(list)
    for document in store.documents:
        own[document.customer].append(document)
    for customer in store.customers:
        standing = Standing()
        for document in own[customer.id]:
            if document.whole is not None:
                continue  # a part is not checked
            standing = policy.check(standing, document.checked_ms, STEP)
            if (document.counter, document.priority) != (standing.counter, policy.level(standing.counter)):
                yield (
                    f"document {document.number} has counter {document.counter}, priority {document.priority}; "
                    f"by replay {standing.counter}"
                )
        if (customer.counter, customer.updated_ms) != standing[:2]:
            yield f"customer {customer.id} stands at {customer.counter}; replay gives {standing.counter}"


def _lanes(store: StoreSnapshot, _: dict[str, DocumentHistory]) -> Iterator[str]:
    heads: dict[tuple[str, str, int], Document] = {}
    for document in store.documents:  # by number: the first is the head
        if document.state == "ready":
            heads.setdefault((document.customer, document.kind, document.priority), document)
    for lane in store.lanes:
        head = heads.pop(lane[:3], None)
        expected = (head.number, head.ready_ms) if head else (None, None)
        if (lane.head, lane.head_ready_ms) != expected:
            yield f"lane {lane[:3]} has head {lane.head}, the lowest ready number is {expected[0]}"
        if (lane.start is None) != (head is None):
            yield f"lane {lane[:3]} has start tag {lane.start} and head {expected[0]}"
    for name in heads:
        yield f"lane {name} is missing"


def _ready(store: StoreSnapshot, _: dict[str, DocumentHistory]) -> Iterator[str]:
    ready = [document for document in store.documents if document.state == "ready"]
    expected = {
        Ready(document.customer, document.kind, document.priority, document.number, document.ready_ms) for document in ready
    }
    in_lanes = set(store.ready)
    for row in sorted(expected - in_lanes):
        yield f"document {row.number} is ready, and not so in its lane"
    for row in sorted(in_lanes - expected):
        yield f"document {row.number} is in lane {row[:3]}, and not so among the ready documents"


def _tags(store: StoreSnapshot, _: dict[str, DocumentHistory]) -> Iterator[str]:
    """No lane that competes is behind the clock of its kind: it would have turns that it is not owed."""
    if store.kinds is None:
        return
    clocks = {kind.kind: kind.clocks for kind in store.kinds}
    for lane in store.lanes:
        if (lane.start is None) != (lane.competing is None):
            yield f"lane {lane[:3]} has start tag {lane.start}, and the index by age says {lane.competing}"
        if lane.start is None:
            continue
        clock = clocks[lane.kind][lane.priority - 1] if lane.kind in clocks else 0
        if lane.start < clock:
            yield f"lane {lane[:3]} has start tag {lane.start}, below the clock {clock} of its kind"


def _kinds(store: StoreSnapshot, _: dict[str, DocumentHistory]) -> Iterator[str]:
    """The first lane and the oldest head of each kind, by which claims for all kinds go; in these runs no kind has a limit."""
    if store.kinds is None:
        return
    turns: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    ages: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for lane in store.lanes:
        if lane.start is not None and lane.head is not None and lane.head_ready_ms is not None:
            turns[lane.kind].append((lane.priority, lane.start, lane.cross or 0, lane.head))
            ages[lane.kind].append((lane.head_ready_ms, lane.head))
    for kind in store.kinds:
        first, oldest = min(turns.pop(kind.kind, []), default=None), min(ages.get(kind.kind, []), default=None)
        if (kind.first, kind.oldest) != (first, oldest):
            yield f"kind {kind.kind} has {kind.first} and {kind.oldest} as its first, its lanes have {first} and {oldest}"
    for name in turns:
        yield f"kind {name} is missing"


def _priorities(store: StoreSnapshot, _: dict[str, DocumentHistory]) -> Iterator[str]:
    ready = Counter(document.priority for document in store.documents if document.state == "ready")
    lanes = Counter(lane.priority for lane in store.lanes if lane.head is not None)
    for priority in store.priorities:
        if (priority.ready, priority.lanes) != (ready[priority.priority], lanes[priority.priority]):
            yield (
                f"priority {priority.priority} counts {priority.ready} ready in {priority.lanes} lanes, "
                f"there are {ready[priority.priority]} in {lanes[priority.priority]}"
            )


# -- the store and its clients, at rest ------------------------------------------------------------------------------


def _ended(store: StoreSnapshot, histories: dict[str, DocumentHistory], _: Clients) -> Iterator[str]:
    for document in store.documents:
        endings = histories.get(document.id, DocumentHistory()).endings
        if document.state not in ENDED or endings != 1:
            yield f"document {document.number} is {document.state} and ended {endings} times, not once"


def _acknowledged(store: StoreSnapshot, _: dict[str, DocumentHistory], clients: Clients) -> Iterator[str]:
    known = {document.id: (document.customer, document.key) for document in store.documents}
    for customer, key, id in clients.acknowledged:
        if known.get(id) != (customer, key):
            yield f"key {key} of {customer} was acknowledged as {id}, which is {'another one' if id in known else 'lost'}"


def _attempted(store: StoreSnapshot, _: dict[str, DocumentHistory], clients: Clients) -> Iterator[str]:
    for document in store.documents:
        if document.key is not None and (document.customer, document.key) not in clients.attempted:
            yield f"document {document.number} has key {document.key} of {document.customer}, which no client submitted"


def _claims(_: StoreSnapshot, histories: dict[str, DocumentHistory], clients: Clients) -> Iterator[str]:
    for (id, token), count in Counter(clients.claimed).items():
        if count > 1:
            yield f"token {token} of {id} was given to {count} claimers"
        if id not in histories or token > histories[id].token:
            yield f"token {token} of {id} was given out, but the feed does not know it"


def _settlements(store: StoreSnapshot, histories: dict[str, DocumentHistory], clients: Clients) -> Iterator[str]:
    written = {(document.result or "").strip('"') for document in store.documents}
    written |= {line.note.split(" ")[-1] for history in histories.values() for line in history.closing.values() if line.note}
    for settlement in clients.settlements.values():
        closing = histories[settlement.id].closing.get(settlement.token) if settlement.id in histories else None
        if settlement.is_accepted is False and settlement.mark in written:
            yield f"settlement {settlement.mark} of {settlement.id} was refused, yet changed something"
        if settlement.is_accepted and (closing is None or not _closes(settlement.outcome, closing.what)):
            in_feed = closing.what if closing else "nothing"
            yield (
                f"settlement {settlement.mark} of {settlement.id}, token {settlement.token}, was accepted as "
                f"{settlement.outcome}; the feed has {in_feed}"
            )
        is_kept = settlement.outcome not in ("released", "continued")  # what goes on may have another payload by now
        if settlement.is_accepted and is_kept and settlement.mark not in written:
            yield f"settlement {settlement.mark} of {settlement.id} was accepted, and what it wrote is lost"
    accepted = Counter(
        (settlement.id, settlement.token) for settlement in clients.settlements.values() if settlement.is_accepted
    )
    for (id, token), count in accepted.items():
        if count > 1:
            yield f"token {token} of {id} was settled {count} times"


def _closes(outcome: str, what: str) -> bool:
    return what == outcome or (outcome, what) in (("retried", "failed"), ("continued", "split"))  # its attempts were spent


def _cancels(store: StoreSnapshot, _: dict[str, DocumentHistory], clients: Clients) -> Iterator[str]:
    for document in store.documents:
        if document.id in clients.cancelled and document.state != "cancelled":
            yield f"document {document.number} was cancelled, and is {document.state}"
