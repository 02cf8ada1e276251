"""The read model holds what the store holds, at every change, wherever it was loaded."""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlane import Queue
from fairlane.console.read_model.figures import history
from fairlane.console.read_model.initial_load import load_model, look_up
from fairlane.console.read_model.model import ReadModel, encode_partial_frame
from fairlane.core.document import Claim, Done, Failed, Outcome, Released, Retried
from fairlane.core.errors import RetriesSpent
from fairlane.core.policy import Policy, Terms, interval_ms_of
from fairlane.engine import Engine
from fairlane.engine.walk import walk_documents
from tests.engine.conftest import ENGINES, url_of
from tests.servers import redis

CUSTOMERS = [f"customer {number}" for number in range(8)]
START_MS = 1_700_000_000_000
ALL = 100_000


def summary_of_store(engine: Engine, now_ms: int) -> dict[str, Any]:
    """Count what a store holds."""
    documents = list(walk_documents(engine))
    ready = [each for each in documents if each.state == "ready" or (each.state == "delayed" and each.ready_ms <= now_ms)]
    running = [each for each in documents if each.state == "running"]
    waiting = Counter(each.customer for each in documents if each.state in ("ready", "delayed"))
    tops = {}
    for priority in range(1, 10):
        counts = Counter(each.customer for each in ready if each.priority == priority)
        tops[priority] = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return {
        "ready": Counter(each.priority for each in ready),
        "running": Counter(each.priority for each in running),
        "delayed": sum(each.state == "delayed" and each.ready_ms > now_ms for each in documents),
        "tops": {priority: top for priority, top in tops.items() if top},
        "oldest": {
            priority: (now_ms - min(each.ready_ms for each in ready if each.priority == priority)) / 1000
            for priority in {each.priority for each in ready}
        },
        "workers": Counter(each.worker for each in running),
        "waiting": +waiting,
        "customers": len(engine.customers("", 1000)),
    }


