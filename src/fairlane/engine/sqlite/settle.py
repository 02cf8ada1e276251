"""Extend, take over, settle, reclaim, cancel and retry: each by one conditional write on (id, state, token).

What the end of a part does to its whole, and the end of a whole to its parts, is done after everything else in the same call.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.core.dispatch import USUAL_SHARE_OF_ALL, next_usual
from fairlane.core.document import (
    ENDED,
    NEVER_MS,
    CheckRow,
    Claim,
    Continued,
    DocumentRow,
    Done,
    Failed,
    Outcome,
    Released,
    Retried,
    State,
)
from fairlane.core.policy import step_of, weight_of
from fairlane.engine.codec import encode_check
from fairlane.engine.limits import refuse_retry, text_bytes
from fairlane.engine.protocol import ATTEMPTS, ATTEMPTS_KEPT, EXPIRED, PART_FAILED, SPENT, attempt_key

from .limits import customer_limits, usage_of
from .queries import sql
from .read import decode_document
from .rows import EndedRelative, LaneRow, TransitionRow
from .submit import Submitter, add_parts
from .transaction import Transaction


def extend(tx: Transaction, claims: Sequence[Claim], until_ms: int) -> list[Claim]:
    """Extend leases; return the lost claims."""
    tx.flush_documents()
    return [claim for claim in claims if not _extend(tx, claim, until_ms)]


def _extend(tx: Transaction, claim: Claim, until_ms: int) -> bool:
    return bool(tx.execute(sql.extend_lease, (until_ms, claim.number, claim.id, claim.token)).fetchall())


def take_over(tx: Transaction, id: str, token: int, worker: str, until_ms: int, now_ms: int) -> Claim | None:
    """Give a running claim to another worker under a new token; return None if it was lost."""
    tx.flush_documents()
    row = tx.execute(sql.take_over_document, (worker, until_ms, id, token)).fetchone()
    if row is None:
        return None
    customer, number, *columns = row
    tx.log(now_ms, "taken_over", customer, number, token + 1, worker)
    return Claim._make((id, token + 1, number, *columns, until_ms, 0, False))


def settle(tx: Transaction, settlements: Sequence[tuple[Claim, Outcome]], now_ms: int) -> list[Claim]:
    """End each claim with its outcome; return the lost ones."""
    tx.flush_documents()
    lost, splits = [], []
    for claim, outcome in settlements:
        if not _settle(tx, claim, outcome, now_ms):
            lost.append(claim)
        elif isinstance(outcome, Continued) and outcome.parts:
            splits.append((claim.id, outcome.parts))
    for whole, parts in splits:
        add_parts(tx, whole, parts, now_ms)
    _end_families(tx, now_ms)
    return lost


def _settle(tx: Transaction, claim: Claim, outcome: Outcome, now_ms: int) -> bool:
    """Settle one claim; return False if it was lost."""
    if isinstance(outcome, Done) and outcome.cost is None:  # the usual case in one statement
        return _finish(tx, claim, outcome, now_ms)
    row = tx.execute(sql.read_claimed_document, (claim.number, claim.id, claim.token)).fetchone()
    if row is None:
        return False
    document = TransitionRow(*row)
    _correct_cost(tx, document, claim.customer, outcome.cost, now_ms)
    if not isinstance(outcome, Done):
        _true_up(tx, tx.lane(*document.lane_key), document.claimed_ms, document.paid, now_ms)
    match outcome:
        case Done():
            _finish(tx, claim, outcome, now_ms)
        case Continued():
            _continue(tx, document, outcome, now_ms)
        case Failed():
            _end(tx, document, "failed", now_ms, outcome.reason)
        case Released():
            _requeue(tx, document, "released", now_ms, attempts=document.attempts - 1)
        case Retried():
            _retry_later(tx, document, outcome, now_ms)
    _keep_details(tx, claim, outcome)
    return True


def _retry_later(tx: Transaction, document: TransitionRow, outcome: Retried, now_ms: int) -> None:
    """Make a document wait for another attempt, or fail it if its attempts are spent."""
    if not outcome.counted:
        _requeue(tx, document, "postponed", now_ms, document.attempts - 1, outcome.after_ms, outcome.reason)
    elif document.attempts >= document.attempts_max:
        reason = SPENT.format(attempts=document.attempts, attempts_max=document.attempts_max, reason=outcome.reason)
        _end(tx, document, "failed", now_ms, reason)
    else:
        _requeue(tx, document, "retried", now_ms, document.attempts, outcome.after_ms, outcome.reason)


def _keep_details(tx: Transaction, claim: Claim, outcome: Outcome) -> None:
    """Keep the details of an attempt, if it has any, and those of the claims shortly before it."""
    if not isinstance(outcome, Retried | Failed) or outcome.details is None:
        return
    if claim.token > ATTEMPTS_KEPT:
        tx.execute(sql.delete_old_attempts, (f"{claim.id}:", attempt_key(claim.id, claim.token - ATTEMPTS_KEPT)))
    tx.write_record(ATTEMPTS, attempt_key(claim.id, claim.token), outcome.details)


def _finish(tx: Transaction, claim: Claim, outcome: Done, now_ms: int) -> bool:
    """Finish a document and store its result; return False if the claim was lost."""
    size = text_bytes(outcome.result) + outcome.file_bytes
    row = tx.execute(sql.finish_document, (now_ms, size, claim.number, claim.id, claim.token)).fetchone()
    if row is None:
        return False
    *lane_key, claimed_ms, paid, is_counted, whole = row
    lane = tx.lane(*lane_key)
    _true_up(tx, lane, claimed_ms, paid, now_ms)
    lane.done += 1
    lane.bytes += size if is_counted else 0
    tx.stop_running(lane, now_ms)
    if outcome.result is not None:
        tx.execute(sql.add_result, (claim.number, outcome.result))
    tx.log(now_ms, "done", lane.customer, claim.number, claim.token)
    if whole is not None:
        tx.ended_relatives.append(EndedRelative(claim.number, claim.id, "done", whole, 0, None))
    return True


def _true_up(tx: Transaction, lane: LaneRow, claimed_ms: int | None, paid: int | None, now_ms: int) -> None:
    """Charge the lane of an attempt that ends what it took more than was paid, and note what attempts usually take."""
    if claimed_ms is None:  # claimed by an older version
        return
    taken = max(0, now_ms - claimed_ms) * 1000
    if paid is not None and tx.rules.turns == "time" and tx.rules.dispatch == "fair":
        tx.true_up(lane, max(1, taken // weight_of(tx.terms(lane.customer).terms)) - paid)
    tx.usuals.add(lane.customer, taken)
    tx.usual_of_all = next_usual(tx.usual_of_all, taken, USUAL_SHARE_OF_ALL)


def _correct_cost(tx: Transaction, document: TransitionRow, customer_id: str, cost: int | None, now_ms: int) -> None:
    if cost is None or cost == document.cost:
        return
    customer = tx.customer(customer_id)
    more = step_of(cost, document.weight) - step_of(document.cost, document.weight)
    policy = tx.terms(customer.number).terms.policy(tx.rules.policy)
    customer.standing = policy.correct(customer.standing, document.checked_ms, document.resets, more)
    tx.mark_changed(customer)
    tx.execute(sql.correct_cost, (cost, document.number))
    tx.log(now_ms, "corrected", document.customer, document.number, document.token, f"{document.cost} {cost}")


def _end(tx: Transaction, document: TransitionRow, state: State, now_ms: int, reason: str | None = None) -> None:
    """End a document as failed or cancelled."""
    tx.execute(sql.end_document, (state, now_ms, reason, document.number, document.state, document.token))
    lane = tx.lane(*document.lane_key)
    if state == "failed":
        lane.failed += 1
    else:
        lane.cancelled += 1
    _uncount(tx, document, lane, now_ms)
    tx.log(now_ms, state, document.customer, document.number, document.token, reason)
    if document.whole is not None or document.parts_left:
        tx.ended_relatives.append(
            EndedRelative(document.number, document.id, state, document.whole, document.parts_left, reason)
        )


def _continue(tx: Transaction, document: TransitionRow, outcome: Continued, now_ms: int) -> None:
    """Make a running document wait as another kind: until its parts are done, if it has any."""
    state, ready_ms = ("delayed", NEVER_MS) if outcome.parts else ("ready", now_ms)
    (size_before,) = tx.execute(sql.payload_bytes, (document.number,)).fetchone()
    added, count = text_bytes(outcome.payload) - size_before + outcome.file_bytes, len(outcome.parts)
    columns = (outcome.kind, state, ready_ms, added, count, count)
    tx.execute(sql.continue_document, (*columns, document.number, document.token))
    tx.execute(sql.replace_payload, (outcome.payload, document.number))
    lane, other = tx.lane(*document.lane_key), tx.lane(document.customer, outcome.kind, document.priority)
    other.waiting += 1
    if document.bytes is not None:
        lane.documents, lane.bytes = lane.documents - 1, lane.bytes - document.bytes
        other.documents, other.bytes = other.documents + 1, other.bytes + document.bytes + added
    tx.stop_running(lane, now_ms)
    if state == "ready":
        tx.join_lane(other, document.number, ready_ms)
    what = "split" if outcome.parts else "continued"
    tx.log(now_ms, what, document.customer, document.number, document.token, outcome.kind)


def _end_families(tx: Transaction, now_ms: int) -> None:
    """Count parts that are done towards their wholes; with a part that failed or was cancelled end its whole, and with a
    whole its other parts."""
    if not tx.ended_relatives:
        return
    tx.flush_documents()
    for ended in tx.ended_relatives:  # which grows
        if ended.whole is not None and ended.state == "done":
            _count_part(tx, ended.whole, now_ms)
        elif ended.whole is not None:
            whole = _read_document(tx, ended.whole)
            if whole is not None and whole.state == "delayed" and whole.parts_left:
                reason = PART_FAILED.format(id=ended.id, reason=ended.reason) if ended.state == "failed" else None
                _end(tx, whole, ended.state, now_ms, reason)
        if ended.parts_left:
            for row in tx.execute(sql.parts_to_cancel, (ended.number,)).fetchall():
                _end(tx, TransitionRow(*row), "cancelled", now_ms)
    tx.ended_relatives.clear()


def _count_part(tx: Transaction, whole: str, now_ms: int) -> None:
    row = tx.execute(sql.count_part, (whole,)).fetchone()
    if row is None:
        return
    number, *lane_key, token, is_last = row
    if is_last:
        tx.execute(sql.join_document, (now_ms, number, token))
        lane = tx.lane(*lane_key)
        tx.join_lane(lane, number, now_ms)
        tx.log(now_ms, "joined", lane.customer, number, token)


def _uncount(tx: Transaction, document: TransitionRow, lane: LaneRow, now_ms: int) -> None:
    """Count a document no longer as waiting or running, after its row was changed."""
    if document.state == "running":
        tx.stop_running(lane, now_ms)
        return
    if document.state == "ready":
        tx.leave_lane(lane, document.number)
    lane.waiting -= 1


def _requeue(
    tx: Transaction,
    document: TransitionRow,
    what: str,
    now_ms: int,
    attempts: int,
    after_ms: int = 0,
    note: str | None = None,
) -> None:
    """Make a running document wait again."""
    state, ready_ms = ("delayed" if after_ms else "ready"), now_ms + after_ms
    tx.execute(sql.requeue_document, (state, ready_ms, attempts, document.number, document.token))
    lane = tx.lane(*document.lane_key)
    lane.waiting += 1
    tx.stop_running(lane, now_ms)
    if state == "ready":
        tx.join_lane(lane, document.number, ready_ms)
    tx.log(now_ms, what, document.customer, document.number, document.token, note)


def reclaim(tx: Transaction, limit: int, now_ms: int) -> int:
    """Return documents with an expired lease to their lanes, or fail them."""
    tx.flush_documents()
    expired = [TransitionRow(*row) for row in tx.execute(sql.read_expired_documents, (now_ms, limit))]
    for document in expired:
        if document.attempts >= document.attempts_max:
            reason = EXPIRED.format(attempts=document.attempts, attempts_max=document.attempts_max)
            _end(tx, document, "failed", now_ms, reason)
        else:
            _requeue(tx, document, "expired", now_ms, document.attempts)
    _end_families(tx, now_ms)
    return len(expired)


def cancel(tx: Transaction, ids: Sequence[str], now_ms: int) -> list[str]:
    """Cancel documents that have not ended."""
    tx.flush_documents()
    cancelled = []
    for id in ids:
        document = _read_document(tx, id)
        if document is not None and document.state not in ENDED:
            _end(tx, document, "cancelled", now_ms)
            cancelled.append(id)
    _end_families(tx, now_ms)
    return cancelled


def retry(tx: Transaction, id: str, as_customer: bool, now_ms: int) -> bool:
    """Give a failed document another round of attempts; for its customer with a check."""
    tx.flush_documents()
    row = tx.execute(sql.read_snapshot, (id,)).fetchone()
    if row is None or (before := decode_document(row)).state != "failed" or _is_kept(tx, before.whole):
        return False
    customer = tx.customer(before.customer)
    limits = customer_limits(tx, customer)
    refuse_retry(id, customer.id, before.retries if as_customer else None, lambda: usage_of(tx, customer).waiting, limits)
    lane = tx.lane(customer.number, before.kind, before.priority)
    lane.failed -= 1
    note = None
    if as_customer:
        check, priority = check_again(tx, before, now_ms, retries=1)
        note = encode_check(check, before.cost, before.check)
        change_lane(tx, lane, priority, before)
    document = _read_document(tx, id)
    assert document is not None
    revived = [document]
    _revive(tx, document, now_ms, note)
    for whole in revived:  # which grows
        rows = tx.execute(sql.parts_to_revive, (whole.number,)).fetchall() if whole.parts_left else ()
        for part in map(TransitionRow._make, rows):
            lane = tx.lane(*part.lane_key)
            setattr(lane, part.state, getattr(lane, part.state) - 1)
            _revive(tx, part, now_ms)
            revived.append(part)
    Submitter(tx, customer.id).count_busy(len(revived))
    return True


def _is_kept(tx: Transaction, id: str | None) -> bool:
    return id is not None and tx.execute(sql.is_kept, (id,)).fetchone() is not None


def _revive(tx: Transaction, document: TransitionRow, now_ms: int, note: str | None = None) -> None:
    """Let a document that ended wait again: until its parts are done, if they are not."""
    state, ready_ms = ("delayed", NEVER_MS) if document.parts_left else ("ready", now_ms)
    tx.execute(sql.revive_document, (state, ready_ms, document.number, document.state, document.token))
    lane = tx.lane(*document.lane_key)
    lane.waiting += 1
    if state == "ready":
        tx.join_lane(lane, document.number, ready_ms)
    tx.log(now_ms, "revived", lane.customer, document.number, document.token, note)


def check_again(tx: Transaction, document: DocumentRow, now_ms: int, retries: int = 0) -> tuple[CheckRow, int]:
    """Give a document the check of a new one; return it and the document's priority, which stays if it was set by hand."""
    submitter = Submitter(tx, document.customer)
    check = submitter.check(document.cost, now_ms, document.no_better_than)
    priority = document.priority if document.is_set_by_hand else check.priority
    at_check = (submitter.weight, submitter.customer.standing.resets)
    tx.execute(sql.write_check, (*check[1:], *at_check, retries, priority, document.number))
    return check, priority


