"""Samples of starts: the queue forecasts the starts of some waiting documents, and learns from when they do start.

Laws:
- Every worker offers to do a step and one of them does it, by a conditional write of NEXT; if two overlap nevertheless, the
  write of the slower one is refused, as each replaces only the version that it has read.
- Every new document is as likely to be sampled as any other that came meanwhile, and each moment of its wait counts alike: a
  forecast weighs as much as the part of the wait it stands for. So what is learned holds for whoever asks, whenever.
- A step costs a bounded number of reads, whatever waits. Nothing depends on it: a step that is missed, or whose process is
  killed between two writes, costs some samples.
- Its records name documents by id, and no customer.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any, NamedTuple

from fairlane.core.document import DocumentRow, Outlook, Record
from fairlane.core.eta import Forecast
from fairlane.engine import Engine
from fairlane.engine.protocol import DocumentFilter

from .calibration import (
    THOUSANDTHS,
    Calibration,
    decode_calibration,
    group_of,
    score_of,
    whole_numbers,
)

ESTIMATES = "start estimates"  # the group of records
NEXT, SAMPLES, LEARNED = "next", "samples", "learned"  # when the next step is due; documents under way; the calibration
STEP_MS_MIN, STEP_MS_MAX = 10_000, 600_000
STEP_GAPS = 2  # a step for each so many documents that are taken
READS_MAX = 32  # of new documents, in each step
SAMPLED_MAX = 32  # documents under way at once, for each group of priorities
QUESTIONS_MAX = 6  # about each of them
STANDS_FOR = 2  # a question stands for this many times the wait until then: many documents teach more than many questions
STANDS_FOR_WAITS_MAX = 50  # it weighs no more than so many whole waits
GIVEN_UP_RATIO = 50  # a document that waits so many times as long as forecast is given up: no worker may take its kind
ID_LENGTH_MAX = 200


class Question(NamedTuple):
    """A forecast for a document at one moment of its wait; times in milliseconds, quantiles in thousandths."""

    at_ms: int
    stands_for_ms: int  # so much of the wait
    group: int
    ahead: int
    forecast_ms: int
    gap_us: int
    low: int
    high: int

    def forecast(self) -> Forecast:
        return Forecast(self.forecast_ms / 1000, self.gap_us / 10**6)


class Sample(NamedTuple):
    """A waiting document, and the forecasts for it until now."""

    id: str
    token: int  # it has not been claimed since, unless the document has another one
    group: int
    questions: tuple[Question, ...] = ()

    def has_started(self, document: DocumentRow) -> bool:
        """Return whether its newest claim is its first since: it has had no other token, or was not ready again meanwhile (a
        claim that is taken over has several)."""
        waited_ms = max(document.submitted_ms + 1, *(question.at_ms for question in self.questions), 0)
        is_first = document.token == self.token + 1 or document.ready_ms < waited_ms
        return document.token > self.token and document.claimed_ms is not None and is_first

    def is_waiting(self, document: DocumentRow) -> bool:
        return document.token == self.token and document.state == "ready"

    def is_given_up(self, now_ms: int) -> bool:
        longest_ms = max((question.forecast_ms + question.gap_us // 1000 for question in self.questions), default=0)
        return bool(self.questions) and now_ms - self.questions[0].at_ms > GIVEN_UP_RATIO * longest_ms + STEP_MS_MAX


class Samples(NamedTuple):
    """The samples under way after a step."""

    at_ms: int  # of the step
    number: int  # of the newest document then
    samples: tuple[Sample, ...] = ()

    def encode(self) -> str:
        """Return it as JSON text."""
        return json.dumps(self, separators=(",", ":"))


def decode_samples(text: str | None) -> Samples | None:
    """Parse what `encode` returned; None if it is anything else."""
    try:
        at_ms, number, samples = json.loads(text or "")
        at_ms, number = whole_numbers((at_ms, number))
        return Samples(at_ms, number, tuple(_decode_sample(sample) for sample in samples))
    except (ValueError, TypeError, RecursionError):
        return None


def _decode_sample(value: Any) -> Sample:
    id, token, group, questions = value
    decoded = tuple(Question(*whole_numbers(question, len(Question._fields))) for question in questions)
    token, group = whole_numbers((token, group))
    are_groups_right = {group, *(question.group for question in decoded)} <= {0, 1, 2}
    if type(id) is not str or not 1 <= len(id) <= ID_LENGTH_MAX or not are_groups_right:
        raise ValueError("damaged")
    if any(min(each.ahead, each.forecast_ms) < 0 or min(each.gap_us, each.stands_for_ms) < 1 for each in decoded):
        raise ValueError("damaged")
    return Sample(id, token, group, decoded)


def read_calibration(engine: Engine) -> Calibration:
    """Return what this queue has learned about its forecasts."""
    record = engine.record(ESTIMATES, LEARNED)
    return decode_calibration(None if record is None else record.value)


class StartSampler:
    """Does a step of sampling whenever one is due; `now_ms` replaces the store's clock in replays."""

    def __init__(self, engine: Engine, random: Random | None = None) -> None:
        self._engine = engine
        self._random = random or Random()
        self._written: tuple[str, Calibration] | None = None  # while nobody else writes, it need not be decoded again

    def step(self, now_ms: int | None = None) -> int:
        """Do a step if one is due and no other worker does it; return in how many milliseconds the next is due."""
        engine, at_ms = self._engine, self._engine.now() if now_ms is None else now_ms
        gate = engine.record(ESTIMATES, NEXT)
        wait_ms = 0 if gate is None else _decode_next(gate.value) - at_ms
        if 0 < wait_ms <= 2 * STEP_MS_MAX:  # else the clock was set back
            return wait_ms
        learned_record, samples_record = engine.record(ESTIMATES, LEARNED), engine.record(ESTIMATES, SAMPLES)
        learned = self._decode_learned(learned_record)
        before = decode_samples(None if samples_record is None else samples_record.value)
        marked, pause_ms = self._mark(learned)
        if engine.put_record(ESTIMATES, NEXT, json.dumps(at_ms + pause_ms), 0 if gate is None else gate.version) is None:
            return pause_ms
        after, calibration = self._sample(before, marked, at_ms)
        # The samples first: if the process is killed in between, what they said is lost, and not learned twice.
        if after != before and engine.put_record(ESTIMATES, SAMPLES, after.encode(), _version(samples_record)) is None:
            return pause_ms
        if calibration != learned:
            self._written = calibration.encode(), calibration
            engine.put_record(ESTIMATES, LEARNED, self._written[0], _version(learned_record))
        return pause_ms

    def _decode_learned(self, record: Record | None) -> Calibration:
        if self._written is not None and record is not None and record.value == self._written[0]:
            return self._written[1]
        return decode_calibration(None if record is None else record.value)

    def _mark(self, learned: Calibration) -> tuple[Calibration, int]:
        """Add a mark, if it is time for one; return in how many milliseconds the next step is due, too."""
        totals = self._engine.totals()
        made = learned.forecast(Outlook(0, 1, 0, None, totals))
        gap_ms = STEP_MS_MIN if made is None else made.gap * 1000
        pause_ms = min(STEP_MS_MAX, max(STEP_MS_MIN, STEP_GAPS * gap_ms)) * self._random.uniform(0.5, 1.5)
        return learned.mark(totals), round(pause_ms)

    def _sample(self, before: Samples | None, learned: Calibration, at_ms: int) -> tuple[Samples, Calibration]:
        """Learn from samples that have started, forecast those that wait, and begin new ones."""
        newest = self._engine.documents(DocumentFilter(), None, 1).documents
        number = newest[0].number if newest else 0
        if before is None or not 0 <= before.number <= number:
            return Samples(at_ms, number), learned
        if number == before.number and not before.samples:
            return before, learned  # nothing came and nothing is under way: nothing to write
        since_ms = max(1, at_ms - before.at_ms)
        under_way, calibration = list[Sample](), learned
        for sample in before.samples:
            document = self._engine.document(sample.id)
            if document is None:
                continue
            if sample.has_started(document):
                calibration = _learn(calibration, sample, document)
            elif sample.is_waiting(document) and not sample.is_given_up(at_ms):
                under_way.append(self._ask(learned, sample, document, at_ms, since_ms))
        under_way += self._begin(under_way, learned, before, number, at_ms)
        return Samples(at_ms, number, tuple(under_way)), calibration

    def _begin(self, under_way: list[Sample], learned: Calibration, before: Samples, number: int, at_ms: int) -> list[Sample]:
        """Begin to sample some of the documents that came since the last step, and still wait."""
        room = [SAMPLED_MAX - sum(sample.group == group for sample in under_way) for group in range(3)]
        new = range(before.number + 1, number + 1)
        picked = self._random.sample(new, min(READS_MAX, len(new))) if any(room) else []
        begun = list[Sample]()
        for picked_number in picked:
            for document in self._engine.documents(DocumentFilter(), picked_number + 1, 1, 1).documents:
                group = group_of(document.priority)
                if document.number == picked_number and document.state == "ready" and not document.token and room[group] > 0:
                    room[group] -= 1
                    sample = Sample(document.id, 0, group)
                    begun.append(self._ask(learned, sample, document, at_ms, max(1, at_ms - before.at_ms)))
        return begun

    def _ask(self, learned: Calibration, sample: Sample, document: DocumentRow, at_ms: int, since_ms: int) -> Sample:
        """Forecast a sample's start now, the less often the longer it has waited; what is held is not forecast."""
        stands_for_ms = max(since_ms, STANDS_FOR * (at_ms - document.ready_ms))
        if self._random.random() * stands_for_ms >= since_ms or len(sample.questions) >= QUESTIONS_MAX:
            return sample
        outlook = self._engine.outlook(sample.id, now_ms=at_ms)
        made = None if outlook is None else learned.forecast(outlook)
        if outlook is None or made is None:
            return sample
        low, _, high = (round(quantile * THOUSANDTHS) for quantile in learned.quantiles(outlook))
        forecast_ms, gap_us = round(made.seconds * 1000), max(1, round(made.gap * 10**6))
        group = group_of(outlook.priority)
        question = Question(at_ms, stands_for_ms, group, outlook.ahead, forecast_ms, gap_us, low, high)
        return sample._replace(questions=(*sample.questions, question))


def _learn(calibration: Calibration, sample: Sample, document: DocumentRow) -> Calibration:
    """Return the calibration after a sample has started."""
    started_ms = document.claimed_ms or 0
    waited_ms = max(1, started_ms - document.ready_ms)
    for question in sample.questions:
        weight = min(STANDS_FOR_WAITS_MAX, question.stands_for_ms / waited_ms)
        true_seconds = (started_ms - question.at_ms) / 1000
        score = score_of(question.forecast(), question.ahead, true_seconds, weight)
        calibration = calibration.learn(question.group, score, question.low / THOUSANDTHS, question.high / THOUSANDTHS)
    return calibration


def _decode_next(text: str) -> int:
    try:
        (next_ms,) = whole_numbers([json.loads(text)])
    except ValueError:
        return 0
    return next_ms


def _version(record: Any) -> int:
    return 0 if record is None else int(record.version)
