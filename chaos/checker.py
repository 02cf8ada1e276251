"""Is this history right? Every check reads the records and says in words what is wrong; nothing said is nothing wrong.

Laws:
- An unknown outcome stays unknown: once or not at all, never twice.
- What the store counts is what folding its feed gives.
- The checks of the store hold at every moment; those at rest only when nothing waits or runs any more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from fairlane.core.document import ENDED, TRANSITIONS, ChangeRow
from fairlane.core.policy import STEP, Policy, Standing

from .history import Clients, Document, Ready, Store

CLOSINGS = ("done", "failed", "retried", "released", "expired", "cancelled")
_WAITS = {"ready": "waiting", "delayed": "waiting"}  # the feed does not tell when a delayed document became due
STEPS: dict[str, tuple[set[str | None], str]] = {
    what: ({_WAITS.get(one or "", one) for one in before}, _WAITS.get(after[0], after[0]))
    for what, (before, after) in TRANSITIONS.items()
}


class Life:
    """One document, folded from its lines of the feed."""

    def __init__(self) -> None:
        self.state: str | None = None
        self.token = 0
        self.attempts = 0
        self.endings = 0  # since it was last revived
        self.claims = 0
        self.closing: dict[int, ChangeRow] = {}  # by token: the line that ended that claim
        self.wrong: list[str] = []

    def live(self, line: ChangeRow) -> None:
        """The next line of the feed."""
        before, after = STEPS[line.what]
        if self.state not in before:
            self.wrong.append(f"{line.what} (line {line.number}) although it was {self.state or 'not there'}")
        expected = self.token + (line.what == "claimed")
        if line.token != expected:
            self.wrong.append(f"{line.what} (line {line.number}) has token {line.token}, expected {expected}")
        if line.what in CLOSINGS and self.state == "running":
            self.closing[expected] = line
        self.state, self.token = after, expected
        self._count(line.what)

    def _count(self, what: str) -> None:
        self.claims += what == "claimed"
        self.attempts += (what == "claimed") - (what == "released")
        self.endings += what in ENDED
        if what == "revived":
            self.attempts = self.endings = 0


def lives_of(store: Store) -> dict[str, Life]:
    """Every document's life by its id."""
    lives: dict[str, Life] = defaultdict(Life)
    for line in store.changes:
        if line.document is not None and line.what in STEPS:
            lives[line.document].live(line)
    return dict(lives)


def wrong_in_store(store: Store) -> list[str]:
    """What holds at every moment, from the store's records alone."""
    lives = lives_of(store)
    checks = (_file, _feed, _lives, _counts, _keys, _counters, _lanes, _ready, _priorities)
    return [wrong for check in checks for wrong in check(store, lives)]


def wrong_at_rest(store: Store, clients: Clients) -> list[str]:
    """What holds when everything has ended: the store's records and what the clients saw."""
    lives = lives_of(store)
    checks = (_ended, _acknowledged, _attempted, _claims, _settlements, _cancels)
    return wrong_in_store(store) + [wrong for check in checks for wrong in check(store, lives, clients)]


# -- the store alone -------------------------------------------------------------------------------------------------


def _file(store: Store, _: dict[str, Life]) -> Iterator[str]:
    if store.integrity != "ok":
        yield f"integrity_check: {store.integrity}"


def _feed(store: Store, _: dict[str, Life]) -> Iterator[str]:
    numbers = [line.number for line in store.changes]
    if numbers != list(range(1, len(numbers) + 1)):
        yield "the feed has gaps or repeats"
    claims = sum(line.what == "claimed" for line in store.changes)
    if claims != store.dispatches:
        yield f"{store.dispatches} dispatches were counted and {claims} claims are in the feed"


def _lives(store: Store, lives: dict[str, Life]) -> Iterator[str]:
    for one in store.documents:
        life = lives.get(one.id) or Life()
        yield from (f"document {one.number}: {wrong}" for wrong in life.wrong)
        if _WAITS.get(one.state, one.state) != life.state:
            yield f"document {one.number} is {one.state}, but its lines of the feed end with {life.state}"
        if one.token != life.token:
            yield f"document {one.number} has token {one.token}, but was claimed {life.token} times"
        if one.attempts != life.attempts or not 0 <= one.attempts <= one.attempts_max:
            yield f"document {one.number} has {one.attempts} attempts of {one.attempts_max}, its lines give {life.attempts}"
        if life.endings > 1:
            yield f"document {one.number} ended {life.endings} times"
    for id in lives.keys() - {one.id for one in store.documents}:
        yield f"document {id} is in the feed and nowhere else"


def _counts(store: Store, _: dict[str, Life]) -> Iterator[str]:
    states = Counter((one.customer, _WAITS.get(one.state, one.state)) for one in store.documents)
    for one in store.customers:
        for name in ("waiting", "running", *ENDED):
            counted, folded = getattr(one, name), states[one.id, name]
            if counted != folded:
                yield f"customer {one.id} counts {counted} {name}, its documents give {folded}"


def _keys(store: Store, _: dict[str, Life]) -> Iterator[str]:
    keys = Counter((one.customer, one.key) for one in store.documents if one.key is not None)
    for (customer, key), count in keys.items():
        if count > 1:
            yield f"key {key} of {customer} made {count} documents"


