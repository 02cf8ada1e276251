"""The picture in memory says what the store says, at every change, wherever it began."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fairlane import Queue
from fairlane.console.read_model.customers import Row
from fairlane.console.read_model.figures import Figures, history, percentile, seconds_of, step_of
from fairlane.console.read_model.lanes import TOP, Followed, Lane
from fairlane.console.read_model.loader import loaded, looked_up
from fairlane.console.read_model.model import Live, written_so_far
from fairlane.core.document import Claim, Done, Failed, Outcome, Released, Retried
from fairlane.core.policy import Terms
from fairlane.engine import Engine
from fairlane.sim.measures import nearest_rank
from tests.engine.conftest import ENGINES, url_of
from tests.servers import redis

CUSTOMERS = [f"customer {number}" for number in range(8)]
START_MS = 1_700_000_000_000


def told_by(engine: Engine, now_ms: int) -> dict[str, Any]:
    """What a store holds, counted one by one."""
    found = engine.documents(None, None, None, 100_000)
    ready = [one for one in found if one.state == "ready" or (one.state == "delayed" and one.ready_ms <= now_ms)]
    running = [one for one in found if one.state == "running"]
    waiting = Counter(one.customer for one in found if one.state in ("ready", "delayed"))
    tops = {}
    for priority in range(1, 10):
        counts = Counter(one.customer for one in ready if one.priority == priority)
        tops[priority] = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return {
        "ready": Counter(one.priority for one in ready),
        "running": Counter(one.priority for one in running),
        "delayed": sum(one.state == "delayed" and one.ready_ms > now_ms for one in found),
        "tops": {priority: top for priority, top in tops.items() if top},
        "oldest": {
            priority: (now_ms - min(one.ready_ms for one in ready if one.priority == priority)) / 1000
            for priority in {one.priority for one in ready}
        },
        "workers": Counter(one.worker for one in running),
        "waiting": +waiting,
        "customers": len(engine.customers("", 1000)),
    }


def told_in(live: Live, now_ms: int) -> dict[str, Any]:
    """What a picture says."""
    live.pass_time(now_ms)
    frame = live.frame([])
    lanes = {lane["priority"]: lane for lane in frame["lanes"]}
    assert frame["totals"]["ready"] == sum(lane["ready"] for lane in lanes.values())
    assert frame["totals"]["running"] == frame["running_total"] == sum(lane["running"] for lane in lanes.values())
    return {
        "ready": Counter({priority: lane["ready"] for priority, lane in lanes.items() if lane["ready"]}),
        "running": Counter({priority: lane["running"] for priority, lane in lanes.items() if lane["running"]}),
        "delayed": frame["totals"]["delayed"],
        "tops": {
            priority: [(one["customer"], one["ready"]) for one in lane["top"]]
            for priority, lane in lanes.items()
            if lane["top"]
        },
        "oldest": {priority: lane["oldest_wait"] for priority, lane in lanes.items() if lane["ready"]},
        "workers": Counter({one["name"]: one["running"] for one in frame["workers"]}),
        "waiting": Counter({row.customer: row.waiting for row in live.rows.values() if row.waiting}),
        "customers": frame["totals"]["customers"],
    }


class Story:
    """A queue to which everything happens that can."""

    def __init__(self, seed: int, url: str = "memory://") -> None:
        self.random = random.Random(seed)
        self.queue = Queue(url)
        self.engine = self.queue.engine
        self.now_ms = START_MS
        self.claims: list[Claim] = []
        self.ended: Counter[str] = Counter()

    def step(self) -> None:
        self.now_ms += self.random.choice((0, 1, 500, 60_000))
        now = self.now_ms / 1000
        customer = self.random.choice(CUSTOMERS)
        match self.random.randrange(12):
            case 0 | 1 | 2 | 3:
                delay = self.random.choice((0, 0, 0, 90))
                self.queue.submit_many(customer, [1] * self.random.randrange(1, 9), delay=delay, now=now)
            case 4 | 5 | 6:
                worker = self.random.choice(("one", "two"))
                self.claims += self.engine.claim(worker, self.random.randrange(1, 6), 300_000, now_ms=self.now_ms)
            case 7 | 8 | 9:
                self._settle()
            case 10:
                self.engine.reclaim(100, now_ms=self.now_ms)
                self._cancel_or_revive()
            case _:
                self.pause(customer, self.random.random() < 0.3)
                self.engine.reset(customer, now_ms=self.now_ms)

    def pause(self, customer: str, paused: bool) -> None:
        version = self.engine.customer(customer).terms_version
        self.engine.tune(customer, Terms(paused=paused), version, now_ms=self.now_ms)

    def _settle(self) -> None:
        taken = [self.claims.pop() for _ in range(min(len(self.claims), 4))]
        for claim in taken:
            outcome: Outcome = self.random.choice(
                (Done(), Failed("encrypted: no"), Retried(0, "x"), Retried(70_000, "x"), Released())
            )
            self.engine.settle([(claim, outcome)], now_ms=self.now_ms)

    def _cancel_or_revive(self) -> None:
        found = self.engine.documents(None, None, None, 1000)
        if found:
            self.engine.cancel([self.random.choice(found).id], now_ms=self.now_ms)
        failed = [one.id for one in found if one.state == "failed"]
        if failed:
            self.engine.retry(self.random.choice(failed), now_ms=self.now_ms)


def caught_up(live: Live, engine: Engine) -> None:
    changes = engine.changes(live.change, 100_000)
    live.follow(changes, looked_up(engine, live.needs(changes)))


@pytest.mark.parametrize("seed", range(6))
def test_the_picture_is_a_fold_of_the_feed_wherever_it_began(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(seed)
    monkeypatch.setattr("fairlane.console.read_model.loader.time_ms", lambda: story.now_ms)
    lives = [Live(story.engine.rules())]  # one from the beginning, others from what is read on the way
    for number in range(250):
        story.step()
        for live in lives:
            caught_up(live, story.engine)
            assert told_in(live, story.now_ms) == told_by(story.engine, story.now_ms), (seed, number)
            unended = {one.id for one in story.engine.documents(None, None, None, 100_000) if one.ended_ms is None}
            assert set(live.documents) == unended  # and nothing is kept of those that have ended
        if number % 60 == 59:  # read late, and the feed is followed from an earlier change: both meet
            changes = story.engine.changes(None, 100_000)
            lives.append(loaded(story.engine, story.random.choice(changes).number)[0])
            caught_up(lives[-1], story.engine)
            lives[-1].pass_time(story.now_ms)
            first, newest = lives[0].frame([]), lives[-1].frame([])
            assert newest["totals"] == first["totals"]
            assert newest["failures"] == first["failures"]
    assert lives[0].frame([])["totals"]["done_today"] > 0


@pytest.mark.parametrize("name", ENGINES[1:])
def test_every_engine_can_be_followed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(3, url := url_of(name, tmp_path))
    monkeypatch.setattr("fairlane.console.read_model.loader.time_ms", lambda: story.now_ms)
    try:
        live = Live(story.engine.rules())
        for number in range(80):
            story.step()
            if number == 50:
                changes = story.engine.changes(None, 100_000)
                live = loaded(story.engine, story.random.choice(changes).number)[0]
            if number % 5 == 4:
                caught_up(live, story.engine)
                assert told_in(live, story.now_ms) == told_by(story.engine, story.now_ms), number
    finally:
        story.queue.close()
        redis.drop_url(url)


def test_a_read_picture_knows_the_past_day_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, engine = (story := Story(1)).queue, story.engine
    monkeypatch.setattr("fairlane.console.read_model.loader.time_ms", lambda: START_MS)
    for hours_ago in (30, 25, 2, 1):
        at_ms = START_MS - hours_ago * 3_600_000
        queue.submit("acme", 1, now=at_ms / 1000)
        claims = engine.claim("w", 9, 60_000, now_ms=at_ms + 5000)
        engine.settle([(one, Done()) for one in claims], now_ms=at_ms + 6000)
    live, _ = loaded(engine, engine.changes(None, 100)[-1].number)
    live.pass_time(START_MS)
    series = history(live.figures.copied(START_MS), START_MS, 1440)["series"]
    assert sum(series["done"]) == sum(series["started"]) == 2
    assert [one for one in series["wait_p95"]["1"] if one is not None] == [pytest.approx(5, rel=0.05)] * 2


def test_what_was_read_so_far_is_told_while_a_queue_is_read() -> None:
    story = Story(1)
    for number in range(5):
        story.queue.submit_many(f"customer {number}", [1] * 500, now=START_MS / 1000)
    told: list[dict[str, Any]] = []
    changes = story.engine.changes(None, 100_000)
    live, _ = loaded(
        story.engine, changes[-1].number, lambda so_far: told.append(json.loads(written_so_far(so_far).partition(b"data: ")[2]))
    )
    assert [one["counted"] for one in told] == [1000, 2000, 2500]  # a page at a time
    for one in told:
        assert one["totals"]["ready"] == sum(lane["ready"] for lane in one["lanes"]) == one["counted"]
        assert one["lanes"][8]["top"][0]["ready"] == 479  # the biggest of what was read
    assert live.frame([])["counted"] is None
    assert told_in(live, START_MS) == told_by(story.engine, START_MS)


def test_starved_means_what_the_simulator_means() -> None:
    story = Story(1)
    engine, interval_ms = story.engine, story.engine.rules().policy.interval_ms
    late = story.queue.submit("late", 1, now=START_MS / 1000)
    live = Live(engine.rules())
    story.pause("late", True)
    at_ms = START_MS
    starved = []
    for after_ms in (1000, interval_ms, interval_ms + 1, interval_ms + 2):
        at_ms = START_MS + after_ms
        story.queue.submit("quick", 1, now=at_ms / 1000)
        assert engine.claim("w", 1, 10_000_000, now_ms=at_ms)
        caught_up(live, engine)
        starved.append(live.starved)
    assert starved == [0, 0, 1, 1]  # longer than the interval, when a later one was taken; once
    story.pause("late", False)
    assert engine.claim("w", 1, 10_000, now_ms=at_ms)[0].id == late.id
    caught_up(live, engine)
    assert live.starved == 0
    assert max(history(live.figures.copied(at_ms), at_ms, 60)["series"]["starved"]) == 1


def test_the_biggest_of_a_lane_are_exact() -> None:
    chosen = random.Random(7)
    rows = [Row(f"customer {number:04}") for number in range(3000)]
    lane, held, counts = Lane(1), list[Followed](), Counter[str]()
    for number in range(30_000):
        if chosen.random() < 0.6 or not held:
            row = rows[int(len(rows) * chosen.random() ** 3)]
            one = Followed(str(number), number, row, 1, number)
            one.state = "ready"
            lane.add(one)
            held.append(one)
            counts[row.customer] += 1
        else:
            at = chosen.randrange(len(held))
            one, held[at] = held[at], held[-1]
            held.pop()
            lane.remove(one)
            one.state = ""
            counts[one.row.customer] -= 1
        if number % 500 == 499:
            told = [(row.customer, count) for row, count in lane.top()]
            assert [count for _, count in told] == sorted(counts.values(), reverse=True)[:TOP]
            assert all(counts[customer] == count for customer, count in told)
            assert lane.oldest_ms() == min(one.ready_ms for one in held)


def test_others_come_up_when_the_biggest_are_served() -> None:
    lane = Lane(1)
    held = {
        name: [Followed(f"{name} {n}", n, row, 1, n) for n in range(5)] for name in range(300) if (row := Row(f"{name:03}"))
    }
    for documents in held.values():
        for one in documents:
            one.state = "ready"
            lane.add(one)
    lane._look_at_all()
    biggest = {row.customer for row in lane._remembered}
    for documents in held.values():
        if documents[0].row.customer in biggest:  # one of each is left
            for one in documents[1:]:
                lane.remove(one)
    assert {count for _, count in lane.top()} == {5}


@pytest.mark.parametrize("percent", [50, 95])
def test_waits_are_told_within_five_per_cent(percent: int) -> None:
    chosen = random.Random(percent)
    waits = [int(10 ** chosen.uniform(0, 8)) for _ in range(2000)]
    told = percentile(Counter(step_of(one) for one in waits), percent)
    assert told == pytest.approx(nearest_rank(sorted(waits), percent) / 1000, rel=0.056)
    assert all(step_of(one) <= step_of(later) for one, later in pairwise(range(5000)))
    assert seconds_of(step_of(0)) == 0


def test_figures_keep_a_day_and_forget_the_rest() -> None:
    figures = Figures()
    for minute in range(3 * 24 * 60):
        figures.began(START_MS + minute * 60_000, 1 + minute % 9, "light", 1000)
        figures.ended(START_MS + minute * 60_000, None if minute % 2 else "corrupt")
    assert len(figures._minutes) <= 24 * 60
    assert len(figures._seconds) <= 122
    end_ms = START_MS + 3 * 24 * 3_600_000 - 1
    told = history(figures.copied(end_ms), end_ms, 1440)
    for counts in (told["series"]["done"], told["series"]["failed"]["corrupt"]):
        assert 710 <= sum(counts) <= 720  # points begin at whole steps
    assert len(told["series"]["started"]) <= 181
