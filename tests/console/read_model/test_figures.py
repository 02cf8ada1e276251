"""Figures are within their promised error and take a bounded amount of memory."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from fairlane.console.read_model.figures import Figures, bucket_of, bucket_seconds, history, percentile
from fairlane.sim.measures import nearest_rank

START_MS = 1_700_000_000_000


@pytest.mark.parametrize("percent", [50, 95])
def test_percentiles_of_waits_are_within_five_per_cent(percent: int) -> None:
    dice = random.Random(percent)
    waits = [int(10 ** dice.uniform(0, 8)) for _ in range(2000)]
    estimate = percentile(Counter(bucket_of(wait) for wait in waits), percent)
    assert estimate == pytest.approx(nearest_rank(sorted(waits), percent) / 1000, rel=0.056)
    assert all(bucket_of(wait) <= bucket_of(longer) for wait, longer in pairwise(range(5000)))
    assert bucket_seconds(bucket_of(0)) == 0


def test_figures_keep_a_day_and_drop_the_rest() -> None:
    figures = Figures()
    for minute in range(3 * 24 * 60):
        figures.record_start(START_MS + minute * 60_000, 1 + minute % 9, "light", 1000)
        figures.record_end(START_MS + minute * 60_000, None if minute % 2 else "corrupt")
    end_ms = START_MS + 3 * 24 * 3_600_000 - 1
    minutes = figures.snapshot(end_ms)
    assert len(minutes) <= 24 * 60
    series = history(minutes, end_ms, 1440)["series"]
    for counts in (series["done"], series["failed"]["corrupt"]):
        assert 710 <= sum(counts) <= 720  # points begin at whole steps
    assert len(series["started"]) <= 181
