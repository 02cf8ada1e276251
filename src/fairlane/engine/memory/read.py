"""What is seen of a queue in memory without moving anything."""

from __future__ import annotations

from operator import attrgetter

from fairlane.core.dispatch import estimate_ahead, is_blocked
from fairlane.core.document import WAITING, Change, Customer, Document, Outlook, State
from fairlane.engine.errors import purged_feed_error
from fairlane.engine.protocol import DocumentBody

from .state import Account, Kept


def customer(kept: Kept, customer: str, now_ms: int) -> Customer:
    return _look(kept, kept.accounts.get(customer) or Account(customer), now_ms)


def customers(kept: Kept, after: str, limit: int, now_ms: int) -> list[Customer]:
    ids = sorted(id for id in kept.accounts if id > after)[:limit]
    return [_look(kept, kept.accounts[id], now_ms) for id in ids]


def _look(kept: Kept, account: Account, now_ms: int) -> Customer:
    policy = account.terms.policy(kept.rules.policy)
    heads = [lane.ready[lane.head] for lane in kept.lanes.of(account.id) if lane.head is not None]
    return Customer(
        account.id,
        account.standing,
        policy.next_priority(account.standing, now_ms, account.terms.weight_thousandths),
        policy.resets_in_ms(account.standing, now_ms),
        account.waiting,
        account.running,
        account.done,
        account.failed,
        account.cancelled,
        max(0, now_ms - min(heads)) if heads else None,
        account.terms,
        account.terms_version,
    )


def document(kept: Kept, id: str) -> Document | None:
    entry = kept.entry(id)
    return None if entry is None else entry.snapshot()


def documents(kept: Kept, customer: str | None, state: State | None, before: int | None, limit: int) -> list[Document]:
    wanted = [
        entry.snapshot()
        for entry in kept.entries.values()
        if customer in (None, entry.account.id) and state in (None, entry.state) and (before is None or entry.number < before)
    ]
    return sorted(wanted, key=attrgetter("number"), reverse=True)[:limit]


def body(kept: Kept, id: str) -> DocumentBody | None:
    entry = kept.entry(id)
    return None if entry is None else DocumentBody(entry.payload, entry.result)


def outlook(kept: Kept, id: str, now_ms: int) -> Outlook | None:
    entry = kept.entry(id)
    if entry is None or entry.state not in WAITING:
        return None
    lanes = [lane for lane in kept.lanes.lanes.values() if lane.ready]
    priority = entry.check.priority
    own_key = (entry.account.id, entry.kind, priority)
    same = [one for one in lanes if one.priority == priority and (one.customer, one.kind, priority) != own_key]
    own = kept.lanes.lanes.get(own_key)
    ahead = estimate_ahead(
        before=sum(len(lane.ready) for lane in lanes if lane.priority < priority),
        others=sum(len(lane.ready) for lane in same),
        other_lanes=len(same),
        own_before=sum(number < entry.number for number in own.ready) if own else 0,
    )
    terms = entry.account.terms
    blocked = is_blocked(terms.paused, terms.cap, entry.account.running)
    heads = [one.ready[one.head] for one in lanes if one.head is not None and one.start is not None and one.kind == entry.kind]
    return Outlook(now_ms, ahead, blocked, *kept.pace.recent(now_ms, kept.lanes.dispatches), min(heads, default=None))


def changes(kept: Kept, after: int | None, limit: int) -> list[Change]:
    if after is not None and after < kept.changes_floor:
        raise purged_feed_error(kept.changes_floor, after)
    wanted = [number for number in kept.changes if number > (after or 0)][:limit]
    return [_change(kept, number) for number in wanted]


def _change(kept: Kept, number: int) -> Change:
    at_ms, what, customer, document, token, note = kept.changes[number]
    entry = None if document is None else kept.entries.get(document)
    return Change(number, at_ms, what, customer, None if entry is None else entry.id, token, note)
