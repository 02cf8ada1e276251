"""What does a manager want to see? One page of HTML with pictures, that needs nothing besides itself."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from fairlane.core.policy import LEVELS_MAX, STEP

from .charts import (
    Line,
    bars,
    below_axis,
    count_axis,
    duration,
    layers,
    lines,
    log_time_axis,
    names_axis,
    time_axis,
)
from .contenders import MEANINGS
from .measures import CLASSES, SECOND_US, Answers, nearest_rank
from .replay import Replay
from .workload import Workload

SIZES = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)  # upper bounds of the groups of customers
MOMENTS = 300
DEEPEST = -22.0  # counters are drawn at least down to where priority 9 begins
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


class Story(NamedTuple):
    """One replay and its figures."""

    replay: Replay
    answers: Answers


def page(stories: Sequence[Story], chosen: Sequence[str]) -> str:
    """The whole page; `chosen` names the customers whose counters are drawn."""
    workload = stories[0].replay.workload
    title = f"{escape(workload.name)}: who waited how long?"
    parts = [
        f"<h1>{title}</h1>",
        _lead(stories),
        *(f'<p class="note">{escape(note)}</p>' for note in workload.notes),
        f"<h2>{'Before and after' if len(stories) > 1 else 'Waits'}</h2>",
        _figure(before_and_after(stories), "99 of 100 documents waited no longer than this."),
        _table(stories),
        "<h2>Wait by customer size</h2>",
        _figure(by_size(stories), "Half of the documents of customers of that size waited no longer than this."),
        "<h2>What waited, by priority</h2>",
        *(_figure(over_time(one), _named(one)) for one in stories if one.replay.contender.rules.policy.thresholds),
        f"<h2>Counters of {escape(', '.join(chosen))}</h2>",
        *(_figure(counters(one, chosen), _named(one)) for one in stories if one.replay.contender.rules.policy.thresholds),
        "<h2>Words</h2>",
        _words(stories),
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def chosen_customers(workload: Workload, count: int = 4) -> list[str]:
    """The customers worth a look: the biggest, the smallest, and some between, by the size of what they sent."""
    sizes = workload.sizes()
    ranked = sorted(range(len(sizes)), key=lambda one: (-sizes[one], one))
    places = sorted({round((len(ranked) - 1) * (place / (count - 1)) ** 2) for place in range(count)})
    return [workload.customers[ranked[place]] for place in places]


def _named(story: Story) -> str:
    name = story.answers.policy
    return f"{name}: {MEANINGS[name]}" if name in MEANINGS else name


def _lead(stories: Sequence[Story]) -> str:
    first, workload = stories[0].answers, stories[0].replay.workload
    load = "all at one moment" if first.load is None else f"at a load of {first.load:.2f}"
    span = duration(workload.at_us[-1] / SECOND_US)
    told = f"{first.documents:,} documents of {first.customers:,} customers over {span}, "
    told += f"replayed on {first.workers} workers {load}."
    if len(stories) > 1:
        last = stories[-1].answers
        before, after = first.waits["light"].p99, last.waits["light"].p99
        if before is not None and after is not None:
            told += (
                f" Of the documents of customers that send little, 99 of 100 waited at most {duration(before)} "
                f"under {first.policy}, and {duration(after)} under {last.policy}."
            )
    return f"<p>{escape(told)}</p>"


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _table(stories: Sequence[Story]) -> str:
    head = "".join(f"<th>{escape(one.answers.policy)}</th>" for one in stories)
    rows = []
    for name in CLASSES:
        for figure, said in (("mean", "mean wait"), ("p99", "99 of 100 within")):
            values = [getattr(one.answers.waits[name], figure) for one in stories]
            cells = "".join(f"<td>{'-' if value is None else duration(value)}</td>" for value in values)
            rows.append(f"<tr><td>{CLASS_NAMES[name]}, {said}</td>{cells}</tr>")
    for said, told in (
        ("starved documents", [f"{one.answers.starved:,}" for one in stories]),
        ("overtook an earlier one of their own", [f"{one.answers.overtaken:.1%}" for one in stories]),
        ("largest service gap", [duration(one.answers.service_gap) for one in stories]),
        ("Jain index", [f"{one.answers.jain:.3f}" for one in stories]),
        ("workers busy", [f"{one.answers.utilisation:.0%}" for one in stories]),
    ):
        rows.append(f"<tr><td>{said}</td>{''.join(f'<td>{one}</td>' for one in told)}</tr>")
    return f'<div class="wide"><table><thead><tr><th></th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def before_and_after(stories: Sequence[Story]) -> str:
    """The 99th percentile of the wait of each class, policy beside policy."""
    drawn = [(one.answers.policy, [one.answers.waits[name].p99 for name in CLASSES]) for one in stories]
    axis = log_time_axis((value for _, values in drawn for value in values if value is not None), "wait")
    return bars("99th percentile of the wait by class and policy", [CLASS_NAMES[name] for name in CLASSES], axis, drawn)


def by_size(stories: Sequence[Story]) -> str:
    """The median wait of customers of each size, policy beside policy."""
    workload = stories[0].replay.workload
    group_of = [bisect_left(SIZES, size) for size in workload.sizes()]
    used = sorted(set(group_of))
    drawn = []
    for story in stories:
        waits: dict[int, list[float]] = {group: [] for group in used}
        for customer, wait_us in zip(workload.customer, story.replay.wait_us(), strict=True):
            waits[group_of[customer]].append(wait_us / SECOND_US)
        points = [(float(place), nearest_rank(sorted(waits[group]), 50)) for place, group in enumerate(used)]
        drawn.append(Line(story.answers.policy, points))
    axis = log_time_axis((value for line in drawn for _, value in line.points), "median wait")
    names = names_axis([_size_name(group) for group in used], "documents that the customer sent in all")
    return lines("Median wait by customer size", names, axis, drawn, dots=True)


def _size_name(group: int) -> str:
    if group == len(SIZES):
        return f"over {SIZES[-1]:,}"
    least = SIZES[group - 1] + 1 if group else 1
    return f"{SIZES[group]:,}" if least == SIZES[group] else f"{least:,}-{SIZES[group]:,}"


def over_time(story: Story) -> str:
    """How many documents waited in each priority as time went by."""
    replay = story.replay
    end_us = max(replay.start_us[-1], max(replay.start_us)) or 1
    moments = [end_us * place / MOMENTS for place in range(MOMENTS + 1)]
    changes = [[0] * (MOMENTS + 2) for _ in range(LEVELS_MAX)]
    for at_us, start_us, priority in zip(replay.workload.at_us, replay.start_us, replay.priority, strict=True):
        changes[priority - 1][-(-at_us * MOMENTS // end_us)] += 1  # waits at every moment from its submission on ...
        changes[priority - 1][-(-start_us * MOMENTS // end_us)] -= 1  # ... until it is taken
    counts = [_sums(one[: MOMENTS + 1]) for one in changes]
    most = max(sum(column) for column in zip(*counts, strict=True))
    return layers(
        f"Waiting documents by priority under {story.answers.policy}",
        time_axis(end_us / SECOND_US),
        count_axis(max(1, most), "documents waiting"),
        [moment / SECOND_US for moment in moments],
        counts,
    )


def _sums(changes: Sequence[int]) -> list[int]:
    total, sums = 0, []
    for change in changes:
        total += change
        sums.append(total)
    return sums


def counters(story: Story, chosen: Sequence[str]) -> str:
    """The counters of some customers as time went by."""
    replay, workload = story.replay, story.replay.workload
    points: dict[str, list[tuple[float, float]]] = {name: [(0.0, 0.0)] for name in chosen}
    for number, customer in enumerate(workload.customer):
        name = workload.customers[customer]
        if name in points:
            points[name].append((workload.at_us[number] / SECOND_US, replay.counter[number] / STEP))
    least = min(value for line in points.values() for _, value in line)
    drawn = [Line(name, line) for name, line in points.items()]
    told = f"Counters of {', '.join(chosen)} under {story.answers.policy}"
    return lines(told, time_axis(workload.at_us[-1] / SECOND_US), below_axis(min(DEEPEST, least), "counter"), drawn, steps=True)


def _words(stories: Sequence[Story]) -> str:
    words = [
        ("light documents", "their customer sent at most 3 within the last 25 minutes, this one included"),
        ("quiet customers", "never sent more than 3 within 25 minutes"),
        ("heavy customers", "at some time sent more than 21 within 25 minutes"),
        ("starved", "had been ready for longer than one reset interval when a later document was taken"),
        ("largest service gap", "the most that one customer was served more than another while both had documents waiting"),
        ("Jain index", "1 if all customers are slowed alike, near 0 if one gets everything"),
        *((one.answers.policy, MEANINGS[one.answers.policy]) for one in stories if one.answers.policy in MEANINGS),
    ]
    return "<dl>" + "".join(f"<dt><b>{escape(word)}</b></dt><dd>{escape(meaning)}</dd>" for word, meaning in words) + "</dl>"
