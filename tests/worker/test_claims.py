"""Claims in hand: their leases, the changes for the heartbeat, and the order in which they begin."""

from __future__ import annotations

from itertools import pairwise

from fairlane.worker.claims import OVERTAKE_SECONDS_MAX, ActiveClaim, Backlog, Claims, insertion_index

from .conftest import CLAIM

NOW = 100.0


def claimed(priority: int, requested_at: float = NOW, is_open_turn: bool = False) -> ActiveClaim:
    return Claims(6000).add([CLAIM._replace(priority=priority, is_open_turn=is_open_turn)], requested_at)[0]


def test_a_claim_counts_as_lost_before_its_lease_ends() -> None:
    claims = Claims(6000)
    first, second = claims.add([CLAIM, CLAIM], requested_at=100.0)
    assert claims.overdue(104.9) == []
    assert claims.overdue(105.1) == [first, second]  # a sixth of the lease is left
    claims.renew(103.0, first.serial)
    assert claims.overdue(105.1) == [second]
    claims.renew(101.0, second.serial)  # an answer that was long on its way shortens nothing
    assert claims.overdue(106.5) == [second]
    assert claims.overdue(108.1) == [first, second]


def test_renewals_do_not_extend_what_was_claimed_after_them() -> None:
    claims = Claims(6000)
    added = claims.add([CLAIM] * 5, requested_at=100.0)
    claims.drop(added[1])
    claims.renew(104.0, added[2].serial)
    assert [active.valid_until > 105.1 for active in claims] == [True, True, False, False]
    assert all(earlier.serial < later.serial for earlier, later in pairwise(added))


def test_changes_for_the_heartbeat_leave_out_what_was_dropped_at_once() -> None:
    claims = Claims(6000)
    first, second, third = claims.add([CLAIM] * 3, requested_at=100.0)
    claims.drop(second)
    assert claims.take_changes() == ([first, third], [])
    (fourth,) = claims.add([CLAIM], requested_at=101.0)
    claims.drop(first)
    claims.drop(first)
    assert claims.take_changes() == ([fourth], [first.serial])
    assert claims.take_changes() == ([], [])
    assert (len(claims), claims.get(first.serial), claims.get(third.serial)) == (2, None, third)


def test_a_better_priority_overtakes_neither_its_like_nor_an_open_turn_nor_what_has_waited() -> None:
    before = NOW - 2 * OVERTAKE_SECONDS_MAX
    cases: list[tuple[list[ActiveClaim], int]] = [
        ([], 0),
        ([claimed(9), claimed(9)], 0),
        ([claimed(2), claimed(9)], 1),
        ([claimed(9), claimed(1), claimed(9)], 2),
        ([claimed(9), claimed(9, is_open_turn=True), claimed(9)], 2),
        ([claimed(9, before), claimed(9)], 1),
    ]
    for waiting, index in cases:
        assert insertion_index(waiting, claimed(2)) == index


def test_what_is_put_back_begins_first_unless_it_is_overtaken() -> None:
    backlog = Backlog()
    first, second, better, late = claimed(9), claimed(9), claimed(2), claimed(2, NOW + 2 * OVERTAKE_SECONDS_MAX)
    backlog.add(late)
    backlog.put_back([first, second])
    assert list(backlog) == [first, second, late]
    backlog.add(better)
    assert list(backlog) == [first, second, late, better]
    backlog.clear()
    backlog.add(better)
    backlog.put_back([first, second])
    assert list(backlog) == [better, first, second]
