"""Estimated starts: over the simulator's workloads, about eight true starts in ten are in the range.

The queue learns from its own starts meanwhile, as workers let it; `python -m bench.ranges` measures more, and prints a table.
"""

from __future__ import annotations

from math import exp

import pytest

from bench.ranges import Load, Prediction, predict, share, table
from fairlane.core.eta import QUANTILES, StartEstimate
from fairlane.sim.generators import GENERATORS, generate

LOADS = (Load(None, 4), Load(0.6, 1), Load(1.1, 20), Load(0.9, 8, speed=30))
SEED = 11
COUNT = 50  # of each kind of sender


# Each workload under two of the loads, in turn: all of them take a minute.
RUNS = [(name, LOADS[(number + half) % len(LOADS)], SEED + half) for number, name in enumerate(GENERATORS) for half in (0, 2)]


@pytest.fixture(scope="module")
def predictions() -> list[Prediction]:
    return [prediction for name, load, seed in RUNS for prediction in predict(generate(name, seed), load, COUNT)]


def test_the_range_holds_seven_to_nine_true_starts_in_ten(predictions: list[Prediction]) -> None:
    assert len(predictions) >= 0.9 * len(RUNS) * 3 * COUNT
    assert 0.7 <= share(predictions) <= 0.9


def test_almost_every_document_gets_a_range_while_documents_are_taken(predictions: list[Prediction]) -> None:
    assert sum(prediction.estimate is None for prediction in predictions) <= 0.01 * len(predictions)


def test_starts_are_missed_on_both_sides_and_the_likely_one_is_in_the_middle(predictions: list[Prediction]) -> None:
    starts = [(prediction.started_in, prediction.estimate) for prediction in predictions if prediction.estimate is not None]
    assert 0.05 <= sum(start < estimate.low for start, estimate in starts) / len(starts) <= 0.15
    assert 0.05 <= sum(start > estimate.high for start, estimate in starts) / len(starts) <= 0.15
    assert 0.4 <= sum(start < estimate.likely for start, estimate in starts) / len(starts) <= 0.6


@pytest.mark.parametrize("generator", GENERATORS)
def test_no_workload_is_far_off(predictions: list[Prediction], generator: str) -> None:
    assert 0.65 <= share(prediction for prediction in predictions if prediction.workload == generator) <= 0.93


@pytest.mark.parametrize("load", LOADS, ids=str)
def test_no_load_is_far_off(predictions: list[Prediction], load: Load) -> None:
    assert 0.65 <= share(prediction for prediction in predictions if prediction.load == load) <= 0.93


@pytest.mark.parametrize("sender", ["light", "middle", "heavy"])
def test_no_kind_of_sender_is_far_off(predictions: list[Prediction], sender: str) -> None:
    assert 0.65 <= share(prediction for prediction in predictions if prediction.sender == sender) <= 0.93


@pytest.mark.parametrize(("least", "most"), [(0, 0), (1, 3), (4, 15), (16, 127), (128, 10**6)])
def test_neither_a_short_nor_a_long_wait_is_far_off(predictions: list[Prediction], least: int, most: int) -> None:
    assert 0.65 <= share(prediction for prediction in predictions if least <= prediction.ahead <= most) <= 0.93


def test_the_range_of_a_long_wait_is_narrower_than_before_anything_was_learned(predictions: list[Prediction]) -> None:
    """Also here, where a whole workload is some hours and so most of it is learning."""
    widths = sorted(
        prediction.estimate.high / prediction.estimate.low
        for prediction in predictions
        if prediction.estimate is not None and prediction.estimate.low and prediction.ahead >= 64
    )
    assert widths[len(widths) // 2] <= 0.75 * exp(QUANTILES[2] - QUANTILES[0])


def test_a_group_for_which_there_is_no_range_is_in_the_table() -> None:
    nothing = Prediction("flood", LOADS[0], "light", 3, None, 10.0)
    shown = table([nothing, nothing._replace(sender="heavy", estimate=StartEstimate(1.0, 2.0, 3.0))], "some")
    cells = {name: row for name, *row in zip(*(column.cells for column in shown.columns), strict=True)}
    assert cells["sender light"] == ["0", "1", *("-",) * 5]
    assert cells["sender heavy"][:2] == ["1", "0"]
    assert share([nothing]) == 0
