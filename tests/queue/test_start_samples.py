"""Samples of starts: what the queue learns while documents are served, in virtual time, and how several workers share it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from fairlane import Queue
from fairlane.core.document import Claim, Done, Retried, Submission
from fairlane.engine import Engine
from fairlane.engine.protocol import RECORD_BYTES_MAX
from fairlane.queue import start_samples
from fairlane.queue.start_samples import (
    ESTIMATES,
    LEARNED,
    NEXT,
    QUESTIONS_MAX,
    SAMPLED_MAX,
    SAMPLES,
    STEP_MS_MAX,
    STEP_MS_MIN,
    Question,
    Sample,
    Samples,
    StartSampler,
    decode_samples,
    read_calibration,
)

NOW = 10**12
LEASE_MS = 10**9


class Traffic:
    """Documents of one customer, one worker that takes one every `gap_ms`, and steps of sampling as they come due."""

    def __init__(self, queue: Queue, gap_ms: int = 10_000) -> None:
        self.queue, self.engine, self.gap_ms = queue, queue.engine, gap_ms
        self.now_ms, self.next_step_ms, self.running = NOW, NOW, list[Claim]()
        self.sampler = StartSampler(queue.engine, Random(1))
        self.submitted = 0

    def submit(self, count: int) -> list[str]:
        ids = [f"document-{number}" for number in range(self.submitted, self.submitted + count)]
        self.submitted += count
        self.engine.submit([Submission(id, "acme", "document", "null") for id in ids], now_ms=self.now_ms)
        return ids

    def sample_now(self) -> None:
        self.engine.put_record(ESTIMATES, NEXT, None)
        self.next_step_ms = self.now_ms
        self.sample()

    def sample(self) -> None:
        self.sampler.step(self.next_step_ms)
        self.next_step_ms = json.loads(value_of(self.engine, NEXT))

    def serve(self, count: int) -> None:
        """Take so many documents, and settle each when the next is taken."""
        for _ in range(count):
            self.now_ms += self.gap_ms
            while self.next_step_ms < self.now_ms:
                self.sample()
            self.engine.settle([(claim, Done()) for claim in self.running], now_ms=self.now_ms)
            self.running = self.engine.claim("worker", 1, LEASE_MS, now_ms=self.now_ms)

    def samples(self) -> Samples:
        samples = decode_samples(value_of(self.engine, SAMPLES))
        assert samples is not None
        return samples


def value_of(engine: Engine, key: str) -> str:
    record = engine.record(ESTIMATES, key)
    assert record is not None
    return record.value


def scores_of(engine: Engine) -> int:
    return sum(len(group.scores) for group in read_calibration(engine).groups)


@pytest.fixture
def traffic(queue: Queue) -> Traffic:
    return with_backlog(queue)


def with_backlog(queue: Queue) -> Traffic:
    """Return a queue with a backlog of which some documents are sampled."""
    traffic = Traffic(queue)
    traffic.submit(5)
    traffic.serve(4)
    traffic.submit(60)
    traffic.serve(4)
    traffic.sample_now()
    assert len(traffic.samples().samples) >= 5
    return traffic


# -- learning ----------------------------------------------------------------------------------------------------------


def test_the_range_closes_in_on_a_queue_that_is_as_regular_as_clockwork(traffic: Traffic) -> None:
    for _ in range(20):
        traffic.submit(20)
        traffic.serve(20)
    document = traffic.submit(1)[0]
    facts = traffic.queue.explain(document, now=traffic.now_ms / 1000).facts
    true_seconds = (facts["ahead"] + 1) * traffic.gap_ms / 1000
    assert 0.9 * facts["expected_in_low"] <= true_seconds <= 1.1 * facts["expected_in_high"]
    assert facts["expected_in_high"] < 2 * facts["expected_in_low"]
    traffic.engine.put_record(ESTIMATES, LEARNED, None)
    facts = traffic.queue.explain(document, now=traffic.now_ms / 1000).facts
    assert facts["expected_in_high"] > 10 * facts["expected_in_low"]  # the prior


def test_a_start_is_learned_once_with_every_forecast_that_was_made_for_it(traffic: Traffic) -> None:
    before, known = scores_of(traffic.engine), traffic.samples()
    ended = {sample.id: len(sample.questions) for sample in known.samples}
    traffic.serve(70)  # until the queue is empty
    for _ in range(5):
        traffic.sample()
    assert traffic.samples().samples == ()
    learned = scores_of(traffic.engine) - before
    assert sum(ended.values()) <= learned
    traffic.sample()
    assert scores_of(traffic.engine) - before == learned


def test_what_another_worker_has_learned_meanwhile_is_kept(traffic: Traffic) -> None:
    first, counts = traffic.sampler, [scores_of(traffic.engine)]
    for sampler in (first, StartSampler(traffic.engine, Random(2)), first):
        traffic.sampler = sampler
        traffic.submit(20)
        for _ in range(20):
            traffic.serve(1)
            counts.append(scores_of(traffic.engine))
        assert counts[-1] > counts[-20] + 5
    assert counts == sorted(counts)


def test_samples_are_bounded_and_fit_into_a_record(traffic: Traffic) -> None:
    for _ in range(20):
        traffic.submit(100)
        traffic.sample_now()
    samples = traffic.samples().samples
    assert max(sum(sample.group == group for sample in samples) for group in range(3)) == SAMPLED_MAX
    traffic.gap_ms = 3_600_000
    traffic.serve(20)
    samples = traffic.samples().samples
    assert max(sum(sample.group == group for sample in samples) for group in range(3)) <= SAMPLED_MAX
    assert 2 <= max(len(sample.questions) for sample in samples) <= QUESTIONS_MAX
    full = Question(2 * NOW, 10**9, 2, 10**7, 10**10, 10**10, -11_999, 11_999)
    sample = Sample("0" * 36, 1, 2, (full,) * QUESTIONS_MAX)
    assert len(Samples(2 * NOW, 10**9, (sample,) * (3 * SAMPLED_MAX)).encode()) < RECORD_BYTES_MAX


def test_documents_that_are_cancelled_or_erased_are_not_learned_from(traffic: Traffic) -> None:
    before = scores_of(traffic.engine)
    for sample in traffic.samples().samples:
        traffic.engine.cancel([sample.id], now_ms=traffic.now_ms)
    traffic.sample()
    assert (traffic.samples().samples, scores_of(traffic.engine)) == ((), before)
    traffic.submit(60)
    traffic.now_ms = traffic.next_step_ms
    traffic.sample_now()
    assert traffic.samples().samples
    learned = scores_of(traffic.engine)
    traffic.running = []
    while traffic.engine.forget("acme", 100, now_ms=traffic.now_ms):
        pass
    traffic.sample()
    assert (traffic.samples().samples, scores_of(traffic.engine)) == ((), learned)


def test_a_document_that_was_taken_twice_between_two_steps_is_not_learned_from(traffic: Traffic) -> None:
    """Only its newest claim is known, and that is not when it first started."""
    before, sampled = scores_of(traffic.engine), {sample.id for sample in traffic.samples().samples}
    for _ in range(2):
        claims = traffic.engine.claim("worker", 100, LEASE_MS, now_ms=traffic.now_ms)
        traffic.engine.settle([(claim, Retried()) for claim in claims], now_ms=traffic.now_ms)
    assert all(document.token == 2 for id in sampled if (document := traffic.engine.document(id)))
    traffic.sample()
    assert scores_of(traffic.engine) == before
    assert not sampled & {sample.id for sample in traffic.samples().samples}


@pytest.mark.parametrize("times", [1, 2])
def test_a_claim_that_was_taken_over_is_learned_from_as_one_that_was_not(traffic: Traffic, times: int) -> None:
    with Queue("memory://") as other:
        learned = []
        for each, hands in ((traffic, times), (with_backlog(other), 0)):
            questions, before = sum(len(sample.questions) for sample in each.samples().samples), scores_of(each.engine)
            each.now_ms += 5_000
            for claim in each.engine.claim("bridge", 100, LEASE_MS, now_ms=each.now_ms):
                for token in range(1, 1 + hands):
                    assert each.engine.take_over([(claim.id, token)], "worker", LEASE_MS, now_ms=each.now_ms + 9_000) != [None]
            each.sample()
            assert scores_of(each.engine) - before == questions > 0
            learned.append(read_calibration(each.engine))
        assert learned[0] == learned[1]


def test_a_claim_that_was_taken_over_after_another_one_is_not_learned_from(traffic: Traffic) -> None:
    before = scores_of(traffic.engine)
    traffic.now_ms += 5_000
    claims = traffic.engine.claim("worker", 100, LEASE_MS, now_ms=traffic.now_ms)
    traffic.engine.settle([(claim, Retried()) for claim in claims], now_ms=traffic.now_ms)
    for claim in traffic.engine.claim("bridge", 100, LEASE_MS, now_ms=traffic.now_ms):
        assert traffic.engine.take_over([(claim.id, claim.token)], "worker", LEASE_MS, now_ms=traffic.now_ms) != [None]
    traffic.sample()
    assert scores_of(traffic.engine) == before


def test_what_is_held_is_not_forecast(traffic: Traffic) -> None:
    traffic.queue.pause("acme")
    before = {sample.id: sample.questions for sample in traffic.samples().samples}
    for _ in range(3):
        traffic.sample()
    assert {sample.id: sample.questions for sample in traffic.samples().samples} == before


def test_a_document_that_nobody_takes_is_given_up(traffic: Traffic) -> None:
    assert traffic.samples().samples
    traffic.next_step_ms += 1000 * 3_600_000
    traffic.sample()
    assert traffic.samples().samples == ()


# -- several workers ---------------------------------------------------------------------------------------------------


@contextmanager
def counting_writes(engine: Engine) -> Iterator[list[str]]:
    written, put = list[str](), engine.put_record

    def put_record(group: str, key: str, value: str | None, version: int | None = None) -> int | None:
        done = put(group, key, value, version)
        if done is not None:
            written.append(key)
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "put_record", put_record)
        yield written


def test_of_all_workers_one_does_a_step(traffic: Traffic) -> None:
    at_ms = traffic.next_step_ms
    samplers = [StartSampler(traffic.engine) for _ in range(5)]
    with counting_writes(traffic.engine) as written:
        pauses = [sampler.step(at_ms) for sampler in samplers]
    assert written.count(NEXT) == written.count(SAMPLES) == 1
    assert all(0 < pause <= 1.5 * STEP_MS_MAX for pause in pauses)


@pytest.mark.parametrize("behind", [NEXT, SAMPLES, LEARNED])
def test_a_worker_that_was_overtaken_writes_nothing_more(
    traffic: Traffic, behind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker does a whole step just before this one writes that record."""
    traffic.serve(30)  # some samples have started, so every record is to be written
    engine, put, at_ms = traffic.engine, traffic.engine.put_record, traffic.next_step_ms
    traffic.now_ms = at_ms
    refused = list[str]()

    def overtaken(group: str, key: str, value: str | None, version: int | None = None) -> int | None:
        if key == behind:
            monkeypatch.undo()
            engine.put_record(ESTIMATES, NEXT, json.dumps(0))
            StartSampler(engine, Random(2)).step(at_ms + 1)
            after.update({key: value_of(engine, key) for key in (NEXT, SAMPLES, LEARNED)})
            monkeypatch.setattr(engine, "put_record", late)
        return late(group, key, value, version)

    def late(group: str, key: str, value: str | None, version: int | None = None) -> int | None:
        done = put(group, key, value, version)
        if done is None:
            refused.append(key)
        return done

    after: dict[str, str] = {}
    monkeypatch.setattr(engine, "put_record", overtaken)
    StartSampler(engine, Random(3)).step(at_ms)
    assert refused == [behind]
    assert {key: value_of(engine, key) for key in after} == after


