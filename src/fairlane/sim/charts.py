"""How is a figure drawn? Small charts as SVG text, without a plotting library, for light and dark pages alike.

Colours of text and lines come from the page (`currentColor`), every mark has a `<title>`, so that pointing at it tells its
value, and every chart has a sentence for those who cannot see it.
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
    """Where a value stands between 0 and 1, and which values are written beside it."""

    place: Callable[[float], float]
    ticks: Sequence[tuple[float, str]]
    name: str


class Line(NamedTuple):
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]


def duration(seconds: float) -> str:
    """A time as people say it, in one unit."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"), (0.001, "ms")):
        if seconds >= size:
            return f"{seconds / size:,.3g} {unit}"
    return "0 s"


def log_time_axis(values: Iterable[float], name: str) -> Axis:
    """Waits from the least to the greatest, by their size; what is less than the least is shown as the least."""
    known = [value for value in values if value > 0] or [1.0]
    least = max((at for at, _ in TIMES[:-1] if at <= min(known)), default=TIMES[0][0])
    most = min((at for at, _ in TIMES if at > least and at >= max(known)), default=TIMES[-1][0])
    span = math.log(most / least)
    ticks = [(at, label) for at, label in TIMES if least <= at <= most]
    return Axis(lambda value: min(1.0, math.log(max(value, least) / least) / span), ticks, name)


def time_axis(most: float) -> Axis:
    """Time since the first document."""
    size, unit = next(
        (size, unit) for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")) if most > 2 * size or size == 1
    )
    ticks = [(tick * size, f"{tick:g} {unit}") for tick in _nice(most / size)]
    return Axis(lambda value: value / most if most else 0.0, ticks, "time since the first document")


def count_axis(most: float, name: str) -> Axis:
    """Numbers from 0."""
    return Axis(lambda value: value / most if most else 0.0, [(tick, f"{tick:,g}") for tick in _nice(most)], name)


def below_axis(least: float, name: str) -> Axis:
    """Numbers from 0 down, by their size, so that -3 can be seen beside -3,000."""
    ticks = [0.0, *(-2.0 * 10**power for power in range(8) if 2 * 10**power <= -least)]
    return Axis(lambda value: 1 - math.log1p(-value) / math.log1p(-least), [(tick, f"{tick:,g}") for tick in ticks], name)


def names_axis(names: Sequence[str], name: str) -> Axis:
    """Named places side by side."""
    return Axis(lambda value: (value + 0.5) / len(names), [(place, label) for place, label in enumerate(names)], name)


def _nice(most: float) -> list[float]:
    """About five round numbers from 0."""
    if most <= 0:
        return [0.0]
    size = 10 ** math.floor(math.log10(most / 4))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if most / (size * factor) <= 5)
    return [step * count for count in range(math.floor(most / step * (1 + 1e-9)) + 1)]


def lines(told: str, x: Axis, y: Axis, drawn: Sequence[Line], *, dots: bool = False, steps: bool = False) -> str:
    """Lines, each in its colour, with dots at their points or as steps."""
    marks = []
    for colour, line in zip(_cycled(len(drawn)), drawn, strict=True):
        places = [(_across(x, at), _up(y, value)) for at, value in line.points]
        marks.append(f'<path d="{_path(places, steps)}" fill="none" stroke="{colour}" stroke-width="2">'
                     f"<title>{escape(line.name)}</title></path>")  # fmt: skip
        if dots:
            marks.extend(
                f'<circle cx="{across:.1f}" cy="{up:.1f}" r="4" fill="{colour}">'
                f"<title>{escape(line.name)}: {escape(duration(value))}</title></circle>"
                for (across, up), (_, value) in zip(places, line.points, strict=True)
            )
    legend = [(line.name, colour) for colour, line in zip(_cycled(len(drawn)), drawn, strict=True)]
    return _framed(told, x, y, marks, legend)


