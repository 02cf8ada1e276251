"""Files of documents: what is read, what is refused, and what a load does."""

from __future__ import annotations

import gzip
import itertools
import time
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.errors import BadValue, Mistake
from fairlane.sim.contenders import CONTENDERS
from fairlane.sim.replay import replay
from fairlane.sim.workload import Arrival, Workload, read_csv

from .shared import alike, by_hand, csv_of, rows_of, thorough, workloads

ROWS = [(0, "acme", 1.5), (0.0004, "bolt", 2), (7.0005, "acme", 0)]
READ = [(0, "acme", 1_500_000, 1000), (0, "bolt", 2_000_000, 1000), (7001, "acme", 0, 1000)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "yesterday.csv"


def test_a_plain_file_is_read_to_the_millisecond(path: Path) -> None:
    path.write_text(csv_of(ROWS))
    workload = read_csv(path)
    assert rows_of(workload) == READ
    assert (workload.name, workload.customers, list(workload.at_us)) == ("yesterday.csv", ("acme", "bolt"), [0, 0, 7_001_000])


def test_a_gzipped_file_is_known_by_what_it_holds(path: Path) -> None:
    path.write_bytes(gzip.compress(csv_of(ROWS).encode()))
    assert rows_of(read_csv(path)) == READ


@pytest.mark.parametrize("zipped", [False, True])
def test_a_byte_order_mark_and_other_line_ends_do_no_harm(path: Path, zipped: bool) -> None:
    content = csv_of(ROWS).replace("\n", "\r\n").encode("utf-8-sig")
    path.write_bytes(gzip.compress(content) if zipped else content)
    assert rows_of(read_csv(path)) == READ


def test_times_may_be_dates_with_or_without_a_zone(path: Path) -> None:
    times = ("2026-03-01T09:30:00Z", "2026-03-01 09:30:00", "2026-03-01T10:30:00.250+01:00", " 2026-03-01T09:30:01Z ")
    path.write_text(csv_of((moment, "acme", 1) for moment in times))
    assert [row[0] - 1_772_357_400_000 for row in rows_of(read_csv(path))] == [0, 0, 250, 1000]


def test_a_time_without_a_zone_is_utc_wherever_the_machine_stands(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(csv_of([("1970-01-01T01:00:00", "acme", 1)]))
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "UTC-9")
        time.tzset()
        result = rows_of(read_csv(path))
    time.tzset()
    assert result == [(3_600_000, "acme", 1_000_000, 1000)]


def test_rows_may_stand_in_any_order_and_equal_times_keep_theirs(path: Path) -> None:
    path.write_text(csv_of([(9, "late", 1), (3, "b", 1), (3, "a", 1), (1, "early", 1), (3, "c", 1)]))
    assert [row[1] for row in rows_of(read_csv(path))] == ["early", "b", "a", "c", "late"]
    assert list(read_csv(path).at_us) == [0, 2_000_000, 2_000_000, 2_000_000, 8_000_000]


def test_columns_may_stand_in_any_order_with_cost_and_others_beside_them(path: Path) -> None:
    header = "note, cost ,service_s,customer,submitted_at"
    path.write_text(csv_of([('"two\nlines, x"', 2.5, 1, '"a,b"', 5), ("", 0.001, 1, " c ", 6)], header))
    assert rows_of(read_csv(path)) == [(5000, "a,b", 1_000_000, 2500), (6000, " c ", 1_000_000, 1)]


def test_empty_lines_are_passed_over_and_still_counted(path: Path) -> None:
    path.write_text("submitted_at,customer,service_s\n\n1,acme,2\n\n\n")
    assert rows_of(read_csv(path)) == [(1000, "acme", 2_000_000, 1000)]
    path.write_text("submitted_at,customer,service_s\n\n1,acme,2\n\nx,acme,2\n")
    with pytest.raises(Mistake, match="line 5: submitted_at is 'x'"):
        read_csv(path)


def test_lines_are_counted_as_an_editor_counts_them(path: Path) -> None:
    path.write_text(csv_of([('"two\nlines"', 1, "acme", 1), ("", 2, "acme", "x")], "note,submitted_at,customer,service_s"))
    with pytest.raises(Mistake, match="line 4: service_s is 'x'"):
        read_csv(path)


BAD_ROWS = [
    ("x,acme,1", "submitted_at is 'x'"),
    (",acme,1", "submitted_at is ''"),
    ("nan,acme,1", "submitted_at is nan"),
    ("-inf,acme,1", "submitted_at is -inf"),
    ("-1,acme,1", "submitted_at is -1.0"),
    ("1e300,acme,1", r"submitted_at is 1e\+300"),
    ("2026-02-30T00:00:00Z,acme,1", "submitted_at is '2026-02-30T00:00:00Z'"),
    ("1969-12-31T00:00:00Z,acme,1", "submitted_at is -86400.0"),
    ("0001-01-01T00:00:00+14:00,acme,1", "submitted_at is -6213"),
    ("1,acme,x", "service_s is 'x'"),
    ("1,acme,", "service_s is ''"),
    ("1,acme,nan", "service_s is 'nan'"),
    ("1,acme,inf", "service_s is 'inf'"),
    ("1,acme,-0.5", "service_s is '-0.5'"),
    ("1,acme,1000000001", "service_s is '1000000001'"),
    ("1,acme", "row is '1,acme'; it must be 3 fields"),
    ("1,acme,1,1", "row is '1,acme,1,1'; it must be 3 fields"),
    (" ", "row is ' '; it must be 3 fields"),
    ("1,,1", "customer is ''"),
    ("1,a\tb,1", "customer is 'a.tb'"),
    ("1,a\x7fb,1", "customer is"),
    ('1,"a\nb",1', "customer is"),
    ("1," + "x" * 201 + ",1", "customer is 'xxx"),
]


@pytest.mark.parametrize(("row", "message"), BAD_ROWS)
def test_a_bad_row_is_named_by_its_line_and_value(path: Path, row: str, message: str) -> None:
    path.write_text(f"submitted_at,customer,service_s\n0,fine,1\n{row}\n")
    with pytest.raises(Mistake, match=r"yesterday\.csv, line [34]: " + message):
        read_csv(path)


@pytest.mark.parametrize("cost", ["", "x", "0", "-1", "nan", "10001", "0.0005"])
def test_a_bad_cost_is_named_by_its_line_and_value(path: Path, cost: str) -> None:
    path.write_text(csv_of([(1, "acme", 1, cost)], "submitted_at,customer,service_s,cost"))
    with pytest.raises(Mistake, match="line 2: cost is"):
        read_csv(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1: the header must name submitted_at,customer,service_s .*; it is '', without submitted_at"),
        (b"\n\n", "line 1: the header must name"),
        (b"1,acme,2\n", "it is '1,acme,2', without submitted_at, customer, service_s"),
        (b"submitted_at,customer\n1,acme\n", "it is 'submitted_at,customer', without service_s"),
        (b"submitted_at,customer,service_s\n", "contains no document; there is nothing to replay"),
        (gzip.compress(b""), "line 1: the header must name"),
        (gzip.compress(csv_of(ROWS * 300).encode())[:-20], "cannot be read: Compressed file ended"),
        (gzip.compress(csv_of(ROWS).encode())[:12], "cannot be read"),
        (b"\x1f\x8b junk that is no gzip", "cannot be read"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + b"\xff" * 40, "cannot be read"),
        (b"\x89PNG\r\n\x1a\n\x00\xff\xfe", "cannot be read: 'utf-8' codec"),
        (b"submitted_at,customer,service_s\n1,\xff,1\n", "cannot be read: 'utf-8' codec"),
        (b"submitted_at,customer,service_s\n1,a\x00b,1\n", "line 2: customer is|cannot be read"),
        (b"submitted_at,customer,service_s\n1,a\rb,1\n", "cannot be read|line 2: row is"),
        (b"submitted_at,customer,service_s\n1," + b"x" * 140_000 + b",1\n", "cannot be read: field larger|line 2: customer is"),
    ],
    ids=itertools.count(),
)
def test_a_broken_file_is_refused(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(Mistake, match=message):
        read_csv(path)


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=r"cannot be read: .*directory"):
        read_csv(tmp_path)
    with pytest.raises(Mistake, match=r"cannot be read: .*No such file"):
        read_csv(tmp_path / "nowhere.csv")


