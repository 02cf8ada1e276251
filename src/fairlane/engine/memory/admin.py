"""Configure, tune, limits, priorities, reset, records, purge and forget: what operators do with a queue in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from fairlane.core.document import NO_CHECK, WAITING
from fairlane.core.policy import KindLimit, Rules, Terms, operator_reset
from fairlane.engine.codec import encode_kind_limit, encode_priority_change, encode_rules, encode_terms
from fairlane.engine.protocol import Purged, Removed, Reprioritized, Rewrite, TextPart

from .settle import check_again
from .state import DocumentState, KindState, QueueState


def configure(state: QueueState, rules: Rules, now_ms: int) -> Rules | None:
    if rules.version != state.rules.version:
        return None
    is_level = (rules.dispatch, rules.turns) == (state.rules.dispatch, state.rules.turns)
    state.rules = replace(rules, version=rules.version + 1)
    state.lanes.open_turn_every = rules.open_turn_every
    if not is_level:
        state.lanes.level(rules.dispatch)
    state.log(now_ms, "configured", note=encode_rules(state.rules))
    return state.rules


def tune(state: QueueState, customer_id: str, terms: Terms, version: int, now_ms: int) -> int | None:
    known = state.customers.get(customer_id)
    if version != (known.terms_version if known else 0):
        return None
    customer = state.customer(customer_id)
    customer.terms = terms
    customer.terms_version += 1
    state.update_block(customer)
    state.log(now_ms, "tuned", customer, note=encode_terms(terms))
    return customer.terms_version


def reset(state: QueueState, customer_id: str, now_ms: int) -> None:
    customer = state.customers.get(customer_id)
    if customer is not None:
        customer.standing = operator_reset(customer.standing)
        state.log(now_ms, "reset", customer)


def limit_kind(state: QueueState, name: str, limit: KindLimit, version: int, now_ms: int) -> int | None:
    known = state.kinds.get(name)
    if version != (known.version if known else 0):
        return None
    kind = state.kinds[name] = KindState()
    kind.limit, kind.version = limit, version + 1
    kind.running = sum(document.state == "running" and document.kind == name for document in state.documents.values())
    state.update_kind(name, now_ms)
    state.log(now_ms, "limited", note=encode_kind_limit(name, limit))
    return kind.version


def prioritize(state: QueueState, ids: Sequence[str], priority: int, by: str, now_ms: int) -> list[str]:
    waiting = [document for id in ids if (document := state.document(id)) and document.state in WAITING]
    for document in waiting:
        if (document.priority, document.is_set_by_hand) != (priority, True):
            document.is_set_by_hand = True
            _change_priority(state, document, priority, by, now_ms)
    return [document.id for document in waiting]


def _change_priority(state: QueueState, document: DocumentState, priority: int, by: str | None, now_ms: int) -> None:
    """Move a waiting document to the lane of another priority."""
    note = encode_priority_change(document.priority, priority, by)
    if document.state == "ready":
        state.lanes.discard(document.number)
    document.priority = priority
    if document.state == "ready":
        state.enqueue(document)
    state.log(now_ms, "prioritized", document.customer, document, note)


def reprioritize(state: QueueState, customer_id: str, after: int, limit: int, recheck: bool, now_ms: int) -> Reprioritized:
    waiting = [document for document in state.documents.values() if document.state in WAITING and document.number > after]
    waiting = sorted((each for each in waiting if each.customer.id == customer_id), key=attrgetter("number"))
    changed = sum(_reprioritize(state, document, recheck, now_ms) for document in waiting[:limit])
    return Reprioritized(changed, waiting[limit - 1].number if len(waiting) > limit else None)


def _reprioritize(state: QueueState, document: DocumentState, recheck: bool, now_ms: int) -> bool:
    before, customer = document.priority, document.customer
    if recheck and document.resets != NO_CHECK:
        if document.state == "ready":
            state.lanes.discard(document.number)
        note = check_again(state, document, now_ms)
        if document.state == "ready":
            state.enqueue(document)
        state.log(now_ms, "rechecked", customer, document, note)
    elif not recheck and not document.is_set_by_hand:
        level = customer.terms.policy(state.rules.policy).level(document.check.counter_thousandths)
        priority = max(level, document.no_better_than or 1)
        if priority != document.priority:
            _change_priority(state, document, priority, None, now_ms)
    return document.priority != before


def put_record(state: QueueState, group: str, key: str, value: str | None, version: int | None) -> int | None:
    known = state.records.get((group, key))
    if version is not None and version != (known.version if known else 0):
        return None
    if value is None:
        state.records.pop((group, key), None)
        return 0
    return state.write_record(group, key, value)


def rewrite(state: QueueState, part: TextPart, texts: Sequence[Rewrite]) -> int:
    """Replace texts that are still what they were."""
    count = 0
    for number, before, after in texts:
        change, document = state.changes.get(number), state.documents.get(number)
        if part == "note":
            if change is not None and change[-1] == before:
                state.changes[number] = (*change[:-1], after)
                count += 1
        elif document is not None and getattr(document, part) == before:
            setattr(document, part, after)
            count += 1
    return count


def purge(state: QueueState, before_ms: int, limit: int) -> Purged:
    """Delete old changes first and ended documents after: no document may vanish while its changes can still be read."""
    trimmed = _trim_changes(state, before_ms, limit)
    if trimmed == limit:
        return Purged([], trimmed)
    ended = [row for row in state.documents.values() if row.ended_ms is not None and row.ended_ms <= before_ms]
    ended = [row for row in ended if row.whole not in state.numbers]  # parts are kept as long as their whole is
    ended.sort(key=attrgetter("ended_ms", "number"))
    for document in ended[:limit]:
        state.delete(document)
    return Purged([_removed(document) for document in ended[:limit]], trimmed)


def _removed(document: DocumentState) -> Removed:
    return Removed(document.id, document.customer.id, document.token)


def _trim_changes(state: QueueState, before_ms: int, limit: int) -> int:
    old: list[int] = []
    for number, change in state.changes.items():
        if change[0] > before_ms or len(old) == limit:
            break
        old.append(number)
    for number in old:
        del state.changes[number]
        state.changes_floor = number
    return len(old)


def forget(state: QueueState, customer_id: str, limit: int, now_ms: int) -> list[Removed]:
    customer = state.customers.get(customer_id)
    if customer is None:
        return []
    documents = [document for document in state.documents.values() if document.customer is customer]
    documents.sort(key=attrgetter("number"))
    for document in documents[:limit]:
        _forget_document(state, document, now_ms)
    if not documents:
        state.lanes.forget(customer_id)
        del state.customers[customer_id]
        state.changes = {number: change for number, change in state.changes.items() if change[2] != customer_id}
        state.log(now_ms, "forgotten")
    return [_removed(document) for document in documents[:limit]]


def _forget_document(state: QueueState, document: DocumentState, now_ms: int) -> None:
    customer = document.customer
    if document.state == "ready":
        state.lanes.discard(document.number)
    if document.state == "running":
        state.stop_running(document, now_ms)
    else:
        count = "waiting" if document.state in WAITING else document.state
        setattr(customer, count, getattr(customer, count) - 1)
    state.delete(document)
