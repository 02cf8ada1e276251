"""Start estimates of waiting documents, and the sentences that explain them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.document import CheckRow, DocumentRow, Outlook, State
from fairlane.core.eta import FACTORS, PACE_MS, StartEstimate, estimate_start, interpolate_factors
from fairlane.core.policy import Rules
from fairlane.queue.explain import explain_document, format_range

NOW = 1_000_000_000


def outlook(
    ahead: int = 99, dispatches: int = 100, span_ms: int = 100_000, busy_ms: int | None = 500_000, blocked: bool = False
) -> Outlook:
    """Return the outlook of a queue that takes one document a second and has been busy for longer than it was measured."""
    return Outlook(NOW, ahead, blocked, dispatches, span_ms, None if busy_ms is None else NOW - busy_ms)


def estimate(outlook: Outlook) -> StartEstimate:
    start = estimate_start(outlook)
    assert start is not None
    return start


@given(
    st.integers(0, 10**7),
    st.integers(1, 10**6),
    st.integers(1, 300_000),
    st.none() | st.integers(-1000, 10**9),
    st.integers(1, 9),
)
def test_the_laws(ahead: int, dispatches: int, span_ms: int, busy_ms: int | None, more: int) -> None:
    start = estimate(outlook(ahead, dispatches, span_ms, busy_ms))
    assert 0 <= start.low <= start.likely <= start.high
    later = estimate(outlook(ahead + more, dispatches, span_ms, busy_ms))
    assert all(after >= before for before, after in zip(start, later, strict=True))


def test_nothing_is_expected_without_a_pace_or_of_a_customer_that_is_blocked() -> None:
    assert estimate_start(outlook(dispatches=0, span_ms=0)) is None
    assert estimate_start(outlook(blocked=True)) is None


def test_a_hundred_documents_at_one_a_second() -> None:
    low, likely, high = estimate(outlook())
    assert 80 < low < 100 < likely < 150 < high < 260


def test_twice_the_pace_is_half_the_time() -> None:
    slow, fast = estimate(outlook()), estimate(outlook(span_ms=200_000))
    assert fast == pytest.approx([2 * seconds for seconds in slow])


def test_a_pace_of_few_documents_is_vague() -> None:
    many, few = estimate(outlook()), estimate(outlook(dispatches=1, span_ms=PACE_MS))
    few = StartEstimate(*(seconds * 1_000 / PACE_MS for seconds in few))  # at the same pace
    assert few.low < many.low / 1.5 < many.high * 1.5 < few.high


def test_a_queue_that_was_idle_may_be_faster_than_its_pace() -> None:
    steady, burst = estimate(outlook()), estimate(outlook(busy_ms=10_000))
    assert burst.low == pytest.approx(steady.low / 10)
    assert steady.low / 10 < burst.likely < steady.likely
    assert burst.high == steady.high


def test_workers_that_have_just_begun_may_be_slower_than_they_seem() -> None:
    begun = estimate(outlook(dispatches=8, span_ms=1_000))
    assert begun.high > 20 * estimate(outlook(dispatches=8 * 100, span_ms=100_000)).high
    assert begun.likely == pytest.approx(estimate(outlook(dispatches=8 * 100, span_ms=100_000)).likely)


def test_the_factors_are_those_of_the_table_and_between() -> None:
    assert all(interpolate_factors(documents) == pytest.approx(tuple(row)) for documents, *row in FACTORS)
    assert interpolate_factors(10**7) == FACTORS[-1][1:]
    assert all(
        before <= between <= after
        for before, between, after in zip(interpolate_factors(2), interpolate_factors(3), interpolate_factors(4), strict=True)
    )


def document(delay_ms: int = 0) -> DocumentRow:
    check = CheckRow("acme", 2, -3000, NOW, 1, 0)
    state: State = "delayed" if delay_ms else "ready"
    return DocumentRow("d", 1, "acme", "document", state, check, 1000, None, NOW + delay_ms, 0, 3, 0, None, None, None, None)


def test_a_delayed_document_does_not_start_before() -> None:
    facts = explain_document(document(delay_ms=600_000), Rules(), outlook()).facts
    free = estimate(outlook())
    assert facts["not_before_in"] == 600
    assert (facts["expected_in_low"], facts["expected_in"]) == (600, 600)
    assert facts["expected_in_high"] == round(600 + free.high, 3)


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.1, 0.9, "in less than a second"),
        (0.9, 1, "within 1 second"),
        (0.2, 4.1, "within 5 seconds"),
        (5.9, 90.1, "in 5 to 91 seconds"),
        (3, 100, "within 100 seconds"),
        (45, 150, "in 45 seconds to 3 minutes"),
        (119, 300, "in 1 to 5 minutes"),
        (180, 180, "in about 3 minutes"),
        (600, 7200, "in 10 minutes to 2 hours"),
        (86_400, 400_000, "in 1 to 5 days"),
        (1e9, 2e9, "in 11,574 to 23,149 days"),
    ],
)
def test_a_range_in_words(low: float, high: float, words: str) -> None:
    assert format_range(low, high) == words


def test_the_sentence_names_the_range() -> None:
    explanation = explain_document(document(), Rules(), outlook())
    low, likely, high = (explanation.facts[name] for name in ("expected_in_low", "expected_in", "expected_in_high"))
    spoken = format_range(low, high)
    assert explanation.sentence.endswith(f" About 99 documents are ahead of it; it will probably start {spoken}.")
    assert estimate(outlook()) == pytest.approx([low, likely, high], abs=0.001)
    alone = explain_document(document(), Rules(), outlook(0))
    assert " Nothing is ahead of it; it will probably start " in alone.sentence


@pytest.mark.parametrize(
    ("rules", "seen", "ending"),
    [
        (Rules(), outlook(blocked=True), "ahead of it; acme is paused or at its cap, so when it starts cannot be said."),
        (
            Rules(),
            outlook(dispatches=0),
            "ahead of it; no worker took a document in the last two minutes, so when it starts cannot be said.",
        ),
        (Rules(frozen="is being moved"), outlook(), "ahead of it; the queue is being moved, so when it starts cannot be said."),
    ],
)
def test_what_cannot_be_known_is_not_given_as_a_number(rules: Rules, seen: Outlook, ending: str) -> None:
    explanation = explain_document(document(), rules, seen)
    assert explanation.sentence.endswith(ending)
    assert {explanation.facts[name] for name in ("expected_in_low", "expected_in", "expected_in_high")} == {None}
    assert explanation.facts["ahead"] == 99