@pytest.mark.parametrize(
    ("gap_ms", "step_ms"), [(1, STEP_MS_MIN), (1000, STEP_MS_MIN), (60_000, 120_000), (10**7, STEP_MS_MAX)]
)
def test_a_step_is_due_for_every_two_documents_or_so_within_bounds(queue: Queue, gap_ms: int, step_ms: int) -> None:
    engine, pauses = queue.engine, []
    engine.submit([Submission(str(number), "acme", "document", "null") for number in range(50)], now_ms=NOW)
    for number in range(1, 51):
        engine.claim("worker", 1, LEASE_MS, now_ms=NOW + number * gap_ms)
    for _ in range(20):
        engine.put_record(ESTIMATES, NEXT, None)
        pauses.append(StartSampler(engine).step(NOW + 51 * gap_ms))
    assert step_ms / 2 <= min(pauses) <= max(pauses) <= 1.5 * step_ms


def test_a_clock_that_was_set_back_does_not_stop_it(traffic: Traffic) -> None:
    back_ms = NOW - 10**9
    traffic.sampler.step(back_ms)
    assert json.loads(value_of(traffic.engine, NEXT)) <= back_ms + 1.5 * STEP_MS_MAX


def test_a_queue_in_which_nothing_happens_costs_no_writes_but_its_turn(queue: Queue) -> None:
    traffic = Traffic(queue)
    traffic.sample()
    traffic.sample()
    with counting_writes(queue.engine) as written:
        for _ in range(5):
            traffic.sample()
    assert set(written) == {NEXT}


