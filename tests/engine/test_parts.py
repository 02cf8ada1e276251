"""Documents that go on as another kind, and documents that are split: their parts are documents, and they wait for them."""

from __future__ import annotations

import pytest

from fairlane.core.document import NEVER_MS, Claim, Continued, Done, Failed, Outcome, Released, Retried, State, Submission
from fairlane.core.policy import KindLimit, Terms
from fairlane.engine import Engine
from fairlane.engine.protocol import DocumentFilter

from .conftest import Send, Take
from .test_settle import read_everything, state_of


def parts_of(claim: Claim, count: int = 3, kind: str = "page") -> tuple[Submission, ...]:
    return tuple(
        Submission(f"{claim.id}/{n}", claim.customer, kind, f'{{"part":{n}}}', made_from=claim.id) for n in range(1, count + 1)
    )


def split(engine: Engine, claim: Claim, count: int = 3, *, at: int = 1, cost: int | None = None) -> list[str]:
    """Split a claimed document; return the ids of its parts."""
    parts = parts_of(claim, count)
    assert engine.settle([(claim, Continued("extract", '{"joins":true}', parts, cost))], now_ms=at) == []
    return [part.id for part in parts]


def events(engine: Engine, after: int = 0) -> list[tuple[object, ...]]:
    return [(change.what, change.document, change.token, change.note) for change in engine.changes(after or None, 1000)]


def states(engine: Engine, ids: list[str]) -> list[State | None]:
    return [state_of(engine, id) for id in ids]


# -- going on as another kind ------------------------------------------------------------------------------------------