def _counters(store: Store, _: dict[str, Life]) -> Iterator[str]:
    """Every check made a document here, so the documents of a customer replay its counter."""
    policy = Policy()
    own: dict[str, list[Document]] = defaultdict(list)
    for one in store.documents:
        own[one.customer].append(one)
    for customer in store.customers:
        standing = Standing()
        for one in own[customer.id]:
            standing = policy.check(standing, one.checked_ms, STEP)
            if (one.counter, one.priority) != (standing.counter, policy.level(standing.counter)):
                yield f"document {one.number} has counter {one.counter}, priority {one.priority}; by replay {standing.counter}"
        if (customer.counter, customer.updated_ms) != standing[:2]:
            yield f"customer {customer.id} stands at {customer.counter}; replay gives {standing.counter}"


def _lanes(store: Store, _: dict[str, Life]) -> Iterator[str]:
    heads: dict[tuple[str, str, int], Document] = {}
    for one in store.documents:  # by number: the first is the head
        if one.state == "ready":
            heads.setdefault((one.customer, one.kind, one.priority), one)
    for lane in store.lanes:
        head = heads.pop(lane[:3], None)
        expected = (head.number, head.ready_ms) if head else (None, None)
        if (lane.head, lane.head_ready_ms) != expected:
            yield f"lane {lane[:3]} has head {lane.head}, the lowest ready number is {expected[0]}"
        if (lane.start is None) != (head is None):
            yield f"lane {lane[:3]} has start tag {lane.start} and head {expected[0]}"
    for name in heads:
        yield f"lane {name} is missing"


def _ready(store: Store, _: dict[str, Life]) -> Iterator[str]:
    ready = [one for one in store.documents if one.state == "ready"]
    there = {Ready(one.customer, one.kind, one.priority, one.number, one.ready_ms) for one in ready}
    in_lanes = set(store.ready)
    for one in sorted(there - in_lanes):
        yield f"document {one.number} is ready, and not so in its lane"
    for one in sorted(in_lanes - there):
        yield f"document {one.number} is in lane {one[:3]}, and not so among the ready documents"


def _priorities(store: Store, _: dict[str, Life]) -> Iterator[str]:
    ready = Counter(one.priority for one in store.documents if one.state == "ready")
    lanes = Counter(one.priority for one in store.lanes if one.head is not None)
    for one in store.priorities:
        if (one.ready, one.lanes) != (ready[one.priority], lanes[one.priority]):
            yield (
                f"priority {one.priority} counts {one.ready} ready in {one.lanes} lanes, "
                f"there are {ready[one.priority]} in {lanes[one.priority]}"
            )


# -- the store and its clients, at rest ------------------------------------------------------------------------------


def _ended(store: Store, lives: dict[str, Life], _: Clients) -> Iterator[str]:
    for one in store.documents:
        if one.state not in ENDED or lives.get(one.id, Life()).endings != 1:
            yield f"document {one.number} is {one.state} and ended {lives.get(one.id, Life()).endings} times, not once"


def _acknowledged(store: Store, _: dict[str, Life], clients: Clients) -> Iterator[str]:
    there = {one.id: (one.customer, one.key) for one in store.documents}
    for customer, key, id in clients.acknowledged:
        if there.get(id) != (customer, key):
            yield f"key {key} of {customer} was acknowledged as {id}, which is {'another one' if id in there else 'lost'}"


def _attempted(store: Store, _: dict[str, Life], clients: Clients) -> Iterator[str]:
    for one in store.documents:
        if one.key is not None and (one.customer, one.key) not in clients.attempted:
            yield f"document {one.number} has key {one.key} of {one.customer}, which nobody submitted"


def _claims(_: Store, lives: dict[str, Life], clients: Clients) -> Iterator[str]:
    for (id, token), count in Counter(clients.claimed).items():
        if count > 1:
            yield f"token {token} of {id} was given to {count} claimers"
        if id not in lives or token > lives[id].claims:
            yield f"token {token} of {id} was given out, but the feed does not know it"


def _settlements(store: Store, lives: dict[str, Life], clients: Clients) -> Iterator[str]:
    written = {(one.result or "").strip('"') for one in store.documents}
    written |= {line.note.split(" ")[-1] for life in lives.values() for line in life.closing.values() if line.note}
    for one in clients.settlements.values():
        closing = lives[one.id].closing.get(one.token) if one.id in lives else None
        if one.is_accepted is False and one.mark in written:
            yield f"settlement {one.mark} of {one.id}, token {one.token}, was refused and changed something"
        if one.is_accepted and (closing is None or not _closes(one.outcome, closing.what)):
            found = closing.what if closing else "nothing"
            yield f"settlement {one.mark} of {one.id}, token {one.token}, was accepted as {one.outcome}; the feed has {found}"
        if one.is_accepted and one.outcome != "released" and one.mark not in written:
            yield f"settlement {one.mark} of {one.id} was accepted, and what it wrote is lost"
    accepted = Counter((one.id, one.token) for one in clients.settlements.values() if one.is_accepted)
    for (id, token), count in accepted.items():
        if count > 1:
            yield f"token {token} of {id} was settled {count} times"


def _closes(outcome: str, what: str) -> bool:
    return what == outcome or (outcome == "retried" and what == "failed")  # its attempts were spent


def _cancels(store: Store, _: dict[str, Life], clients: Clients) -> Iterator[str]:
    for one in store.documents:
        if one.id in clients.cancelled and one.state != "cancelled":
            yield f"document {one.number} was cancelled, and is {one.state}"