def bars(told: str, groups: Sequence[str], y: Axis, drawn: Sequence[tuple[str, Sequence[float | None]]]) -> str:
    """For each group a bar of every name, side by side."""
    room = (WIDTH - LEFT - RIGHT) / len(groups)
    wide = room * 0.8 / len(drawn)
    marks = []
    for place, (colour, (name, values)) in enumerate(zip(_cycled(len(drawn)), drawn, strict=True)):
        for group, value in enumerate(values):
            if value is None:
                continue
            left, top = LEFT + group * room + room * 0.1 + place * wide, _up(y, value)
            marks.append(
                f'<rect x="{left:.1f}" y="{min(top, HEIGHT - BOTTOM - 2):.1f}" width="{wide * 0.9:.1f}" '
                f'height="{max(2.0, HEIGHT - BOTTOM - top):.1f}" fill="{colour}">'
                f"<title>{escape(name)}, {escape(groups[group])}: {escape(duration(value))}</title></rect>"
            )
    legend = [(name, colour) for colour, (name, _) in zip(_cycled(len(drawn)), drawn, strict=True)]
    return _framed(told, names_axis(groups, ""), y, marks, legend)


def layers(told: str, x: Axis, y: Axis, moments: Sequence[float], counts: Sequence[Sequence[int]]) -> str:
    """One band for each priority, stacked, 9 at the bottom: counts[priority - 1][moment]."""
    base = [0.0] * len(moments)
    marks = []
    for priority in range(len(counts), 0, -1):
        top = [low + count for low, count in zip(base, counts[priority - 1], strict=True)]
        if any(counts[priority - 1]):
            upper = [(_across(x, at), _up(y, value)) for at, value in zip(moments, top, strict=True)]
            lower = [(_across(x, at), _up(y, value)) for at, value in zip(moments, base, strict=True)]
            marks.append(f'<path d="{_path(upper + lower[::-1], False)} Z" fill="{PRIORITIES[priority - 1]}">'
                         f"<title>priority {priority}</title></path>")  # fmt: skip
        base = top
    used = [(f"{number}", PRIORITIES[number - 1]) for number in range(1, len(counts) + 1) if any(counts[number - 1])]
    return _framed(told, x, y, marks, used)


def standalone(svg: str) -> str:
    """A chart as a file of its own, on paper: there is no page to take colours from."""
    return svg.replace("<svg ", '<svg style="color:#222;background:#fff" ', 1) + "\n"


def _cycled(count: int) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(count)]


def _across(x: Axis, value: float) -> float:
    return LEFT + x.place(value) * (WIDTH - LEFT - RIGHT)


def _up(y: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - y.place(value) * (HEIGHT - TOP - BOTTOM)


def _path(places: Sequence[tuple[float, float]], steps: bool) -> str:
    """The drawn line; neighbours that fall on the same spot are left out."""
    drawn: list[str] = []
    last = None
    for across, up in places:
        spot = f"{across:.1f}", f"{up:.1f}"
        if spot == last:
            continue
        if last is None:
            drawn.append(f"M{spot[0]} {spot[1]}")
        elif steps and spot[0] != last[0]:
            drawn.append(f"H{spot[0]}" + ("" if spot[1] == last[1] else f"V{spot[1]}"))
        else:
            drawn.append(f"L{spot[0]} {spot[1]}")
        last = spot
    return "".join(drawn)


def _framed(told: str, x: Axis, y: Axis, marks: Sequence[str], legend: Sequence[tuple[str, str]]) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    frame = [f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="currentColor" stroke-opacity=".5"/>']
    for value, label in y.ticks:
        up = _up(y, value)
        frame.append(f'<path d="M{LEFT} {up:.1f}H{right}" stroke="currentColor" stroke-opacity=".12"/>')
        frame.append(_text(LEFT - 6, up + 4, "end", label))
    frame.extend(_text(_across(x, value), bottom + 16, "middle", label) for value, label in x.ticks)
    frame.append(_text((LEFT + right) / 2, HEIGHT - 4, "middle", x.name))
    frame.append(f'<g transform="translate(12 {(TOP + bottom) / 2:.0f}) rotate(-90)">{_text(0, 0, "middle", y.name)}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(told)}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">'
        f"{''.join(frame)}{''.join(marks)}{_legend(legend)}</svg>"
    )


def _text(across: float, up: float, anchor: str, told: str) -> str:
    return f'<text x="{across:.1f}" y="{up:.1f}" text-anchor="{anchor}">{escape(told)}</text>'


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    drawn, left = [], float(LEFT)
    for name, colour in entries:
        drawn.append(f'<rect x="{left:.0f}" y="8" width="11" height="11" rx="2" fill="{colour}"/>')
        drawn.append(_text(left + 15, 18, "start", name))
        left += 30 + 6.6 * len(name)
    return "".join(drawn)
