"""When a waiting document will start: the model, and the range around it."""

from __future__ import annotations

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.document import CheckRow, DocumentRow, Hold, Outlook, State, Totals
from fairlane.core.eta import QUANTILES, Forecast, StartEstimate, estimate_ahead, forecast
from fairlane.core.policy import Rules
from fairlane.queue.explain import explain_document, format_range

NOW = 10**12


def totals(busy_seconds: float, taken: int, better: int = 0, better_ready: int = 0) -> Totals:
    """Documents of priority 9, and of priority 1."""
    return Totals(round(busy_seconds * 1000), (better, *(0,) * 7, taken), (better_ready, *(0,) * 8))


@pytest.mark.parametrize(
    ("before", "others", "other_lanes", "own_before", "expected"),
    [(0, 0, 0, 0, 0), (7, 0, 0, 0, 7), (0, 100, 4, 0, 4), (0, 100, 4, 2, 14), (5, 3, 3, 2, 10), (1, 2, 2, 0, 3)],
)
def test_about_all_of_lower_priorities_and_one_of_each_other_lane_for_each_own_turn_go_first(
    before: int, others: int, other_lanes: int, own_before: int, expected: int
) -> None:
    assert estimate_ahead(before, others, other_lanes, own_before) == expected


# -- the model ---------------------------------------------------------------------------------------------------------


def test_it_is_so_many_documents_at_the_rate_at_which_they_were_taken() -> None:
    assert forecast(9, 9, totals(100, 50)) == Forecast(seconds=20.0, gap=2.0)


def test_where_nothing_was_ever_taken_there_is_no_forecast() -> None:
    assert forecast(9, 9, totals(0, 0)) is None
    assert forecast(9, 9, totals(100, 0)) is None


def test_what_comes_with_a_better_priority_passes() -> None:
    assert forecast(9, 9, totals(100, 40, better=10)) == Forecast(25.0, 2.0)
    assert forecast(9, 9, totals(100, 40, better=5, better_ready=5)) == pytest.approx(Forecast(100 * 10 / 35, 100 / 45))
    assert forecast(9, 1, totals(100, 40, better=10)) == Forecast(20.0, 2.0)


def test_at_most_three_quarters_of_what_is_taken_is_thought_to_pass() -> None:
    assert forecast(9, 9, totals(100, 1, better=49)) == Forecast(80.0, 2.0)


def test_the_horizon_is_as_long_as_the_answer() -> None:
    """Fast during the last two minutes, slow before: a short wait goes by the first, a long one by the second."""
    marks = [totals(0, 0), totals(9_000, 900), totals(10_000, 1_000)]
    now = totals(10_200, 1_400)
    assert forecast(3, 9, now, marks) == Forecast(2.0, 0.5)
    long = forecast(3_999, 9, now, marks)
    assert long is not None
    assert long.gap == pytest.approx(10_200 / 1_400)


def test_few_documents_say_little_unless_they_are_all() -> None:
    marks = [totals(1_000, 1_000)]
    assert forecast(0, 9, totals(1_200, 1_003), marks) == pytest.approx(Forecast(1_200 / 1_003, 1_200 / 1_003))
    assert forecast(0, 9, totals(1_200, 1_004), marks) == Forecast(50.0, 50.0)
    assert forecast(0, 9, totals(200, 1)) == Forecast(200.0, 200.0)


histories = st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 1000), st.integers(0, 300)), min_size=2, max_size=9)


@given(histories, st.lists(st.integers(0, 10**6), min_size=2, max_size=9).map(sorted), st.integers(1, 9))
def test_more_ahead_never_starts_sooner(history: list[tuple[int, int, int]], aheads: list[int], priority: int) -> None:
    marks = [totals(0, 0)]
    for busy, taken, better in history:
        last = marks[-1]
        marks.append(totals(last.busy_ms / 1000 + busy, last.taken[8] + taken, last.taken[0] + better))
    made = [forecast(ahead, priority, marks[-1], marks[:-1]) for ahead in aheads]
    seconds = [each.seconds for each in made if each is not None]
    assert len(seconds) in (0, len(aheads))
    assert seconds == sorted(seconds)


# -- the range ---------------------------------------------------------------------------------------------------------


@given(st.floats(0, 1e9), st.floats(1e-6, 1e6))
def test_a_range_is_in_order_and_never_before_now(seconds: float, gap: float) -> None:
    low, likely, high = Forecast(seconds, gap).with_quantiles(QUANTILES)
    assert 0 <= low <= likely <= high


def test_quantiles_are_of_the_logarithm_of_true_over_forecast() -> None:
    assert Forecast(100, 0).with_quantiles((log(0.5), 0, log(3))) == pytest.approx(StartEstimate(50, 100, 300))
    assert Forecast(0, 4).with_quantiles((log(0.5), 0, log(3))) == pytest.approx(StartEstimate(0, 0, 2))


# -- in words ----------------------------------------------------------------------------------------------------------


def outlook(ahead: int = 99, hold: Hold | None = None) -> Outlook:
    return Outlook(NOW, 9, ahead, hold, totals(100, 50))


def document(delay_ms: int = 0) -> DocumentRow:
    check = CheckRow("acme", 2, -3000, NOW, 1, 0)
    state: State = "delayed" if delay_ms else "ready"
    return DocumentRow(
        "d", 1, "acme", "document", state, check, 1000, None, NOW + delay_ms, 0, 3, 0, None, None, None, None,
        priority=2, no_better_than=None, is_set_by_hand=False, claimed_ms=None,
    )  # fmt: skip


def test_a_delayed_document_does_not_start_before() -> None:
    facts = explain_document(document(delay_ms=600_000), Rules(), outlook(0)).facts
    free = explain_document(document(), Rules(), outlook(0)).facts
    assert facts["not_before_in"] == 600
    assert (facts["expected_in_low"], facts["expected_in"]) == (600, 600)
    assert facts["expected_in_high"] == pytest.approx(600 + free["expected_in_high"], abs=0.001)


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
    spoken = format_range(explanation.facts["expected_in_low"], explanation.facts["expected_in_high"])
    assert explanation.sentence.endswith(f" About 99 documents are ahead of it; it will probably start {spoken}.")
    alone = explain_document(document(), Rules(), outlook(0))
    assert " Nothing is ahead of it; it will probably start " in alone.sentence


@pytest.mark.parametrize(
    ("hold", "words"),
    [
        ("paused", "acme is paused"),
        ("cap", "as many documents of acme run as its cap allows"),
        ("kind running", "as many documents of kind 'document' run as its limit allows"),
        ("kind rate", "documents of kind 'document' start as often as its limit allows"),
    ],
)
def test_the_sentence_names_what_holds_it_back(hold: Hold, words: str) -> None:
    explanation = explain_document(document(), Rules(), outlook(0, hold))
    assert explanation.sentence.endswith(f"Nothing is ahead of it; {words}, so when it starts cannot be said.")
    assert (explanation.facts["held_by"], explanation.facts["expected_in"]) == (hold, None)


def test_the_sentence_says_where_the_priority_comes_from() -> None:
    by_hand = document()._replace(priority=1, is_set_by_hand=True)
    assert explain_document(by_hand, Rules(), None).sentence.startswith(
        "Priority 1, set by an operator; acme's counter stood at -3 when it was submitted, for 2."
    )
    assert "Priority 5 by the table that holds now" in explain_document(document()._replace(priority=5), Rules(), None).sentence
    later = document()._replace(no_better_than=2)
    assert "Priority 2, because it was submitted to be no better" in explain_document(later, Rules(), None).sentence