def test_more_time_than_can_be_counted_is_refused(path: Path) -> None:
    path.write_text(csv_of([(0, "acme", 1), (9_007_199_254_740, "acme", 1)]))
    with pytest.raises(Mistake, match="more than can be counted; check that its times are in seconds"):
        read_csv(path)
    days = Workload.of("days", (Arrival(1_000_000 * tick, "acme", 1) for tick in range(100)))
    with pytest.raises(Mistake, match="more than can be counted"):
        Workload.of("days", (Arrival(1_000_000 * tick, "acme", 10**17) for tick in range(100)))
    with pytest.raises(Mistake, match="more than can be counted"):
        days.at_load(10**9, 1_000_000)


@thorough
@given(st.sampled_from((0.01, 0.5, 0.9, 0.95, 3.0)), st.integers(1, 9), st.integers(0, 10**6))
def test_a_load_is_met(load: float, workers: int, seed: int) -> None:
    random = Random(seed)
    rows = [(random.uniform(0, 90_000), random.choice("abc"), random.expovariate(1 / 30)) for _ in range(200)]
    scaled = by_hand(*rows).at_load(load, workers)
    assert sum(scaled.service_us) / workers / scaled.at_us[-1] == pytest.approx(load, rel=1e-6)
    assert scaled.load(workers) == pytest.approx(load, rel=1e-6)