def summary_of_model(model: ReadModel, now_ms: int) -> dict[str, Any]:
    """Read the same from a frame of the model."""
    model.advance_clock(now_ms)
    frame = model.frame([])
    lanes = {lane["priority"]: lane for lane in frame["lanes"]}
    assert frame["totals"]["ready"] == sum(lane["ready"] for lane in lanes.values())
    assert frame["totals"]["running"] == frame["running_total"] == sum(lane["running"] for lane in lanes.values())
    return {
        "ready": Counter({priority: lane["ready"] for priority, lane in lanes.items() if lane["ready"]}),
        "running": Counter({priority: lane["running"] for priority, lane in lanes.items() if lane["running"]}),
        "delayed": frame["totals"]["delayed"],
        "tops": {
            priority: [(entry["customer"], entry["ready"]) for entry in lane["top"]]
            for priority, lane in lanes.items()
            if lane["top"]
        },
        "oldest": {priority: lane["oldest_wait"] for priority, lane in lanes.items() if lane["ready"]},
        "workers": Counter({worker["name"]: worker["running"] for worker in frame["workers"]}),
        "waiting": Counter({row.customer: row.waiting for row in model.rows.values() if row.waiting}),
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

    def step(self) -> None:
        self.now_ms += self.random.choice((0, 1, 500, 60_000))
        now = self.now_ms / 1000
        customer = self.random.choice(CUSTOMERS)
        match self.random.randrange(15):
            case 0 | 1 | 2 | 3:
                delay = self.random.choice((0, 0, 0, 90))
                best = self.random.choice((None, None, 6))
                self.queue.submit_many(customer, [1] * self.random.randrange(1, 9), delay=delay, no_better_than=best, now=now)
            case 4 | 5 | 6:
                worker = self.random.choice(("one", "two"))
                self.claims += self.engine.claim(worker, self.random.randrange(1, 6), 300_000, now_ms=self.now_ms)
            case 7 | 8 | 9:
                self._settle()
            case 14:
                self._take_over()
            case 10:
                self.engine.reclaim(100, now_ms=self.now_ms)
                self._cancel_or_revive()
            case 11 | 12:
                self._steer(customer)
            case _:
                self.pause(customer, self.random.random() < 0.3)
                self.engine.reset(customer, now_ms=self.now_ms)

    def pause(self, customer: str, paused: bool) -> None:
        version = self.engine.customer(customer).terms_version
        self.engine.tune(customer, Terms(paused=paused), version, now_ms=self.now_ms)

    def _steer(self, customer: str) -> None:
        waiting = [each.id for each in walk_documents(self.engine) if each.state in ("ready", "delayed")]
        if waiting and self.random.random() < 0.5:
            ids = self.random.sample(waiting, min(len(waiting), 5))
            self.engine.prioritize(ids, self.random.randrange(1, 10), "ola", now_ms=self.now_ms)
            return
        rules = self.engine.rules()
        thresholds = self.random.choice((Policy().thresholds, (-1,), (-3, -4)))
        self.engine.configure(replace(rules, policy=Policy(thresholds=thresholds)), now_ms=self.now_ms)
        self.engine.reprioritize(customer, 0, 5, recheck=self.random.random() < 0.5, now_ms=self.now_ms)

    def _take_over(self) -> None:
        for claim in self.claims[-2:]:
            (taken,) = self.engine.take_over([(claim.id, claim.token)], "three", 300_000, now_ms=self.now_ms)
            self.claims += [taken] if taken else []

    def _settle(self) -> None:
        for claim in [self.claims.pop() for _ in range(min(len(self.claims), 4))]:
            outcome: Outcome = self.random.choice(
                (Done(), Failed("encrypted: no"), Retried(0, "x"), Retried(70_000, "x"), Released())
            )
            self.engine.settle([(claim, outcome)], now_ms=self.now_ms)

    def _cancel_or_revive(self) -> None:
        documents = list(walk_documents(self.engine))
        if documents:
            self.engine.cancel([self.random.choice(documents).id], now_ms=self.now_ms)
        failed = [document.id for document in documents if document.state == "failed"]
        if failed:
            with suppress(RetriesSpent):
                self.engine.retry(self.random.choice(failed), as_customer=self.random.random() < 0.5, now_ms=self.now_ms)


def catch_up(model: ReadModel, engine: Engine) -> None:
    changes = engine.changes(model.change, ALL)
    model.apply(changes, look_up(engine, model.missing(changes)))


@pytest.mark.parametrize("seed", range(6))
def test_the_model_is_a_fold_of_the_feed_wherever_it_began(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(seed)
    monkeypatch.setattr("fairlane.console.read_model.initial_load.time_ms", lambda: story.now_ms)
    models = [ReadModel(story.engine.rules())]  # one from the beginning, others loaded on the way
    for number in range(250):
        story.step()
        for model in models:
            catch_up(model, story.engine)
            assert summary_of_model(model, story.now_ms) == summary_of_store(story.engine, story.now_ms), (seed, number)
            unended = {each.id for each in walk_documents(story.engine) if each.ended_ms is None}
            assert set(model.documents) == unended  # nothing is kept of documents that have ended
        if number % 60 == 59:  # loaded now, while the feed is followed from an earlier change: both meet
            changes = story.engine.changes(None, ALL)
            models.append(load_model(story.engine, story.random.choice(changes).number)[0])
            catch_up(models[-1], story.engine)
            models[-1].advance_clock(story.now_ms)
            first, newest = models[0].frame([]), models[-1].frame([])
            assert newest["totals"] == first["totals"]
            assert newest["failures"] == first["failures"]
    assert models[0].frame([])["totals"]["done_today"] > 0


@pytest.mark.parametrize("name", ENGINES[1:])
def test_every_engine_can_be_followed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(3, url := url_of(name, tmp_path))
    monkeypatch.setattr("fairlane.console.read_model.initial_load.time_ms", lambda: story.now_ms)
    try:
        model = ReadModel(story.engine.rules())
        for number in range(80):
            story.step()
            if number == 50:
                changes = story.engine.changes(None, ALL)
                model = load_model(story.engine, story.random.choice(changes).number)[0]
            if number % 5 == 4:
                catch_up(model, story.engine)
                assert summary_of_model(model, story.now_ms) == summary_of_store(story.engine, story.now_ms), number
    finally:
        story.queue.close()
        redis.drop_url(url)


def test_a_loaded_model_knows_the_past_day_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, engine = (story := Story(1)).queue, story.engine
    monkeypatch.setattr("fairlane.console.read_model.initial_load.time_ms", lambda: START_MS)
    for hours_ago in (30, 25, 2, 1):
        at_ms = START_MS - hours_ago * 3_600_000
        queue.submit("acme", 1, now=at_ms / 1000)
        claims = engine.claim("w", 9, 60_000, now_ms=at_ms + 5000)
        engine.settle([(claim, Done()) for claim in claims], now_ms=at_ms + 6000)
    model, _ = load_model(engine, engine.changes(None, 100)[-1].number)
    model.advance_clock(START_MS)
    series = history(model.figures.snapshot(START_MS), START_MS, 1440)["series"]
    assert sum(series["done"]) == sum(series["started"]) == 2
    assert [wait for wait in series["wait_p95"]["1"] if wait is not None] == [pytest.approx(5, rel=0.05)] * 2


def test_a_long_load_shows_what_was_counted_so_far() -> None:
    story = Story(1)
    for number in range(5):
        story.queue.submit_many(f"customer {number}", [1] * 500, now=START_MS / 1000)
    frames: list[dict[str, Any]] = []
    changes = story.engine.changes(None, ALL)
    model, _ = load_model(
        story.engine,
        changes[-1].number,
        lambda partial: frames.append(json.loads(encode_partial_frame(partial).partition(b"data: ")[2])),
    )
    assert [frame["counted"] for frame in frames] == [1000, 2000, 2500]  # a page at a time
    for frame in frames:
        assert frame["totals"]["ready"] == sum(lane["ready"] for lane in frame["lanes"]) == frame["counted"]
        assert frame["lanes"][8]["top"][0]["ready"] == 479  # the biggest so far
    assert model.frame([])["counted"] is None
    assert summary_of_model(model, START_MS) == summary_of_store(story.engine, START_MS)


def test_starved_means_the_same_as_in_the_simulator() -> None:
    story = Story(1)
    engine, interval_ms = story.engine, interval_ms_of(story.engine.rules().policy)
    late = story.queue.submit("late", 1, now=START_MS / 1000)
    model = ReadModel(engine.rules())
    story.pause("late", True)
    at_ms = START_MS
    starved = []
    for after_ms in (1000, interval_ms, interval_ms + 1, interval_ms + 2):
        at_ms = START_MS + after_ms
        story.queue.submit("quick", 1, now=at_ms / 1000)
        assert engine.claim("w", 1, 10_000_000, now_ms=at_ms)
        catch_up(model, engine)
        starved.append(model.starved)
    assert starved == [0, 0, 1, 1]  # longer than the interval, when a later one was claimed; counted once
    story.pause("late", False)
    assert engine.claim("w", 1, 10_000, now_ms=at_ms)[0].id == late.id
    catch_up(model, engine)
    assert model.starved == 0
    assert max(history(model.figures.snapshot(at_ms), at_ms, 60)["series"]["starved"]) == 1
