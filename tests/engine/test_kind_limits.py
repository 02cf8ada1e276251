"""Limits of a kind, for all workers together: documents at once, and starts a second."""

from __future__ import annotations

import pytest

from fairlane.core.document import Claim, Done, Failed, Released, Submission
from fairlane.core.policy import KindLimit, Policy, Rules
from fairlane.engine import Engine

from .conftest import Send, Take


def names(claims: list[Claim]) -> list[str]:
    return [claim.customer for claim in claims]


def test_no_more_documents_of_a_kind_run_than_its_limit_allows(engine: Engine, send: Send, take: Take) -> None:
    assert engine.limit_kind("scan", KindLimit(running=2), 0, now_ms=0) == 1
    send("ada", 5, kind="scan")
    send("bob", 2)
    claims = take(9)
    assert sorted(names(claims)) == ["ada", "ada", "bob", "bob"]
    assert take(5) == []
    engine.settle([(claims[0], Done())], now_ms=1)
    assert names(take(5, at=1)) == ["ada"]
    row = engine.kind("scan")
    assert (row.limit, row.version, row.running) == (KindLimit(running=2), 1, 2)


@pytest.mark.parametrize("how", ["settle", "cancel", "reclaim", "forget"])
def test_whatever_ends_a_claim_makes_room_for_another_of_its_kind(engine: Engine, send: Send, take: Take, how: str) -> None:
    engine.limit_kind("scan", KindLimit(running=1), 0, now_ms=0)
    send("ada", 1, kind="scan")
    send("bob", 1, kind="scan")
    (claim,) = take(5)
    if how == "settle":
        engine.settle([(claim, Failed("no"))], now_ms=1)
    elif how == "cancel":
        engine.cancel([claim.id], now_ms=1)
    elif how == "reclaim":
        engine.reclaim(5, now_ms=10_000)
        engine.cancel([claim.id], now_ms=10_000)
    else:
        engine.forget("ada", 5, now_ms=1)
    assert engine.kind("scan").running == 0
    assert names(take(5, at=10_000)) == ["bob"]


def test_documents_of_a_kind_start_as_often_as_its_rate_allows(engine: Engine, send: Send, take: Take) -> None:
    engine.limit_kind("scan", KindLimit(rate=2, burst=3), 0, now_ms=0)
    send("ada", 50, kind="scan")
    starts = [len(take(10, at=at)) for at in (0, 1, 499, 500, 501, 999, 1000, 5000, 5100)]
    assert starts == [3, 0, 0, 1, 0, 0, 1, 3, 0]
    assert engine.kind("scan").next_start_ms == 5500


def test_a_rate_is_kept_to_the_thousandth(engine: Engine, send: Send, take: Take) -> None:
    engine.limit_kind("scan", KindLimit(rate=0.7), 0, now_ms=0)
    send("ada", 50, kind="scan")
    assert [at for at in range(6_000) if take(5, at=at)] == [0, 1429, 2858, 4287, 5716]


def test_a_limit_that_is_set_counts_what_runs_already(engine: Engine, send: Send, take: Take) -> None:
    send("ada", 5, kind="scan")
    take(2)
    engine.limit_kind("scan", KindLimit(running=3), 0, now_ms=0)
    assert len(take(5)) == 1
    assert engine.limit_kind("scan", KindLimit(), 1, now_ms=0) == 2
    assert len(take(5)) == 2


def test_a_limit_changes_only_from_the_version_that_was_seen(engine: Engine) -> None:
    assert engine.kind("scan").version == 0
    assert engine.limit_kind("scan", KindLimit(running=1), 1) is None
    assert engine.limit_kind("scan", KindLimit(running=1), 0) == 1
    assert engine.limit_kind("scan", KindLimit(rate=1), 0) is None
    assert engine.limit_kind("scan", KindLimit(rate=1), 1) == 2
    assert [(row.kind, row.version) for row in engine.kinds("", 9)] == [("scan", 2)]
    assert engine.kinds("scan", 9) == []


def test_a_kind_at_its_limit_holds_up_nobody_and_is_owed_nothing(engine: Engine, send: Send, take: Take) -> None:
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0))
    engine.limit_kind("scan", KindLimit(running=1), 0, now_ms=0)
    send("ada", 5, kind="scan")
    send("bob", 30)
    claims = take(20)
    assert names(claims).count("ada") == 1
    scan = next(claim for claim in claims if claim.customer == "ada")
    engine.settle([(scan, Released())], now_ms=0)
    assert names(take(2)) in (["ada", "bob"], ["bob", "ada"])


def test_a_kind_that_was_at_its_limit_shares_with_others_from_then_on(engine: Engine, send: Send, take: Take) -> None:
    engine.configure(Rules(Policy(thresholds=()), open_turn_every=0, turns="documents"))
    engine.limit_kind("scan", KindLimit(running=1), 0, now_ms=0)
    send("ada", 20, kind="scan")
    send("bob", 40)
    assert names(take(20)).count("ada") == 1
    engine.limit_kind("scan", KindLimit(), 1, now_ms=0)
    assert names(take(10)).count("ada") == 6  # from the clock on: not nine turns that she was owed


def test_waiting_ends_when_a_rate_allows_another_start(engine: Engine, send: Send) -> None:
    """On the store's own clock."""
    engine.limit_kind("scan", KindLimit(rate=5), 0)
    engine.submit([Submission(f"a{n}", "ada", "scan", "1") for n in range(3)])
    assert len(engine.claim("w", 5, 10_000)) == 1
    started = list[Claim]()
    while len(started) < 2:
        if engine.wait(1, ["scan"]):
            started += engine.claim("w", 5, 10_000, {"scan": 3})


def test_a_kind_that_was_at_its_limit_comes_back_level_with_the_clock_of_its_priority(engine: Engine) -> None:
    """It stands behind a kind that waited meanwhile, although its own tags are older."""
    engine.configure(Rules(Policy(thresholds=()), turns="documents", open_turn_every=0), now_ms=0)
    engine.limit_kind("scan", KindLimit(running=1), 0, now_ms=0)
    engine.submit([Submission(f"s{n}", "ada", "scan", "1") for n in range(2)], now_ms=0)
    engine.submit([Submission(f"e{n}", "eve", "extract", "1") for n in range(10)], now_ms=0)
    scans = engine.claim("w", 5, 1000, {"scan": 3}, now_ms=0)
    engine.claim("w", 6, 1000, {"extract": 3}, now_ms=0)
    engine.submit([Submission("o", "bob", "ocr", "1")], now_ms=0)
    engine.claim("w", 4, 1000, {"extract": 3}, now_ms=0)
    engine.settle([(claim, Done()) for claim in scans], now_ms=0)
    assert [claim.id for claim in engine.claim("w", 5, 1000, now_ms=0)] == ["o", "s1"]
