"""How does a document leave a worker, or end? Each by one conditional write on (id, state, token)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairlane.core.document import ENDED, Claim, Done, Failed, Outcome, Released, Retried, State
from fairlane.core.policy import correct_counter, step_of
from fairlane.engine.protocol import EXPIRED, SPENT

from .queries import sql
from .rows import Lane
from .transaction import Transaction


class Moving(NamedTuple):
    """What is needed of a document to change its state."""

    number: int
    id: str
    customer: int
    kind: str
    state: State
    priority: int
    token: int
    attempts: int
    attempts_max: int
    cost: int
    weight: int
    resets: int
    key: str | None
    lease_ms: int | None

    def lane(self, tx: Transaction) -> Lane:
        return tx.lane(self.customer, self.kind, self.priority)


def settle(tx: Transaction, settlements: Sequence[tuple[Claim, Outcome]], now_ms: int) -> list[Claim]:
    """Each claim ends with its outcome; returns the lost ones."""
    tx.flush_documents()
    return [claim for claim, outcome in settlements if not _settled(tx, claim, outcome, now_ms)]


def _settled(tx: Transaction, claim: Claim, outcome: Outcome, now_ms: int) -> bool:
    if isinstance(outcome, Done) and outcome.cost is None:  # the usual case in one statement
        row = tx.execute(sql.finish_document, (now_ms, claim.number, claim.id, claim.token)).fetchone()
        if row is not None:
            _is_done(tx, claim, tx.lane(*row), outcome.result, now_ms)
        return row is not None
    row = tx.execute(sql.read_held, (claim.number, claim.id, claim.token)).fetchone()
    if row is None:
        return False
    moving = Moving(*row)
    _correct_cost(tx, moving, claim.customer, outcome.cost, now_ms)
    match outcome:
        case Done():
            tx.execute(sql.finish_document, (now_ms, claim.number, claim.id, claim.token)).fetchall()
            _is_done(tx, claim, moving.lane(tx), outcome.result, now_ms)
        case Failed():
            end(tx, moving, "failed", now_ms, outcome.reason)
        case Released():
            _come_back(tx, moving, "released", now_ms, attempts=moving.attempts - 1)
        case Retried() if moving.attempts >= moving.attempts_max:
            reason = SPENT.format(attempts=moving.attempts, attempts_max=moving.attempts_max, reason=outcome.reason)
            end(tx, moving, "failed", now_ms, reason)
        case Retried():
            _come_back(tx, moving, "retried", now_ms, moving.attempts, outcome.after_ms, outcome.reason)
    return True


def _is_done(tx: Transaction, claim: Claim, lane: Lane, result: str | None, now_ms: int) -> None:
    lane.done += 1
    tx.stopped_running(lane)
    if result is not None:
        tx.execute(sql.add_result, (claim.number, result))
    tx.log(now_ms, "done", lane.customer, claim.number, claim.token)


def _correct_cost(tx: Transaction, moving: Moving, customer_id: str, cost: int | None, now_ms: int) -> None:
    if cost is None or cost == moving.cost:
        return
    account = tx.account(customer_id)
    before, after = step_of(moving.cost, moving.weight), step_of(cost, moving.weight)
    account.standing = correct_counter(account.standing, moving.resets, before, after)
    tx.account_changed(account)
    tx.execute(sql.correct_cost, (cost, moving.number))
    tx.log(now_ms, "corrected", moving.customer, moving.number, moving.token, f"{moving.cost} {cost}")


def end(tx: Transaction, moving: Moving, state: State, now_ms: int, reason: str | None = None) -> None:
    """A document that has not ended ends as failed or cancelled."""
    tx.execute(sql.end_document, (state, now_ms, reason, moving.number, moving.state, moving.token))
    lane = moving.lane(tx)
    if state == "failed":
        lane.failed += 1
    else:
        lane.cancelled += 1
    _no_longer(tx, moving, lane)
    tx.log(now_ms, state, moving.customer, moving.number, moving.token, reason)


def _no_longer(tx: Transaction, moving: Moving, lane: Lane) -> None:
    """A document whose row was already changed no longer waits or runs."""
    if moving.state == "running":
        tx.stopped_running(lane)
        return
    if moving.state == "ready":
        tx.leave_lane(lane, moving.number)
    lane.waiting -= 1


def _come_back(
    tx: Transaction,
    moving: Moving,
    what: str,
    now_ms: int,
    attempts: int,
    after_ms: int = 0,
    note: str | None = None,
) -> None:
    state, ready_ms = ("delayed" if after_ms else "ready"), now_ms + after_ms
    tx.execute(sql.return_document, (state, ready_ms, attempts, moving.number, moving.token))
    lane = moving.lane(tx)
    lane.waiting += 1
    tx.stopped_running(lane)
    if state == "ready":
        tx.join_lane(lane, moving.number, ready_ms)
    tx.log(now_ms, what, moving.customer, moving.number, moving.token, note)


def extend(tx: Transaction, claims: Sequence[Claim], until_ms: int) -> list[Claim]:
    """Longer leases; returns the lost claims."""
    tx.flush_documents()
    return [one for one in claims if not _extended(tx, one, until_ms)]


def _extended(tx: Transaction, claim: Claim, until_ms: int) -> bool:
    return bool(tx.execute(sql.extend_lease, (until_ms, claim.number, claim.id, claim.token)).fetchall())


def reclaim(tx: Transaction, limit: int, now_ms: int) -> int:
    """Documents whose lease ran out go back, or fail."""
    tx.flush_documents()
    expired = [Moving(*row) for row in tx.execute(sql.expired_documents, (now_ms, limit))]
    for moving in expired:
        if moving.attempts >= moving.attempts_max:
            reason = EXPIRED.format(attempts=moving.attempts, attempts_max=moving.attempts_max)
            end(tx, moving, "failed", now_ms, reason)
        else:
            _come_back(tx, moving, "expired", now_ms, moving.attempts)
    return len(expired)


def cancel(tx: Transaction, ids: Sequence[str], now_ms: int) -> list[str]:
    """What has not ended ends as cancelled."""
    tx.flush_documents()
    cancelled = []
    for id in ids:
        row = tx.execute(sql.read_moving, (id,)).fetchone()
        if row is None or row[4] in ENDED:
            continue
        end(tx, Moving(*row), "cancelled", now_ms)
        cancelled.append(id)
    return cancelled


def retry(tx: Transaction, id: str, now_ms: int) -> bool:
    """A failed document gets another round of attempts."""
    tx.flush_documents()
    row = tx.execute(sql.read_moving, (id,)).fetchone()
    if row is None or row[4] != "failed":
        return False
    moving = Moving(*row)
    tx.execute(sql.revive_document, (now_ms, moving.number, moving.token))
    lane = moving.lane(tx)
    lane.failed -= 1
    lane.waiting += 1
    tx.join_lane(lane, moving.number, now_ms)
    tx.log(now_ms, "revived", moving.customer, moving.number, moving.token)
    return True


def forget_document(tx: Transaction, moving: Moving) -> None:
    """A document in whatever state is erased."""
    drop_document(tx, moving.number, moving.customer, moving.key)
    lane = moving.lane(tx)
    if moving.state in ENDED:
        setattr(lane, moving.state, getattr(lane, moving.state) - 1)
    else:
        _no_longer(tx, moving, lane)


def drop_document(tx: Transaction, number: int, customer: int, key: str | None) -> None:
    """A document's rows go."""
    for statement in (sql.drop_progress, sql.drop_document, sql.drop_payload, sql.drop_result):
        tx.execute(statement, (number,))
    if key is not None:
        tx.execute(sql.drop_key, (customer, key))