def test_silences_are_cut_on_the_clock_of_the_replay_only() -> None:
    workload = by_hand((0, "a", 1), (1800, "a", 1), (3600.001, "a", 1), (90_000, "a", 1), (90_001, "a", 1))
    scaled = workload.at_load(0.5, 1)
    assert [at // 1000 for at in scaled.at_us] == [0, 1_800_000, 3_600_000, 5_400_000, 5_401_000]
    assert scaled.checked_ms == workload.checked_ms
    assert list(workload.at_us) == [0, 1_800_000_000, 3_600_001_000, 90_000_000_000, 90_001_000_000]
    assert workload.load(1) == 5 / 5401


@thorough
@given(workloads())
def test_a_load_changes_no_check_and_no_class(workload: Workload) -> None:
    if not workload.load(1):
        with pytest.raises(Mistake, match="cannot be scaled to a load"):
            workload.at_load(0.9, 1)
        return
    scaled = workload.at_load(0.9, 1)
    before, after = (replay(one, CONTENDERS["sliding"], 1) for one in (workload, scaled))
    assert (before.counter, before.priority) == (after.counter, after.priority)
    assert (scaled.recent, scaled.customers, scaled.cost) == (workload.recent, workload.customers, workload.cost)


def test_checks_know_nothing_of_cut_silences() -> None:
    rows = [(0.0, "a", 1.0), (1.0, "a", 1.0), (5001.0, "a", 1.0), (8001.0, "a", 1.0)]
    result = replay(by_hand(*rows).at_load(0.5, 1), CONTENDERS["texts"].with_changes(reset_interval=3000), 1)
    assert [counter // 1000 for counter in result.counter] == [0, -1, 0, -1]


@pytest.mark.parametrize("load", [0.0, -1.0, float("nan"), float("inf")])
def test_a_load_that_is_none_is_refused(load: float) -> None:
    with pytest.raises(BadValue, match="--load is"):
        Workload.of("alike", alike(1, 50, 3, 0.5)).at_load(load, 2)
