"""Charts as SVG text, without a plotting library.

Text and axes use the page's own colour (`currentColor`), so that charts work on light and dark pages. Every mark has a
`<title>` with its value, shown when the pointer rests on it, and every chart has a label for screen readers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 66, 12, 34, 40
COLOURS = ("#2f6fde", "#d9822b", "#2a9d66", "#c23b5a", "#7c5cc4", "#5b8a99", "#9a7b1f")
PRIORITIES = ("#1b7f4b", "#4c9a48", "#86b049", "#c3c14a", "#ecc347", "#eda53e", "#e57f37", "#d65432", "#b52b30")
TIMES = ((0.001, "1 ms"), (0.01, "10 ms"), (0.1, "0.1 s"), (1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"),
         (3600, "1 h"), (36_000, "10 h"), (86_400, "1 d"), (864_000, "10 d"), (8_640_000, "100 d"))  # fmt: skip


class Axis(NamedTuple):
    """The scale of an axis (value to a position from 0 to 1), its ticks and its name."""

    scale: Callable[[float], float]
    ticks: Sequence[tuple[float, str]]
    name: str


class Series(NamedTuple):
    """The points of one line in a chart."""

    name: str
    points: Sequence[tuple[float, float]]


def duration(seconds: float) -> str:
    """Format a duration in its largest unit."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"), (0.001, "ms")):
        if seconds >= size:
            return f"{seconds / size:,.3g} {unit}"
    return "0 s"


def log_time_axis(values: Iterable[float], name: str) -> Axis:
    """Return a logarithmic axis of durations; values below its lowest tick are drawn at that tick."""
    positive = [value for value in values if value > 0] or [1.0]
    least = max((time for time, _ in TIMES[:-1] if time <= min(positive)), default=TIMES[0][0])
    most = min((time for time, _ in TIMES if time > least and time >= max(positive)), default=TIMES[-1][0])
    span = math.log(most / least)
    ticks = [(time, label) for time, label in TIMES if least <= time <= most]
    return Axis(lambda value: min(1.0, math.log(max(value, least) / least) / span), ticks, name)


def time_axis(most: float) -> Axis:
    """Return a linear axis of the time since the first document."""
    size, unit = next(
        (size, unit) for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")) if most > 2 * size or size == 1
    )
    ticks = [(tick * size, f"{tick:g} {unit}") for tick in _nice(most / size)]
    return Axis(lambda value: value / most if most else 0.0, ticks, "time since the first document")


def count_axis(most: float, name: str) -> Axis:
    """Return a linear axis of numbers from 0 up."""
    return Axis(lambda value: value / most if most else 0.0, [(tick, f"{tick:,g}") for tick in _nice(most)], name)


def below_axis(least: float, name: str) -> Axis:
    """Return a logarithmic axis of numbers from 0 down, so that -3 can be seen beside -3,000."""
    ticks = [0.0, *(-2.0 * 10**power for power in range(8) if 2 * 10**power <= -least)]
    return Axis(lambda value: 1 - math.log1p(-value) / math.log1p(-least), [(tick, f"{tick:,g}") for tick in ticks], name)


def names_axis(names: Sequence[str], name: str) -> Axis:
    """Return an axis of named positions side by side."""
    return Axis(lambda value: (value + 0.5) / len(names), list(enumerate(names)), name)


def _nice(most: float) -> list[float]:
    """Return about five round numbers from 0."""
    if most <= 0:
        return [0.0]
    size = 10 ** math.floor(math.log10(most / 4))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if most / (size * factor) <= 5)
    return [step * count for count in range(math.floor(most / step * (1 + 1e-9)) + 1)]


def line_chart(label: str, x: Axis, y: Axis, series: Sequence[Series], *, dots: bool = False, steps: bool = False) -> str:
    """Draw lines, each in its own colour, with dots at their points or as steps."""
    marks = []
    for colour, line in zip(_colours(len(series)), series, strict=True):
        points = [(_across(x, position), _up(y, value)) for position, value in line.points]
        marks.append(f'<path d="{_path(points, steps)}" fill="none" stroke="{colour}" stroke-width="2">'
                     f"<title>{escape(line.name)}</title></path>")  # fmt: skip
        if dots:
            marks.extend(
                f'<circle cx="{across:.1f}" cy="{up:.1f}" r="4" fill="{colour}">'
                f"<title>{escape(line.name)}: {escape(duration(value))}</title></circle>"
                for (across, up), (_, value) in zip(points, line.points, strict=True)
            )
    legend = [(line.name, colour) for colour, line in zip(_colours(len(series)), series, strict=True)]
    return _frame(label, x, y, marks, legend)


