"""Turns: paid with the time that attempts take, and shared between kinds."""

from __future__ import annotations

from dataclasses import replace

from fairlane.core.document import Claim, Done, Failed, Outcome, Released, Retried, Submission
from fairlane.core.policy import Policy, Rules, Terms
from fairlane.engine import Engine
from fairlane.engine.protocol import DocumentFilter
from fairlane.engine.walk import walk_documents

from .conftest import Send, Take


def names(claims: list[Claim]) -> list[str]:
    return [claim.customer for claim in claims]


def work(engine: Engine, milliseconds: dict[str, int], until: int, workers: int = 2) -> dict[str, int]:
    """Let workers process documents until that time, those of each customer for so long; return the time each got."""
    ends: list[tuple[int, Claim]] = []
    spent = dict.fromkeys(milliseconds, 0)
    now = 0
    while now < until:
        for claim in engine.claim("worker", workers - len(ends), 10**9, now_ms=now):
            ends.append((now + milliseconds[claim.customer], claim))
            spent[claim.customer] += milliseconds[claim.customer]
        now = min(end for end, _ in ends)
        engine.settle([(claim, Done()) for end, claim in ends if end == now], now_ms=now)
        ends = [(end, claim) for end, claim in ends if end > now]
    return spent


def test_two_big_senders_share_the_workers_time_however_long_their_documents_take(engine: Engine, send: Send) -> None:
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0))
    send("short", 400)
    send("long", 40)
    spent = work(engine, {"short": 10, "long": 200}, until=2_000)
    assert abs(spent["short"] - spent["long"]) <= 0.1 * sum(spent.values())


def test_a_customer_of_weight_two_gets_twice_the_time(engine: Engine, send: Send) -> None:
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0))
    engine.tune("heavy", Terms(weight=2), 0)
    send("heavy", 100)
    send("light", 100)
    spent = work(engine, {"heavy": 50, "light": 30}, until=2_000)
    assert 1.8 <= spent["heavy"] / spent["light"] <= 2.2


def test_what_attempts_usually_take_follows_each_that_ends(engine: Engine, send: Send, take: Take) -> None:
    send("ada", 9)

    def end(after_ms: int, outcome: Outcome) -> int | None:
        (claim,) = take(at=0)
        engine.settle([(claim, outcome)], now_ms=after_ms)
        return engine.customer("ada", now_ms=after_ms).usual

    assert engine.customer("ada", now_ms=0).usual is None
    assert end(80, Done()) == 80_000
    assert end(160, Failed("no")) == 90_000
    assert end(10, Retried(5)) == 80_000
    assert end(0, Released()) == 70_000
    (claim,) = take(at=0)
    engine.cancel([claim.id], now_ms=999)
    (claim,) = take(at=0)
    engine.reclaim(5, now_ms=10_001)
    assert engine.customer("ada", now_ms=999).usual == 70_000


def test_a_turn_is_trued_up_when_its_attempt_ends(engine: Engine, send: Send, take: Take) -> None:
    """Before the first attempt a turn is a second; ada's took ten, so it waits until the others have had as much."""
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0))
    send("ada", 5)
    send("bob", 40)
    claims = take(2, at=0)
    assert names(claims) == ["ada", "bob"]
    engine.settle([(claims[0], Done()), (claims[1], Done())], now_ms=10_000)
    engine.settle([], now_ms=10_000)
    for at in range(10_001, 10_009):
        (claim,) = take(at=at)
        engine.settle([(claim, Done())], now_ms=at + 1)  # bob's take a millisecond now
    assert {document.customer for document in walk_documents(engine, DocumentFilter(state="done"))} == {"ada", "bob"}
    done = [document.customer for document in walk_documents(engine, DocumentFilter(state="done"))]
    assert done.count("bob") >= 5


def test_an_attempt_that_is_reclaimed_is_not_trued_up(engine: Engine, send: Send, take: Take) -> None:
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0))
    send("ada", 5)
    send("bob", 5)
    take(1, at=0)
    engine.reclaim(5, now_ms=10_000)
    assert names(take(4, at=10_000)) == ["bob", "ada", "bob", "ada"]


