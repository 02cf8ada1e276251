"""The page and its pictures: whole, self-contained, and never broken by odd figures."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.policy import Policy, Rules
from fairlane.sim.charts import (
    PRIORITIES,
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
from fairlane.sim.contenders import CONTENDERS, MEANINGS, Contender
from fairlane.sim.measures import measure
from fairlane.sim.replay import replay
from fairlane.sim.report import MeasuredReplay, before_and_after, by_size, counters, over_time, report_page, sample_customers
from fairlane.sim.workload import Workload

from .shared import brief, by_hand, workloads

SVG = "{http://www.w3.org/2000/svg}"
YEAR = 365 * 86_400.0


def measured_replays(workload: Workload, *names: str, workers: int = 1) -> list[MeasuredReplay]:
    replays = [replay(workload, CONTENDERS[name], workers) for name in names]
    return [MeasuredReplay(one, measure(one)) for one in replays]


def drawing(svg: str) -> ElementTree.Element:
    """Well-formed, and every mark inside the picture."""
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert root.get("aria-label")
    for one in root.iter():
        for name in ("x", "y", "cx", "cy", "width", "height"):
            if one.get(name) is not None:
                assert math.isfinite(float(one.get(name, "")))
        for number in re.findall(r"-?[\d.]+(?:e[+-]?\d+)?|nan|inf", one.get("d", "")):
            assert -1 <= float(number) <= 761
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in root.iter(f"{SVG}text")]


class ParsedPage(HTMLParser):
    """The tags and words of a page, and what it would fetch."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.words = ""
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.fetched += [f"{name}={value}" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        self.fetched += [value for _, value in attrs if value and "url(" in value]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


ODD = {
    "one document": by_hand((0, "a", 1)),
    "nothing takes time": by_hand((0, "a", 0), (0, "b", 0)),
    "all at one moment": by_hand(*[(7, "a", 3.0)] * 40, (7, "b", 1)),
    "one customer": by_hand(*((tick, "a", 2.0) for tick in range(50))),
    "a wait of a millisecond": by_hand((0, "a", 0.001), (0, "a", 0.001)),
    "waits of years": by_hand(*[(0, "a", YEAR)] * 5, *[(0, "b", YEAR)] * 3),
    "only years": by_hand((0, "a", YEAR), (0, "a", 0), (1, "b", 0)),
    "two moments far apart": by_hand((0, "a", 1), (90 * YEAR, "b", 1)),
    "many of one": by_hand(*[(0, "a", 0.5)] * 10_001, (1, "b", 0)),
}


@pytest.mark.parametrize("name", ODD)
def test_every_picture_of_an_odd_workload_is_well_formed(name: str) -> None:
    measured = measured_replays(ODD[name], "texts", "fifo")
    drawing(before_and_after(measured))
    drawing(by_size(measured))
    drawing(over_time(measured[0]))
    drawing(counters(measured[0], sample_customers(ODD[name])))
    assert ParsedPage(report_page(measured, sample_customers(ODD[name]))).open == []


@brief
@given(workloads(), st.lists(st.sampled_from(list(CONTENDERS)), min_size=1, max_size=8))
def test_every_page_is_whole_and_needs_nothing_besides_itself(workload: Workload, names: list[str]) -> None:
    html = report_page(measured_replays(workload, *names, workers=2), sample_customers(workload))
    parsed = ParsedPage(html)
    assert (parsed.fetched, parsed.open, parsed.tags.count("script")) == ([], [], 0)
    assert "url(" not in html
    assert "@import" not in html
    with_table = sum(bool(CONTENDERS[name].rules.policy.thresholds) for name in names)
    assert parsed.tags.count("svg") == parsed.tags.count("figcaption") == 2 + 2 * with_table
    for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        drawing(svg)


def test_a_name_that_looks_like_code_is_text() -> None:
    name = '<script>alert("x")</script>&amp;'
    workload = by_hand(*[(0, name, 5.0)] * 30, (1, "b", 1))
    renamed = Workload(
        "<b>day</b>", workload.customers, workload.customer, workload.checked_ms, workload.at_us, workload.service_us,
        workload.cost, ("<i>note</i>",),
    )  # fmt: skip
    contender = Contender("<u>mine</u>", Rules(Policy(600)))
    result = replay(renamed, contender, 1)
    html = report_page([MeasuredReplay(result, measure(result))], [name, "b"])
    parsed = ParsedPage(html)
    assert not {"script", "i", "u"} & set(parsed.tags)
    assert parsed.words.count("<b>day</b>: waits by policy") == 2
    for word in (name, "<b>day</b>: waits by policy", "<i>note</i>", "<u>mine</u>"):
        assert word in parsed.words
    for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        drawing(svg)


def test_the_page_shows_the_figures_and_what_the_words_mean() -> None:
    workload = by_hand(*[(0, "big", 10.0)] * 40, *((float(tick), "small", 5.0) for tick in (5, 2000, 4000)))
    measured = measured_replays(workload, "fifo", "texts")
    words = ParsedPage(report_page(measured, ["big"])).words
    assert "43 documents of 2 customers over 1.11 h, replayed on 1 workers at a load of" in words
    before, after = (result.measures.waits["light"].p99 or 0 for result in measured)
    assert f"waited at most {duration(before)} under fifo, and {duration(after)} under texts." in words
    for word in ("Before and after", "Wait by customer size", "Waiting documents by priority", "Counters of big", "Jain index"):
        assert word in words
    assert f"texts: {MEANINGS['texts']}" in words
    assert "fifo" + MEANINGS["fifo"] in words


def test_a_report_of_one_moment_says_so() -> None:
    assert (
        "all at one moment"
        in ParsedPage(report_page(measured_replays(by_hand((0, "a", 1), (0, "a", 1)), "texts"), ["a"])).words
    )


def test_the_chosen_are_the_biggest_the_smallest_and_some_between() -> None:
    rows = [(0.0, f"c{size:02}", 1.0) for size in range(20, 0, -1) for _ in range(size)]
    assert sample_customers(by_hand(*rows)) == ["c20", "c18", "c12", "c01"]
    assert sample_customers(by_hand((0, "b", 1), (0, "a", 1), (0, "a", 1))) == ["a", "b"]
    assert sample_customers(by_hand((0, "only", 1))) == ["only"]


def test_waiting_documents_are_stacked_by_priority() -> None:
    root = drawing(over_time(measured_replays(by_hand(*[(0, "big", 10.0)] * 30, (0, "small", 10.0)), "texts")[0]))
    bands = [title.text for title in root.iter(f"{SVG}title")]
    assert bands == [f"priority {number}" for number in range(9, 0, -1)]
    assert "30" in texts(root)
    colours = [one.get("fill") for one in root.findall(f"{SVG}path") if one.find(f"{SVG}title") is not None]
    assert colours == list(PRIORITIES[::-1])
    tops = [float(up) for up in re.findall(r'd="M66.0 ([\d.]+)', ElementTree.tostring(root, "unicode")) if float(up) < 260]
    assert tops == sorted(set(tops), reverse=True)
    assert len(tops) == 9


def band_tops(svg: str) -> list[str]:
    return re.findall(r'<path d="(M[^"]*) Z"', svg)


def test_what_waits_is_drawn_while_it_waits() -> None:
    svg = over_time(measured_replays(by_hand((0, "a", 150.0), (0, "a", 150.0), (150, "a", 1)), "texts")[0])
    (band,) = band_tops(svg)
    spots = [(float(across), float(up)) for across, up in re.findall(r"[ML]([\d.]+) ([\d.]+)", band)]
    upper = spots[:301]
    assert [up for _, up in upper] == [34.0] * 300 + [260.0]
    assert (upper[0][0], upper[-1][0]) == (66.0, 748.0)


def test_a_counter_is_drawn_in_steps_from_zero() -> None:
    svg = counters(measured_replays(by_hand((0, "a", 1), (10, "a", 1), (20, "b", 1)), "texts")[0], ["a"])
    (drawn,) = re.findall(r'<path d="([^"]*)" fill="none" stroke="#', svg)
    assert drawn == "M66.0 34.0H407.0V84.0"  # -1 of the 22 that are drawn at least, by its logarithm


def test_sizes_of_customers_are_grouped() -> None:
    rows = [(0.0, "one", 1.0)] + [(0.0, "two", 1.0)] * 2 + [(0.0, "ten", 1.0)] * 10 + [(0.0, "eleven", 1.0)] * 11
    root = drawing(by_size(measured_replays(by_hand(*rows), "fifo")))
    assert [one for one in texts(root) if re.fullmatch(r"[\d,]+(-[\d,]+)?", one)] == ["1", "2-3", "4-10", "11-30"]
    many = drawing(by_size(measured_replays(ODD["many of one"], "fifo")))
    assert "over 10,000" in texts(many)
    titles = [one.text for one in root.iter(f"{SVG}title")]
    assert titles == ["fifo", "fifo: 0 s", "fifo: 1 s", "fifo: 7 s", "fifo: 18 s"]


@pytest.mark.parametrize(
    ("seconds", "formatted"),
    [(0, "0 s"), (0.0005, "0 s"), (0.001, "1 ms"), (0.25, "250 ms"), (1, "1 s"), (59.94, "59.9 s"), (60, "1 min"),
     (5400, "1.5 h"), (86_400, "1 d"), (259_200, "3 d")],
)  # fmt: skip
def test_a_duration_has_one_unit(seconds: float, formatted: str) -> None:
    assert duration(seconds) == formatted


@brief
@given(st.lists(st.floats(0, 1e12), max_size=6))
def test_waits_stand_between_the_ends_of_their_axis(values: list[float]) -> None:
    axis = log_time_axis(values, "wait")
    assert all(0 <= axis.scale(value) <= 1 for value in values)
    assert axis.scale(axis.ticks[0][0]) == 0
    assert axis.scale(axis.ticks[-1][0]) == pytest.approx(1)
    assert len(axis.ticks) >= 2
    positions = [axis.scale(value) for value in sorted(values)]
    assert positions == sorted(positions)


def test_axes_have_about_five_round_numbers() -> None:
    assert [label for _, label in count_axis(1, "n").ticks] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert [label for _, label in count_axis(12_000, "n").ticks] == ["0", "2,500", "5,000", "7,500", "10,000"]
    assert [label for _, label in time_axis(7200).ticks] == ["0 min", "25 min", "50 min", "75 min", "100 min"]
    assert [label for _, label in time_axis(10_800).ticks][-1] == "3 h"
    assert time_axis(0).ticks == [(0.0, "0 s")]
    assert time_axis(0).scale(0) == count_axis(0, "n").scale(0) == 0
    assert [tick for tick, _ in below_axis(-250, "counter").ticks] == [0, -2, -20, -200]
    assert below_axis(-250, "counter").scale(0) == 1
    assert below_axis(-250, "counter").scale(-250) == 0


def test_charts_of_anything_are_well_formed() -> None:
    odd = "<&\"'>"
    x, y = names_axis([odd, "b"], odd), log_time_axis([1, 50], odd)
    drawing(line_chart(odd, x, y, [Series(odd, [(0, 1), (1, 50)]), Series("b", [])] * 5, dots=True))
    root = drawing(bar_chart(odd, [odd, "b"], y, [(odd, [1.0, None]), ("b", [0.0, 50.0])]))
    assert len([one for one in root.iter(f"{SVG}rect") if one.find(f"{SVG}title") is not None]) == 3
    drawing(stacked_chart(odd, time_axis(2), count_axis(3, odd), [0, 1, 2], [[0, 0, 0], [1, 2, 3]]))