def bar_chart(label: str, groups: Sequence[str], y: Axis, series: Sequence[tuple[str, Sequence[float | None]]]) -> str:
    """Draw the bars of every name side by side, group by group."""
    room = (WIDTH - LEFT - RIGHT) / len(groups)
    wide = room * 0.8 / len(series)
    marks = []
    for index, (colour, (name, values)) in enumerate(zip(_colours(len(series)), series, strict=True)):
        for group, value in enumerate(values):
            if value is None:
                continue
            left, top = LEFT + group * room + room * 0.1 + index * wide, _up(y, value)
            marks.append(
                f'<rect x="{left:.1f}" y="{min(top, HEIGHT - BOTTOM - 2):.1f}" width="{wide * 0.9:.1f}" '
                f'height="{max(2.0, HEIGHT - BOTTOM - top):.1f}" fill="{colour}">'
                f"<title>{escape(name)}, {escape(groups[group])}: {escape(duration(value))}</title></rect>"
            )
    legend = [(name, colour) for colour, (name, _) in zip(_colours(len(series)), series, strict=True)]
    return _frame(label, names_axis(groups, ""), y, marks, legend)


def stacked_chart(label: str, x: Axis, y: Axis, moments: Sequence[float], counts: Sequence[Sequence[int]]) -> str:
    """Draw a stacked band for each priority, 9 at the bottom, from counts[priority - 1][moment]."""
    base = [0.0] * len(moments)
    marks = []
    for priority in range(len(counts), 0, -1):
        top = [low + count for low, count in zip(base, counts[priority - 1], strict=True)]
        if any(counts[priority - 1]):
            upper = [(_across(x, moment), _up(y, value)) for moment, value in zip(moments, top, strict=True)]
            lower = [(_across(x, moment), _up(y, value)) for moment, value in zip(moments, base, strict=True)]
            marks.append(f'<path d="{_path(upper + lower[::-1], False)} Z" fill="{PRIORITIES[priority - 1]}">'
                         f"<title>priority {priority}</title></path>")  # fmt: skip
        base = top
    used = [(f"{number}", PRIORITIES[number - 1]) for number in range(1, len(counts) + 1) if any(counts[number - 1])]
    return _frame(label, x, y, marks, used)


def standalone(svg: str) -> str:
    """Give a chart fixed colours, for a file of its own."""
    return svg.replace("<svg ", '<svg style="color:#222;background:#fff" ', 1) + "\n"


def _colours(count: int) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(count)]


def _across(x: Axis, value: float) -> float:
    return LEFT + x.scale(value) * (WIDTH - LEFT - RIGHT)


def _up(y: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - y.scale(value) * (HEIGHT - TOP - BOTTOM)


def _path(points: Sequence[tuple[float, float]], steps: bool) -> str:
    """Return the path data of a line; neighbouring points at the same pixel are merged."""
    commands: list[str] = []
    last = None
    for across, up in points:
        spot = f"{across:.1f}", f"{up:.1f}"
        if spot == last:
            continue
        if last is None:
            commands.append(f"M{spot[0]} {spot[1]}")
        elif steps and spot[0] != last[0]:
            commands.append(f"H{spot[0]}" + ("" if spot[1] == last[1] else f"V{spot[1]}"))
        else:
            commands.append(f"L{spot[0]} {spot[1]}")
        last = spot
    return "".join(commands)


def _frame(label: str, x: Axis, y: Axis, marks: Sequence[str], legend: Sequence[tuple[str, str]]) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    frame = [f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="currentColor" stroke-opacity=".5"/>']
    for value, name in y.ticks:
        up = _up(y, value)
        frame.append(f'<path d="M{LEFT} {up:.1f}H{right}" stroke="currentColor" stroke-opacity=".12"/>')
        frame.append(_text(LEFT - 6, up + 4, "end", name))
    frame.extend(_text(_across(x, value), bottom + 16, "middle", name) for value, name in x.ticks)
    frame.append(_text((LEFT + right) / 2, HEIGHT - 4, "middle", x.name))
    frame.append(f'<g transform="translate(12 {(TOP + bottom) / 2:.0f}) rotate(-90)">{_text(0, 0, "middle", y.name)}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">'
        f"{''.join(frame)}{''.join(marks)}{_legend(legend)}</svg>"
    )


def _text(across: float, up: float, anchor: str, text: str) -> str:
    return f'<text x="{across:.1f}" y="{up:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    marks, left = [], float(LEFT)
    for name, colour in entries:
        marks.append(f'<rect x="{left:.0f}" y="8" width="11" height="11" rx="2" fill="{colour}"/>')
        marks.append(_text(left + 15, 18, "start", name))
        left += 30 + 6.6 * len(name)
    return "".join(marks)