def test_a_document_goes_on_as_another_kind_with_fresh_attempts(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada", 1)
    engine.settle([(take(at=1)[0], Retried(reason="busy"))], now_ms=2)
    (claim,) = take(at=3)
    assert engine.settle([(claim, Continued("classify", '{"text":"żółć"}', file_bytes=100))], now_ms=5) == []
    row = engine.document(id)
    assert row is not None
    assert (row.kind, row.state, row.attempts, row.ready_ms, row.token) == ("classify", "ready", 0, 5, 2)
    assert row.bytes == len('{"text":"żółć"}'.encode()) + 100
    assert engine.customer("ada").bytes == row.bytes
    assert take(at=6, kinds={"extract": 3}) == []
    (again,) = take(at=6, kinds={"classify": 2})
    assert (again.id, again.payload, again.token, again.attempts) == (id, '{"text":"żółć"}', 3, 1)
    assert events(engine, 4)[:1] == [("continued", id, 2, "classify")]
    assert engine.settle([(again, Done("7"))], now_ms=7) == []
    customer = engine.customer("ada")
    assert (customer.waiting, customer.running, customer.done, customer.documents) == (0, 0, 1, 1)


def test_whoever_had_it_before_has_lost_it(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    (late,) = take()
    engine.settle([(late, Continued("classify", "1"))], now_ms=1)
    before = read_everything(engine)
    for outcome in (Done(), Failed("f"), Continued("index", "2"), Released()):
        assert engine.settle([(late, outcome)], now_ms=2) == [late]
    assert engine.extend([late], 90_000, now_ms=2) == [late]
    assert read_everything(engine) == before
    take(at=3)
    assert engine.settle([(late, Done())], now_ms=4) == [late]
    assert state_of(engine, id) == "running"


def test_it_keeps_its_priority_and_is_not_checked_again(engine: Engine, send: Send, take: Take) -> None:
    ids = send("ada", 5)
    claims = take(5)
    before = engine.customer("ada").standing
    engine.settle([(claim, Continued("classify", "1")) for claim in claims], now_ms=1)
    assert engine.customer("ada").standing == before
    assert [claim.priority for claim in take(5, at=2)] == [1, 1, 1, 2, 2]
    assert engine.customer("ada").running == 5
    assert len(ids) == 5


def test_a_failed_step_is_retried_as_that_step(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    engine.settle([(take()[0], Continued("classify", '"halfway"'))], now_ms=1)
    engine.settle([(take(at=2)[0], Failed("corrupt"))], now_ms=3)
    assert engine.retry(id, now_ms=4)
    (claim,) = take(at=5)
    assert (claim.kind, claim.payload, claim.attempts) == ("classify", '"halfway"', 1)


def test_a_limit_of_either_kind_is_kept(engine: Engine, send: Send, take: Take) -> None:
    engine.limit_kind("extract", KindLimit(running=1), 0, now_ms=0)
    engine.limit_kind("classify", KindLimit(running=1), 0, now_ms=0)
    send("ada", 3)
    (claim,) = take(3)
    assert engine.kind("extract").running == 1
    engine.settle([(claim, Continued("classify", "1"))], now_ms=1)
    assert engine.kind("extract").running == 0
    assert sorted(each.kind for each in take(3, at=2)) == ["classify", "extract"]


# -- parts -------------------------------------------------------------------------------------------------------------


def test_a_document_that_is_split_waits_for_its_parts(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    (claim,) = take()
    parts = split(engine, claim, 3, at=5)
    whole = engine.document(id)
    assert whole is not None
    assert (whole.state, whole.ready_ms, whole.parts, whole.parts_left) == ("delayed", NEVER_MS, 3, 3)
    assert [part.document.id for part in engine.parts(id)] == parts
    assert {part.document.whole for part in engine.parts(id)} == {id}
    assert events(engine, 2) == [("split", id, 1, "extract"), *[("submitted", part, 0, id) for part in parts]]
    customer = engine.customer("ada")
    assert (customer.waiting, customer.running, customer.documents) == (4, 0, 4)
    assert engine.settle([(claim, Done())], now_ms=6) == [claim]


def test_parts_inherit_the_priority_and_move_no_counter(engine: Engine, send: Send, take: Take) -> None:
    send("ada", 4)
    claim = take(4)[3]
    before = engine.customer("ada").standing
    split(engine, claim, 30)
    assert engine.customer("ada").standing == before
    assert {part.document.priority for part in engine.parts(claim.id)} == {2}
    assert [each.id for each in take(2, at=2)] == [f"{claim.id}/1", f"{claim.id}/2"]


def test_it_goes_on_when_the_last_part_is_done_with_their_results_in_order(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    parts = split(engine, take()[0], 3)
    claims = take(10, at=2)
    assert [claim.id for claim in claims] == parts
    engine.settle([(claims[2], Done('"c"'))], now_ms=3)
    engine.settle([(claims[0], Done('"a"'))], now_ms=4)
    row = engine.document(id)
    assert row is not None
    assert (row.state, row.parts_left) == ("delayed", 1)
    assert take(at=5) == []
    engine.settle([(claims[1], Done('"b"'))], now_ms=6)
    assert events(engine, 12)[-1] == ("joined", id, 1, None)
    row = engine.document(id)
    assert row is not None
    assert (row.state, row.ready_ms, row.parts, row.parts_left) == ("ready", 6, 3, 0)
    (claim,) = take(at=7)
    assert (claim.id, claim.token, claim.attempts, claim.payload) == (id, 2, 1, '{"joins":true}')
    assert [part.result for part in engine.parts(id)] == ['"a"', '"b"', '"c"']
    assert engine.settle([(claim, Done())], now_ms=8) == []
    customer = engine.customer("ada")
    assert (customer.waiting, customer.running, customer.done, customer.documents) == (0, 0, 4, 4)


def test_several_parts_that_end_in_one_call_are_counted(engine: Engine, send: Send, take: Take) -> None:
    ids = send("ada", 2)
    for claim in take(2):
        split(engine, claim, 4)
    engine.settle([(claim, Done()) for claim in take(20, at=2)], now_ms=3)
    assert states(engine, ids) == ["ready", "ready"]
    assert [each.id for each in take(5, at=4)] == ids


def test_a_part_that_comes_back_is_not_done(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    split(engine, take()[0], 2)
    first, second = take(2, at=2)
    engine.settle([(first, Retried(reason="busy")), (second, Released())], now_ms=3)
    assert engine.reclaim(9, now_ms=50_000) == 0
    take(2, at=4)
    assert engine.reclaim(9, now_ms=50_000) == 2
    row = engine.document(id)
    assert row is not None
    assert (row.state, row.parts_left) == ("delayed", 2)


def test_a_part_that_fails_fails_the_whole_and_cancels_the_others(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    parts = split(engine, take()[0], 4)
    done, failing, running = take(3, at=2)
    engine.settle([(done, Done())], now_ms=3)
    engine.settle([(failing, Failed("corrupt: page 3"))], now_ms=4)
    assert states(engine, parts) == ["done", "failed", "cancelled", "cancelled"]
    row = engine.document(id)
    assert row is not None
    assert (row.state, row.reason, row.ended_ms) == ("failed", f"its part {parts[1]} failed: corrupt: page 3", 4)
    assert engine.settle([(running, Done())], now_ms=5) == [running]
    customer = engine.customer("ada")
    assert (customer.waiting, customer.running, customer.done, customer.failed, customer.cancelled) == (0, 0, 1, 2, 2)


@pytest.mark.parametrize("by", ["reclaim", "spent"])
def test_a_part_whose_attempts_are_spent_fails_the_whole(engine: Engine, send: Send, take: Take, by: str) -> None:
    (id,) = send("ada")
    parts = split(engine, take()[0], 3)
    (claim,) = take(at=2, kinds={"page": 1})
    if by == "reclaim":
        assert engine.reclaim(10, now_ms=20_000) == 1
    else:
        engine.settle([(claim, Retried(reason="busy"))], now_ms=3)
    assert states(engine, [id, *parts]) == ["failed", "failed", "cancelled", "cancelled"]


def test_a_retry_of_the_whole_goes_on_with_the_parts_that_are_not_done(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    parts = split(engine, take()[0], 4)
    done, failing, _ = take(3, at=2)
    engine.settle([(done, Done('"first"')), (failing, Failed("corrupt"))], now_ms=3)
    assert not engine.retry(parts[1], now_ms=4)
    assert engine.retry(id, now_ms=5)
    assert states(engine, [id, *parts]) == ["delayed", "done", "ready", "ready", "ready"]
    revived = [("revived", id, 1, None), *[("revived", part, int(part != parts[3]), None) for part in parts[1:]]]
    assert events(engine)[-4:] == revived
    claims = take(10, at=6)
    assert [(claim.id, claim.attempts) for claim in claims] == [(part, 1) for part in parts[1:]]
    engine.settle([(claim, Done()) for claim in claims], now_ms=7)
    assert [claim.id for claim in take(at=8)] == [id]
    assert engine.customer("ada").cancelled == engine.customer("ada").failed == 0


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 0, 1)])
def test_parts_that_are_done_beside_one_that_fails_are_not_waited_for_again(
    engine: Engine, send: Send, take: Take, order: tuple[int, ...]
) -> None:
    (id,) = send("ada")
    split(engine, take()[0], 3)
    claims = take(3, at=2)
    outcomes: list[Outcome] = [Done("0"), Failed("corrupt"), Done("2")]
    assert engine.settle([(claims[index], outcomes[index]) for index in order], now_ms=3) == []
    assert engine.retry(id, now_ms=4)
    row = engine.document(id)
    assert row is not None
    assert (row.state, row.parts_left) == ("delayed", 1)
    engine.settle([(claim, Done("1")) for claim in take(5, at=5)], now_ms=6)
    assert [claim.id for claim in take(5, at=7)] == [id]
    assert [part.result for part in engine.parts(id)] == ["0", "1", "2"]


def test_a_cancel_of_the_whole_cancels_its_parts(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    parts = split(engine, take()[0], 4)
    done, running = take(2, at=2)
    engine.settle([(done, Done())], now_ms=3)
    assert engine.cancel([id], now_ms=4) == [id]
    assert states(engine, [id, *parts]) == ["cancelled", "done", "cancelled", "cancelled", "cancelled"]
    assert engine.settle([(running, Done())], now_ms=5) == [running]
    assert take(at=6) == []
    assert engine.customer("ada").waiting == engine.customer("ada").running == 0
    assert not engine.retry(id, now_ms=7)


def test_a_cancel_of_a_part_cancels_the_whole(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    parts = split(engine, take()[0], 3)
    assert engine.cancel([parts[1], parts[0]], now_ms=4) == [parts[1], parts[0]]
    assert states(engine, [id, *parts]) == ["cancelled"] * 4


def test_a_part_may_be_split_again(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    parts = split(engine, take()[0], 2)
    inner, other = take(2, at=2)
    leaves = split(engine, inner, 2, at=3)
    engine.settle([(other, Done())], now_ms=4)
    leaf, last = take(2, at=5)
    engine.settle([(leaf, Done()), (last, Failed("corrupt"))], now_ms=6)
    assert states(engine, [id, *parts, *leaves]) == ["failed", "failed", "done", "done", "failed"]
    assert engine.retry(id, now_ms=7)
    assert states(engine, [id, *parts, *leaves]) == ["delayed", "delayed", "done", "done", "ready"]
    engine.settle([(claim, Done()) for claim in take(5, at=8)], now_ms=9)
    engine.settle([(claim, Done()) for claim in take(5, at=10)], now_ms=11)
    assert [claim.id for claim in take(5, at=12)] == [id]


def test_parts_that_begin_in_the_call_in_which_their_family_ends_are_cancelled(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    parts = split(engine, take()[0], 2)
    first, second = take(2, at=2)
    leaves = parts_of(first, 3)
    assert engine.settle([(first, Continued("page", "1", leaves)), (second, Failed("corrupt"))], now_ms=3) == []
    assert states(engine, [id, *parts]) == ["failed", "cancelled", "failed"]
    assert states(engine, [leaf.id for leaf in leaves]) == ["cancelled"] * 3
    assert take(9, at=4) == []
    assert (engine.totals().ready, engine.customer("ada").waiting) == ((0,) * 9, 0)


def test_a_whole_may_be_split_again_after_its_parts_are_done(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    split(engine, take()[0], 2)
    engine.settle([(claim, Done("1")) for claim in take(2, at=2)], now_ms=3)
    (claim,) = take(at=4)
    again = tuple(part._replace(id=f"{part.id} again") for part in parts_of(claim, 3))
    engine.settle([(claim, Continued("extract", "2", again))], now_ms=5)
    assert [part.document.id for part in engine.parts(id)] == [part.id for part in again]
    engine.settle([(claim, Done("2")) for claim in take(3, at=6)], now_ms=7)
    assert [part.result for part in engine.parts(id)] == ["2", "2", "2"]
    assert [claim.id for claim in take(at=8)] == [id]


def test_parts_are_kept_as_long_as_their_whole(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    parts = split(engine, take()[0], 3)
    engine.settle([(claim, Done("1")) for claim in take(3, at=2)], now_ms=3)
    assert [each for _ in range(3) for each in engine.purge(0, 100, now_ms=9).documents] == []
    assert states(engine, parts) == ["done"] * 3
    engine.settle([(take(at=4)[0], Done())], now_ms=5)
    removed = [each.id for _ in range(4) for each in engine.purge(0, 2, now_ms=9_999).documents if each]
    while found := engine.purge(0, 2, now_ms=9_999):
        if not any(found):
            break
        removed += [each.id for each in found.documents]
    assert sorted(removed) == sorted([id, *parts])
    assert removed[0] == id


def test_forgetting_takes_parts_along(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    parts = split(engine, take()[0], 3)
    (running,) = take(at=2)
    assert [removed.id for removed in engine.forget("ada", 2, now_ms=3)] == [id, parts[0]]
    assert engine.settle([(running, Done())], now_ms=4) == [running]
    (second,) = take(at=5)
    assert engine.settle([(second, Failed("late"))], now_ms=6) == []  # its whole is gone
    assert [removed.id for removed in engine.forget("ada", 9, now_ms=7)] == parts[1:]
    assert engine.forget("ada", 9, now_ms=8) == []


def test_parts_pass_their_customers_cap_and_stop_at_their_kinds_limit(engine: Engine, send: Send, take: Take) -> None:
    engine.tune("ada", Terms(cap=2), 0, now_ms=0)
    send("ada", 2)
    claim, _ = take(5)
    split(engine, claim, 3)
    assert len(take(5, at=2)) == 1  # the whole does not count, the other document and a part do
    engine.cancel([claim.id], now_ms=3)
    assert engine.customer("ada").running == 1


def test_a_corrected_cost_and_the_time_taken_are_settled_as_for_any_attempt(engine: Engine, send: Send, take: Take) -> None:
    send("ada", 2)
    (claim,) = take(at=0)
    before = engine.customer("ada").standing.counter
    split(engine, claim, 2, at=4_000, cost=5_000)
    customer = engine.customer("ada")
    assert customer.standing.counter == before - 4_000
    assert customer.usual == 4_000_000


def test_pages_of_documents_show_wholes_and_parts(engine: Engine, send: Send, take: Take) -> None:
    (id,) = send("ada")
    parts = split(engine, take()[0], 2)
    rows = engine.documents(DocumentFilter(customer="ada"), None, 10).documents
    assert [(row.id, row.whole, row.parts_left) for row in rows] == [
        (parts[1], id, 0), (parts[0], id, 0), (id, None, 2)
    ]  # fmt: skip
    assert engine.parts("unknown") == []
    assert engine.parts(parts[0]) == []
