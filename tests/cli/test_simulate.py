"""simulate, advise and verify as people and scripts see them."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner, Result

from fairlane import Queue
from fairlane.cli import main
from fairlane.core.document import Done

HEADER = "submitted_at,customer,service_s"
GOOD = "\n".join([HEADER, *["0,whale,10"] * 40, *(f"{tick},light-{tick},5" for tick in range(1, 9)), ""])
FIGURES = {"mean", "p50", "p95", "p99", "max"}


def run(*arguments: str) -> Result:
    result = CliRunner(env={"FAIRLANE_URL": None, "COLUMNS": "80"}).invoke(main, arguments)
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def figures(*arguments: str) -> list[dict[str, Any]]:
    result = run("simulate", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    listed: list[dict[str, Any]] = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(name))
    return listed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "day.csv"
    path.write_text(GOOD)
    return path


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A queue in which five documents of acme and two of bolt were worked off."""
    url = f"sqlite:///{tmp_path}/queue.db"
    with Queue(url) as queue:
        queue.submit_many("acme", range(5), now=1000)
        queue.submit_many("bolt", range(2), now=1001)
        for start in range(1010, 1070, 10):
            (claim,) = queue.engine.claim("worker", 1, 10**6, now_ms=start * 1000)
            queue.engine.settle([(claim, Done())], now_ms=start * 1000 + 4000)
    return url


# -- simulate ----------------------------------------------------------------------------------------------------------


def test_json_is_a_list_with_one_object_a_policy(path: Path) -> None:
    fifo, texts = figures(str(path), "--policy", "fifo", "--policy", "texts", "--workers", "2")
    assert (fifo["policy"], texts["policy"]) == ("fifo", "texts")
    for one in (fifo, texts):
        keys = {"policy", "workers", "load", "waits", "jain", "overtaken", "starved", "utilisation"}
        assert set(one) == keys | {"documents", "customers", "slowdowns", "service_gap"}
        assert list(one["waits"]) == list(one["slowdowns"]) == ["all", "light", "quiet", "heavy"]
        assert all(set(spread) == FIGURES for name in ("waits", "slowdowns") for spread in one[name].values())
        assert (one["workers"], one["documents"], one["customers"]) == (2, 48, 9)
        assert one["load"] == pytest.approx(440 / 16)
    assert texts["waits"]["quiet"]["max"] < fifo["waits"]["quiet"]["max"] == pytest.approx(200 + 20 - 8, abs=9)


def test_a_class_without_documents_is_null_and_so_is_the_load_of_one_moment(path: Path) -> None:
    path.write_text(f"{HEADER}\n5,acme,2\n")
    (one,) = figures(str(path))
    assert one["policy"] == "texts"
    assert one["load"] is None
    assert one["waits"]["heavy"] == one["slowdowns"]["heavy"] == dict.fromkeys(("mean", "p50", "p95", "p99", "max"))
    assert one["waits"]["light"]["mean"] == 0


def test_the_figures_of_lindley_come_out_of_the_command(path: Path) -> None:
    path.write_text(f"{HEADER}\n0,a,10\n1,b,10\n2,c,1.5\n100,d,1\n")
    (one,) = figures(str(path), "--policy", "fifo", "--workers", "1")
    assert one["waits"]["all"] == {"mean": (9 + 18) / 4, "p50": 0, "p95": 18, "p99": 18, "max": 18}
    assert one["utilisation"] == pytest.approx(22.5 / 101)
    assert one["jain"] < 1


def test_a_gzipped_file_gives_the_same(path: Path, tmp_path: Path) -> None:
    zipped = tmp_path / "day.csv.gz"
    zipped.write_bytes(gzip.compress(GOOD.encode()))
    assert figures(str(path)) == figures(str(zipped))


def test_a_table_of_four_policies_fits_80_columns(path: Path) -> None:
    named = ("fifo", "texts-strict", "texts", "fair-queueing")
    result = run("simulate", str(path), *(word for name in named for word in ("--policy", name)))
    lines = result.stdout.splitlines()
    assert max(len(line) for line in lines[2:]) <= 80
    assert lines[0] == "day.csv: 48 documents of 9 customers over 8.0 s; 4 workers, load 13.75"
    assert "More work arrives than the workers can do" in lines[1]
    assert any(line.split() == list(named) for line in lines)
    rows = [line[:22].strip() for line in lines]
    for row in ("light wait, mean", "quiet wait, p99", "heavy wait, max", "all slowdown, p99", "service gap", "Jain index",
                "starved", "overtaken", "utilisation"):  # fmt: skip
        assert row in rows
    assert "\x1b" not in result.stdout