# -- damage ------------------------------------------------------------------------------------------------------------

DAMAGE: list[Any] = [None, "null", "{", "[1, 2, [3]]", "[NaN, 1, []]"]


@pytest.mark.parametrize("key", [NEXT, SAMPLES, LEARNED])
@pytest.mark.parametrize("value", DAMAGE)
def test_a_record_that_is_damaged_or_missing_costs_what_was_learned_and_nothing_else(
    traffic: Traffic, key: str, value: str | None
) -> None:
    document = traffic.submit(1)[0]
    traffic.engine.put_record(ESTIMATES, key, value)
    facts = traffic.queue.explain(document, now=traffic.now_ms / 1000).facts
    assert 0 <= facts["expected_in_low"] <= facts["expected_in"] <= facts["expected_in_high"]
    traffic.next_step_ms = traffic.now_ms + 1
    traffic.sample()
    traffic.submit(20)
    traffic.serve(10)
    traffic.submit(20)
    traffic.serve(10)
    assert traffic.samples().samples
    assert read_calibration(traffic.engine).marks


def test_a_sample_of_a_shape_that_was_never_written_is_refused() -> None:
    good = Question(1, 1, 2, 0, 0, 1, -1, 1)
    assert decode_samples(Samples(1, 1, (Sample("a", 0, 1, (good,)),)).encode()) is not None
    for bad in (good._replace(group=3), good._replace(ahead=-1), good._replace(gap_us=0), good._replace(stands_for_ms=0)):
        assert decode_samples(Samples(1, 1, (Sample("a", 0, 1, (bad,)),)).encode()) is None
    for sample in (Sample("", 0, 1), Sample("a", 0, -1), Sample("a", 0, 3), Sample(7, 0, 1)):  # type: ignore[arg-type]
        assert decode_samples(Samples(1, 1, (sample,)).encode()) is None


def test_names_of_customers_are_in_no_record(traffic: Traffic) -> None:
    for key in (NEXT, SAMPLES, LEARNED):
        assert "acme" not in value_of(traffic.engine, key)
    assert start_samples.ESTIMATES == "start estimates"