# -- kinds -------------------------------------------------------------------------------------------------------------


def test_a_kind_that_was_served_alone_holds_up_no_newcomer_of_another_kind(engine: Engine, send: Send, take: Take) -> None:
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0))
    send("ada", 300)
    for number in range(5):
        send(f"scans {number}", 20, kind="scan")
    take(200, kinds={"extract": 3})
    take(10, kinds={"scan": 3})
    send("new", kind="scan")
    assert "new" in names(take(6, kinds={"scan": 3}))
    send("newer", kind="extract")
    assert "newer" in names(take(7))


def test_between_kinds_lanes_take_turns_too(engine: Engine, send: Send, take: Take) -> None:
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0))
    send("ada", 10)
    send("bob", 10, kind="scan")
    send("cy", 10, kind="fax")
    assert names(take(6)) == ["ada", "bob", "cy"] * 2
    assert names(take(4, kinds={"scan": 1, "fax": 1})) == ["bob", "cy"] * 2


def test_an_open_turn_moves_no_clock(engine: Engine, send: Send, take: Take) -> None:
    """An old lane that open turns have carried far ahead does not take newcomers along."""
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=2))
    send("old", 60, at=0)
    send("busy", 60, at=1)
    take(40, at=2)
    send("new", at=3)
    assert "new" in names(take(6, at=4))


def test_an_open_turn_is_free_for_a_lane_that_is_more_than_one_turn_in_debt(engine: Engine, send: Send, take: Take) -> None:
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=2, turns="documents"))
    send("ada", 5, at=0)
    send("bob", 5, at=1)
    assert names(take(4, at=2)) == ["ada", "ada", "bob", "ada"]  # her second turn is open and paid, her third is free
    assert [(lane.customer, lane.start) for lane in engine.pack('["lanes", null]', 9).lanes] == [("ada", 2000), ("bob", 1000)]
    assert engine.pack('["kinds", null]', 9).kinds == ()  # the clock of the kind has not moved


def test_claims_that_end_together_are_settled_in_order_where_one_unblocks_the_next(
    engine: Engine, send: Send, take: Take
) -> None:
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0))
    engine.tune("ada", Terms(cap=2), 0)
    send("ada")
    send("ada", 3, kind="scan")
    send("bob", 9, kind="scan")
    claims = [*take(1, kinds={"extract": 3}), *take(1, kinds={"scan": 3})]
    assert names([*claims, *take(3, kinds={"scan": 3})]) == ["ada", "ada", "bob", "bob", "bob"]  # the clock is at 2000
    engine.settle([(claim, Done()) for claim in claims], now_ms=5000)
    starts = {(lane.customer, lane.kind): lane.start for lane in engine.pack('["lanes", null]', 9).lanes}
    assert starts["ada", "scan"] == 2000 + 5000 - 1000  # she starts from the clock, then pays the rest of what was taken


def test_a_kind_that_comes_with_lower_tags_than_all_others_is_first(engine: Engine) -> None:
    engine.configure(Rules(Policy(thresholds=()), turns="documents", open_turn_every=1), now_ms=0)
    engine.submit([Submission(f"e{n}", "eve", "extract", "1") for n in range(5)], now_ms=0)
    for _ in range(3):
        engine.claim("w", 1, 1000, now_ms=0)  # open turns: eve pays, and the clocks stand still
    engine.submit([Submission("o", "bob", "ocr", "1")], now_ms=0)
    engine.configure(replace(engine.rules(), open_turn_every=0), now_ms=0)
    assert [claim.id for claim in engine.claim("w", 2, 1000, now_ms=0)] == ["o", "e3"]


def test_an_open_turn_finds_a_document_that_became_ready_before_all_others_although_it_came_later(engine: Engine) -> None:
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=1), now_ms=0)
    engine.submit([Submission(f"e{n}", "eve", "extract", "1") for n in range(3)], now_ms=100)
    engine.claim("w", 1, 1000, now_ms=150)
    engine.submit([Submission("o", "bob", "ocr", "1")], now_ms=50)  # the clock was set back
    assert [claim.id for claim in engine.claim("w", 1, 1000, now_ms=150)] == ["o"]