def test_a_load_that_can_be_met_has_no_warning(path: Path) -> None:
    result = run("simulate", str(path), "--load", "0.9").stdout
    assert "4 workers, load 0.90" in result
    assert "More work arrives" not in result
    assert figures(str(path), "--load", "0.9")[0]["load"] == pytest.approx(0.9, abs=2e-6)


def test_the_seed_and_the_workers_take_effect() -> None:
    first = figures("flood", "--policy", "fifo")
    assert first == figures("flood", "--policy", "fifo", "--seed", "1")
    assert first != figures("flood", "--policy", "fifo", "--seed", "2")
    more = figures("flood", "--policy", "fifo", "--workers", "8")
    assert more[0]["waits"]["all"]["mean"] < first[0]["waits"]["all"]["mean"]


def test_interval_table_and_weights_take_effect(path: Path) -> None:
    path.write_text("\n".join([HEADER, *["0,a,10"] * 6, *["0,b,10"] * 6, "20,c,10", "20,c,10", ""]))
    plain = figures(str(path), "--workers", "1")
    assert figures(str(path), "--workers", "1", "--reset-interval", "10")[0]["starved"] > plain[0]["starved"]
    strict = ("--workers", "1", "--policy", "texts-strict")
    assert figures(str(path), *strict)[0]["waits"]["quiet"]["max"] == 50
    assert figures(str(path), *strict, "--thresholds=-100")[0]["waits"]["quiet"]["max"] == 110
    turns = ("--workers", "1", "--policy", "round-robin")
    assert figures(str(path), *turns)[0]["waits"]["quiet"]["max"] == 30
    assert figures(str(path), *turns, "--weights", "c=0.5,b=100", "--weights", "a=2")[0]["waits"]["quiet"]["max"] == 100
    assert figures(str(path), "--policy", "fifo", "--thresholds=-1,-2") == figures(str(path), "--policy", "fifo")