def change_lane(tx: Transaction, lane: LaneRow, priority: int, document: DocumentRow) -> LaneRow:
    """Count what is kept of a document in the lane of its new priority."""
    is_counted = document.number > tx.uncounted
    other = tx.lane(lane.customer, lane.kind, priority)
    lane.documents, lane.bytes = lane.documents - is_counted, lane.bytes - document.bytes
    other.documents, other.bytes = other.documents + is_counted, other.bytes + document.bytes
    return other


def _read_document(tx: Transaction, id: str) -> TransitionRow | None:
    row = tx.execute(sql.read_document, (id,)).fetchone()
    return None if row is None else TransitionRow(*row)


def forget_document(tx: Transaction, document: TransitionRow, now_ms: int) -> None:
    """Erase a document in any state, and no longer count it."""
    lane = delete_document(tx, document)
    if document.state in ENDED:
        setattr(lane, document.state, getattr(lane, document.state) - 1)
    else:
        _uncount(tx, document, lane, now_ms)


def delete_document(tx: Transaction, document: TransitionRow) -> LaneRow:
    """Delete a document's rows, and count what it took no longer; return its lane."""
    for statement in (
        sql.delete_progress, sql.delete_attempts, sql.delete_document, sql.delete_payload, sql.delete_result
    ):  # fmt: skip
        tx.execute(statement, (document.number,))
    if document.key is not None:
        tx.execute(sql.delete_key, (document.customer, document.key))
    root = document.number if document.root is None else document.root
    if tx.execute(sql.leave_family, (root,)).fetchone() == (0,):
        tx.execute(sql.delete_family, (root,))
    lane = tx.lane(*document.lane_key)
    if document.bytes is not None:
        lane.documents -= 1
        lane.bytes -= document.bytes
    return lane
