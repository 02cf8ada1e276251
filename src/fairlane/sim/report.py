"""The HTML report of a simulation: one self-contained page with charts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from html import escape
from itertools import accumulate
from typing import NamedTuple

from fairlane.core.policy import LEVELS_MAX, STEP

from .charts import (
    Series,
    bar_chart,
    below_axis,
    count_axis,
    duration,
    line_chart,
    log_time_axis,
    names_axis,
    stacked_chart,
    time_axis,
)
from .contenders import MEANINGS
from .measures import CLASSES, SECOND_US, Measures, nearest_rank
from .replay import Replay
from .workload import Workload

SIZES = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)  # upper bounds of the groups of customers
MOMENTS = 300
COUNTER_AXIS_MIN = -22.0  # counters are drawn at least down to where priority 9 begins
CLASS_NAMES = {
    "all": "all documents",
    "light": "light documents",
    "quiet": "quiet customers",
    "heavy": "heavy customers",
}
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
svg { width: 100%; height: auto; } .note { opacity: .75; } figure { margin: 1rem 0; } figcaption { opacity: .75; }
.wide { overflow-x: auto; }
"""


class MeasuredReplay(NamedTuple):
    """One replay and its measures."""

    replay: Replay
    measures: Measures


def report_page(results: Sequence[MeasuredReplay], customers: Sequence[str]) -> str:
    """Build the whole page; the counters of `customers` are drawn."""
    workload = results[0].replay.workload
    with_table = [result for result in results if result.replay.contender.rules.policy.thresholds]
    title = f"{escape(workload.name)}: waits by policy"
    parts = [
        f"<h1>{title}</h1>",
        _lead(results),
        *(f'<p class="note">{escape(note)}</p>' for note in workload.notes),
        f"<h2>{'Before and after' if len(results) > 1 else 'Waits'}</h2>",
        _figure(before_and_after(results), "99 % of the documents waited no longer than this."),
        _table(results),
        "<h2>Wait by customer size</h2>",
        _figure(by_size(results), "Half of the documents of customers of that size waited no longer than this."),
        "<h2>Waiting documents by priority</h2>",
        *(_figure(over_time(result), _caption(result)) for result in with_table),
        f"<h2>Counters of {escape(', '.join(customers))}</h2>",
        *(_figure(counters(result, customers), _caption(result)) for result in with_table),
        "<h2>Words</h2>",
        _words(results),
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def sample_customers(workload: Workload, count: int = 4) -> list[str]:
    """Choose the biggest sender, the smallest, and some in between."""
    sizes = workload.sizes()
    ranked = sorted(range(len(sizes)), key=lambda customer: (-sizes[customer], customer))
    ranks = sorted({round((len(ranked) - 1) * (number / (count - 1)) ** 2) for number in range(count)})
    return [workload.customers[ranked[rank]] for rank in ranks]


def _caption(result: MeasuredReplay) -> str:
    name = result.measures.policy
    return f"{name}: {MEANINGS[name]}" if name in MEANINGS else name


def _lead(results: Sequence[MeasuredReplay]) -> str:
    first, workload = results[0].measures, results[0].replay.workload
    load = "all at one moment" if first.load is None else f"at a load of {first.load:.2f}"
    span = duration(workload.at_us[-1] / SECOND_US)
    sentence = f"{first.documents:,} documents of {first.customers:,} customers over {span}, "
    sentence += f"replayed on {first.workers} workers {load}."
    if len(results) > 1:
        last = results[-1].measures
        before, after = first.waits["light"].p99, last.waits["light"].p99
        if before is not None and after is not None:
            sentence += (
                f" Of the documents of customers that send little, 99 % waited at most {duration(before)} "
                f"under {first.policy}, and {duration(after)} under {last.policy}."
            )
    return f"<p>{escape(sentence)}</p>"


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _table(results: Sequence[MeasuredReplay]) -> str:
    measures = [result.measures for result in results]
    head = "".join(f"<th>{escape(figures.policy)}</th>" for figures in measures)
    rows = []
    for name in CLASSES:
        for figure, label in (("mean", "mean wait"), ("p99", "99 % waited at most")):
            values = [getattr(figures.waits[name], figure) for figures in measures]
            cells = "".join(f"<td>{'-' if value is None else duration(value)}</td>" for value in values)
            rows.append(f"<tr><td>{CLASS_NAMES[name]}, {label}</td>{cells}</tr>")
    for label, texts in (
        ("starved documents", [f"{figures.starved:,}" for figures in measures]),
        ("started before an earlier one of their customer", [f"{figures.overtaken:.1%}" for figures in measures]),
        ("largest service gap", [duration(figures.service_gap) for figures in measures]),
        ("Jain index", [f"{figures.jain:.3f}" for figures in measures]),
        ("workers busy", [f"{figures.utilisation:.0%}" for figures in measures]),
    ):
        rows.append(f"<tr><td>{label}</td>{''.join(f'<td>{text}</td>' for text in texts)}</tr>")
    return f'<div class="wide"><table><thead><tr><th></th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def before_and_after(results: Sequence[MeasuredReplay]) -> str:
    """Draw the 99th percentile of the wait of each class, policy beside policy."""
    series = [(result.measures.policy, [result.measures.waits[name].p99 for name in CLASSES]) for result in results]
    axis = log_time_axis((value for _, values in series for value in values if value is not None), "wait")
    return bar_chart("99th percentile of the wait by class and policy", [CLASS_NAMES[name] for name in CLASSES], axis, series)


def by_size(results: Sequence[MeasuredReplay]) -> str:
    """Draw the median wait of customers of each size, policy beside policy."""
    workload = results[0].replay.workload
    group_of = [bisect_left(SIZES, size) for size in workload.sizes()]
    used = sorted(set(group_of))
    series = []
    for result in results:
        waits: dict[int, list[float]] = {group: [] for group in used}
        for customer, wait_us in zip(workload.customer, result.replay.wait_us(), strict=True):
            waits[group_of[customer]].append(wait_us / SECOND_US)
        points = [(float(index), nearest_rank(sorted(waits[group]), 50)) for index, group in enumerate(used)]
        series.append(Series(result.measures.policy, points))
    axis = log_time_axis((value for line in series for _, value in line.points), "median wait")
    names = names_axis([_size_name(group) for group in used], "documents that the customer sent in all")
    return line_chart("Median wait by customer size", names, axis, series, dots=True)


def _size_name(group: int) -> str:
    if group == len(SIZES):
        return f"over {SIZES[-1]:,}"
    least = SIZES[group - 1] + 1 if group else 1
    return f"{SIZES[group]:,}" if least == SIZES[group] else f"{least:,}-{SIZES[group]:,}"


def over_time(result: MeasuredReplay) -> str:
    """Draw how many documents waited in each priority over time."""
    replay = result.replay
    end_us = max(replay.start_us[-1], max(replay.start_us)) or 1
    moments = [end_us * number / MOMENTS for number in range(MOMENTS + 1)]
    changes = [[0] * (MOMENTS + 2) for _ in range(LEVELS_MAX)]
    for at_us, start_us, priority in zip(replay.workload.at_us, replay.start_us, replay.priority, strict=True):
        changes[priority - 1][-(-at_us * MOMENTS // end_us)] += 1  # waits at every moment from its submission on ...
        changes[priority - 1][-(-start_us * MOMENTS // end_us)] -= 1  # ... until it is started
    counts = [list(accumulate(row[: MOMENTS + 1])) for row in changes]
    most = max(sum(column) for column in zip(*counts, strict=True))
    return stacked_chart(
        f"Waiting documents by priority under {result.measures.policy}",
        time_axis(end_us / SECOND_US),
        count_axis(max(1, most), "documents waiting"),
        [moment / SECOND_US for moment in moments],
        counts,
    )


def counters(result: MeasuredReplay, customers: Sequence[str]) -> str:
    """Draw the counters of some customers over time."""
    replay, workload = result.replay, result.replay.workload
    points: dict[str, list[tuple[float, float]]] = {name: [(0.0, 0.0)] for name in customers}
    for number, customer in enumerate(workload.customer):
        name = workload.customers[customer]
        if name in points:
            points[name].append((workload.at_us[number] / SECOND_US, replay.counter[number] / STEP))
    least = min(value for line in points.values() for _, value in line)
    series = [Series(name, line) for name, line in points.items()]
    label = f"Counters of {', '.join(customers)} under {result.measures.policy}"
    y = below_axis(min(COUNTER_AXIS_MIN, least), "counter")
    return line_chart(label, time_axis(workload.at_us[-1] / SECOND_US), y, series, steps=True)


def _words(results: Sequence[MeasuredReplay]) -> str:
    words = [
        ("light documents", "their customer sent at most 3 within the last 25 minutes, this one included"),
        ("quiet customers", "never sent more than 3 within 25 minutes"),
        ("heavy customers", "at some time sent more than 21 within 25 minutes"),
        ("starved", "had been ready for longer than one reset interval when a later document was started"),
        ("largest service gap", "how much more service one customer got than another while both had documents waiting"),
        ("Jain index", "1 if all customers are slowed alike, near 0 if one gets everything"),
        *((policy, MEANINGS[policy]) for result in results if (policy := result.measures.policy) in MEANINGS),
    ]
    return "<dl>" + "".join(f"<dt><b>{escape(word)}</b></dt><dd>{escape(meaning)}</dd>" for word, meaning in words) + "</dl>"