def test_a_policy_file_takes_effect(path: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('thresholds = []\ndispatch = "strict"\n')
    fifo, own = figures(str(path), "--policy", "fifo", "--policy", str(mine))
    assert own.pop("policy") == "mine"
    assert fifo.pop("policy") == "fifo"
    assert own == fifo


class Page(HTMLParser):
    """The tags and words of a page, and what it would fetch."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.words = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [name for name, value in attrs if name in ("src", "href") or "url(" in (value or "")]

    def handle_data(self, data: str) -> None:
        self.words += data


def test_the_report_is_one_file_that_needs_nothing_besides_itself(path: Path, tmp_path: Path) -> None:
    path.write_text(GOOD.replace("whale", "<script>whale</script>"))
    report = tmp_path / "report.html"
    result = run("simulate", str(path), "--policy", "fifo", "--policy", "texts", "--html", str(report))
    assert f"The report is in {report}." in result.stdout
    page = Page(report.read_text(encoding="utf-8"))
    assert page.fetched == []
    assert page.tags.count("svg") == 4
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert "<script>whale</script>" in page.words


def test_counters_are_drawn_of_the_customers_that_are_asked_for(path: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    run("simulate", str(path), "--html", str(report), "--customer", "light-3", "--customer", "whale", "--json")
    assert "Counters of light-3, whale" in Page(report.read_text()).words


def test_a_report_needs_a_folder_that_is_there(path: Path, tmp_path: Path) -> None:
    result = run("simulate", str(path), "--html", str(tmp_path / "nowhere" / "report.html"))
    assert result.exit_code == 2
    assert "a file in an existing folder" in result.stderr


def test_a_report_that_cannot_be_written_is_exit_code_1(path: Path, tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full here")
    result = run("simulate", str(path), "--html", str(full))
    assert result.exit_code == 1
    assert "cannot write the output" in result.stderr


def test_a_progress_bar_is_drawn_on_a_terminal_only(path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fairlane.cli", "simulate", str(path), "--policy", "fifo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"}) as program:
        assert program.stdout is not None
        table = program.stdout.read()
    os.close(theirs)
    drawn = os.read(ours, 100_000)
    os.close(ours)
    assert program.returncode == 0
    assert b"documents" in drawn
    assert b"\x1b" not in table


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "use either a WORKLOAD (a CSV file or one of flood,"),
        (["{csv}", "--url", "sqlite:///x.db"], "use either a WORKLOAD"),
        (["nowhere.csv"], "WORKLOAD is 'nowhere.csv'; it must be a CSV file, or one of flood"),
        (["{folder}"], "must be a CSV file, or one of flood"),
        (["--url", "sqlite:///{folder}/none.db"], "there is no queue at"),
        (["{csv}", "--policy", "lifo"], "--policy is 'lifo'"),
        (["{csv}", "--policy", "current"], "--policy is 'current'"),
        (["{csv}", "--policy", "{paused}"], "paused pauses 'whale', whose documents would never be served"),
        (["{csv}", "--policy", "{wrong}"], "a name in the file is 'rest'"),
        (["{csv}", "--load", "nan"], "--load is nan"),
        (["{csv}", "--load", "0"], "Invalid value for '--load'"),
        (["{csv}", "--load", "101"], "Invalid value for '--load'"),
        (["{csv}", "--workers", "0"], "Invalid value for '--workers'"),
        (["{csv}", "--reset-interval", "0"], "reset_interval is 0"),
        (["{csv}", "--reset-interval", "nan"], "reset_interval is nan"),
        (["{csv}", "--thresholds="], "--thresholds is ''"),
        (["{csv}", "--thresholds=-4,-2"], "strictly falling"),
        (["{csv}", "--weights", "whale"], "--weights is 'whale'; it must be a customer and a weight, as in acme=2"),
        (["{csv}", "--weights", "whale=x"], "--weights is 'whale=x'"),
        (["{csv}", "--weights", "whale=0"], "weight is 0"),
        (["{csv}", "--weights", "whale=nan"], "weight is nan"),
        (["{csv}", "--weights", "nobody=2"], "--weights is 'nobody'; it must be a customer of day.csv, such as 'whale'"),
        (["{csv}", "--customer", "nobody"], "--customer is 'nobody'"),
        (["flood", "--seed", "-1"], "--seed is -1"),
    ],
)
def test_a_mistake_is_reported_in_one_line_with_exit_code_2(
    path: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "paused.toml").write_text("[customers.whale]\npaused = true\n")
    (tmp_path / "wrong.toml").write_text("rest = 2\n")
    places = {"csv": path, "folder": tmp_path, "paused": tmp_path / "paused.toml", "wrong": tmp_path / "wrong.toml"}
    result = run("simulate", *(argument.format(**places) for argument in arguments))
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1: the header must name"),
        (b"0,acme,1\n", "line 1: the header must name"),
        (GOOD.encode() + b"7,acme,soon\n", "day.csv, line 50: service_s is 'soon'; it must be a number"),
        (GOOD.encode() + b"7,,1\n", "line 50: customer is ''"),
        (GOOD.encode() + b"-7,acme,1\n", "line 50: submitted_at is -7.0"),
        (gzip.compress(GOOD.encode())[:60], "cannot be read"),
        (bytes(range(256)), "cannot be read"),
        (HEADER.encode() + b"\n0,a,1\n9007199254740,a,1\n", "more than can be counted"),
    ],
)
def test_a_bad_file_is_reported_in_one_line_with_exit_code_2(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    for command in ("simulate", "advise"):
        result = run(command, str(path))
        assert result.exit_code == 2
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_what_comes_at_one_moment_has_no_load(path: Path) -> None:
    path.write_text(f"{HEADER}\n0,a,1\n0,b,1\n")
    assert "all at one moment" in run("simulate", str(path)).stdout
    result = run("simulate", str(path), "--load", "0.9")
    assert result.exit_code == 2
    assert "cannot be scaled to a load" in result.stderr


# -- the history of a queue --------------------------------------------------------------------------------------------


def test_the_history_of_a_queue_is_replayed_under_its_own_rules(url: str) -> None:
    with Queue(url) as queue:
        queue.configure(dispatch="strict", thresholds=())
    measured, current, fifo, texts = figures(
        "--url", url, "--policy", "current", "--policy", "fifo", "--policy", "texts", "--workers", "1"
    )
    assert (current["documents"], current["customers"], current["policy"]) == (6, 2, "current")
    assert (measured["documents"], measured["policy"]) == (6, "measured")
    assert current["waits"] == fifo["waits"]
    assert texts["waits"] != fifo["waits"]
    result = run("simulate", "--url", url).stdout
    assert "Documents left out, because they have not ended or were cancelled: 1." in result


def test_what_was_measured_stands_beside_the_replay_with_the_reason_for_a_difference(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/away.db"
    with Queue(url) as queue:
        for _ in range(5):
            queue.submit("acme", now=1000)
        claims = queue.engine.claim("worker", 5, 60_000, now_ms=1_060_000)  # a minute after they were submitted
        queue.engine.settle([(claim, Done()) for claim in claims], now_ms=1_061_000)
    result = run("simulate", "--url", url, "--policy", "current", "--workers", "5").stdout
    assert re.search(r"measured +current", result)
    assert re.search(r"all wait, p50 +1m 0s +0|all wait, p50 +60", result), result
    assert "current and what was measured differ by much, so do not rely on the replay:" in result
    assert "- For 60 s documents waited and nothing ran: workers, or the store, were away." in result
    measured, current = json.loads(run("simulate", "--url", url, "--policy", "current", "--json").stdout)
    assert (measured["waits"]["all"]["p50"], current["policy"]) == (60, "current")
    assert "measured" not in run("simulate", "--url", url, "--load", "0.9").stdout  # other times than those that were measured


def test_the_url_of_the_environment_is_not_taken_for_a_history(path: Path, url: str) -> None:
    result = CliRunner(env={"FAIRLANE_URL": url}).invoke(main, ["simulate", str(path), "--json"])
    assert json.loads(result.stdout)[0]["documents"] == 48


# -- verify ------------------------------------------------------------------------------------------------------------


def test_a_sound_queue_is_exit_code_0(url: str) -> None:
    result = run("verify", "--url", url)
    assert result.exit_code == 0
    assert result.stdout == "7 checks recomputed, 2 customers compared.\nEverything agrees with the rules.\n"
    as_json = json.loads(run("verify", "--url", url, "--json").stdout)
    assert as_json == {"checks": 7, "skipped": 0, "customers": 2, "differences": []}


def test_a_tampered_queue_is_exit_code_4(url: str) -> None:
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.execute("UPDATE customers SET counter = -2000 WHERE id = 'acme'; UPDATE documents SET priority = 7")
    connection.close()
    result = run("verify", "--url", url)
    assert result.exit_code == 4
    lines = result.stdout.splitlines()
    assert lines[1].endswith(": priority is 7; by the rules it should be 1")
    assert lines[-2] == "customer 'acme': counter is -2; by the rules it should be -4"
    assert lines[-1] == "8 differences."
    as_json = run("verify", "--url", url, "--json")
    assert as_json.exit_code == 4
    *_, last = json.loads(as_json.stdout)["differences"]
    assert last == {"customer": "acme", "what": "counter", "document": None, "stored": -2, "replayed": -4}


def test_of_many_differences_the_first_are_shown(url: str) -> None:
    with Queue(url) as queue:
        queue.submit_many("new", range(1200), now=2000)
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.execute("UPDATE documents SET counter = counter - 1 WHERE customer_id = 'new'")
    connection.close()
    result = run("verify", "--url", url)
    assert result.exit_code == 4
    assert result.stdout.splitlines()[-2:] == ["... and 1,180 more; --json lists all of them.", "1,200 differences."]
    assert len(result.stdout.splitlines()) == 1 + 20 + 2


def test_what_was_purged_is_reported_as_skipped(url: str) -> None:
    with Queue(url) as queue:
        queue.purge(0, now=1001)
        queue.submit("acme", now=1100)
    result = run("verify", "--url", url)
    assert result.exit_code == 0
    assert "1 check skipped: the changes before were purged or erased, or the reset that held then is gone." in result.stdout


def test_a_queue_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    result = run("verify", "--url", f"sqlite:///{tmp_path}/none.db")
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []


# -- advise ------------------------------------------------------------------------------------------------------------


def steady_beside_batches() -> str:
    rows = [f"{40 * number + 1200 * tick},steady-{number},8" for number in range(30) for tick in range(72)]
    rows += [f"{7200 * batch},batches,12" for batch in range(12) for _ in range(250)]
    return "\n".join([HEADER, *rows, ""])


def test_advice_says_what_to_change_and_how(path: Path) -> None:
    path.write_text(steady_beside_batches())
    options = ("--policy", "texts-strict", "--objective", "light-mean", "--budget", "4", "--workers", "1")
    result = run("advise", str(path), *options).stdout.splitlines()
    assert result[0].split() == ["reset", "idle", "->", "sliding"]
    assert any(line.strip().startswith("light wait, mean") and "better (-" in line for line in result)
    assert any(line.strip().startswith("heavy wait, mean") and "worse (+" in line for line in result)
    assert any(line.strip().startswith("quiet wait, p99") for line in result)
    assert result[-1] == "To change the settings: fairlane policy --reset=sliding"
    assert result[-2].startswith("Measured on the 10 parts of the workload that the search did not see")
    as_json = json.loads(run("advise", str(path), *options, "--json").stdout)
    assert (as_json["objective"], as_json["replays"], as_json["worth_it"]) == ("light-mean", 4, True)
    assert as_json["changes"] == {"reset": {"before": "idle", "after": "sliding"}}
    assert as_json["command"] == "fairlane policy --reset=sliding"
    effect = next(one for one in as_json["effects"] if one["objective"] == "light-mean")
    assert set(effect) == {"objective", "before", "after", "pooled_ratio", "ratio", "low", "high", "parts", "real"}
    assert effect["pooled_ratio"] == pytest.approx(effect["after"] / effect["before"])
    assert effect["real"]
    assert effect["low"] <= effect["ratio"] <= effect["high"] < 1


def test_advice_says_how_often_its_intervals_are_right(path: Path) -> None:
    path.write_text(steady_beside_batches())
    options = ("--policy", "texts-strict", "--objective", "light-mean", "--budget", "3", "--workers", "1")
    measured = next(line for line in run("advise", str(path), *options).stdout.splitlines() if line.startswith("Measured on"))
    as_json = json.loads(run("advise", str(path), *options, "--json").stdout)
    assert as_json["interval"]["nominal"] == 0.95
    assert 0.5 < as_json["interval"]["held"] < 0.95
    assert f"held the change in the other half of the workload in {as_json['interval']['held']:.0%}" in measured


def test_a_tiny_workload_is_best_left_as_it_is(path: Path) -> None:
    result = run("advise", str(path), "--budget", "30", "--workers", "1", "--objective", "all-mean").stdout
    assert "Keep your settings: of 30 tried for all-mean" in result
    assert "To change the settings" not in result
    path.write_text(f"{HEADER}\n0,a,1\n")
    result = run("advise", str(path), "--budget", "3").stdout
    assert result == "Keep your settings: of 3 tried for light-p99, none was better.\n"
    as_json = json.loads(run("advise", str(path), "--budget", "3", "--json").stdout)
    assert (as_json["worth_it"], as_json["changes"], as_json["command"]) == (False, {}, None)


def test_a_gain_on_too_few_parts_is_not_called_better(path: Path) -> None:
    path.write_text("\n".join([HEADER, *(f"{1200 * tick},steady,5" for tick in range(40)), *["47000,big,60"] * 30, ""]))
    result = run(
        "advise", str(path), "--policy", "texts-strict", "--budget", "30", "--workers", "1", "--objective", "heavy-mean"
    )
    if "It would change" in result.stdout:
        assert "too few documents to tell" in result.stdout
        assert "not better by more than noise" in result.stdout
    assert result.stdout.startswith("Keep your settings")


def test_advice_on_a_queue_begins_with_its_own_rules(url: str) -> None:
    with Queue(url) as queue:
        queue.configure(dispatch="strict", thresholds=())

    def effects(*options: str) -> Any:
        return json.loads(run("advise", "--url", url, "--budget", "1", "--workers", "1", "--json", *options).stdout)["effects"]

    assert effects() == effects("--policy", "fifo") != effects("--policy", "texts")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--objective", "fast"], "--objective is 'fast'; it must be a class (all, light, quiet, heavy) and a figure"),
        (["--budget", "0"], "--budget is 0"),
        (["--budget", "100001"], "--budget is 100001"),
        (["--budget", "x"], "not a valid integer"),
        (["--policy", "lifo"], "--policy is 'lifo'"),
    ],
)
def test_advice_that_cannot_be_given_is_exit_code_2(path: Path, arguments: list[str], message: str) -> None:
    result = run("advise", str(path), *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
