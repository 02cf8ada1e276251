"""The command line: what people and scripts see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairlane import Queue, __version__
from fairlane.cli import main

from .running import run, run_program

MOMENTS = [word for moment in ("0", "1", "2", "3", "1503", "3003.001") for word in ("--now", moment)]


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_the_worked_examples_of_the_rules(engine: str, url: str) -> None:
    result = run("check", "acme", "--json", "--url", url if engine == "sqlite" else "memory://", *MOMENTS)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["counter"], row["priority"]) for row in rows] == [(0, 1), (-1, 1), (-2, 1), (-3, 2), (-4, 2), (0, 1)]


def test_the_worked_examples_one_command_at_a_time(url: str) -> None:
    result = [run("check", "acme", "--now", moment, "--url", url).stdout for moment in MOMENTS[1::2]]
    assert result[3] == "acme: priority 2, counter -3\n"
    assert result[5] == "acme: priority 1, counter 0\n"


def test_check_shows_in_words_and_in_json(url: str) -> None:
    assert run("check", "acme", "--url", url).stdout == "acme: priority 1, counter 0\n"
    row = json.loads(run("check", "acme", "--json", "--url", url).stdout)
    assert (row["customer"], row["counter"], row["priority"]) == ("acme", -1, 1)


def test_status_shows_everybody_and_moves_nothing(url: str) -> None:
    with Queue(url) as queue:
        queue.submit_many("big", range(30))
        queue.submit("[bold]small[/bold]")
        queue.pause("big")
    result = run("status", "--url", url).stdout
    assert "big (paused)" in result
    assert "[bold]small[/bold]" in result
    rows = json.loads(run("status", "--json", "--url", url).stdout)
    assert [(row["customer"], row["counter"], row["next_priority"], row["waiting"]) for row in rows] == [
        ("[bold]small[/bold]", 0, 1, 1),
        ("big", -29, 9, 30),
    ]
    (one,) = json.loads(run("status", "big", "--json", "--url", url).stdout)
    assert one["customer"] == "big"


def test_policy_shows_and_sets_with_a_version(url: str) -> None:
    Queue(url).close()
    assert json.loads(run("policy", "--json", "--url", url).stdout) == {
        "version": 1,
        "reset": "idle",
        "reset_interval": 1500.0,
        "thresholds": [-2, -4, -6, -8, -10, -12, -14, -20],
        "dispatch": "fair",
        "turns": "time",
        "open_turn_every": 16,
        "waiting_max": 100_000,
        "descendants_max": 10_000,
        "documents_max": None,
        "bytes_max": None,
        "retries_max": 3,
    }
    options = ("--reset", "sliding", "--thresholds=-1,-2.5", "--dispatch", "strict", "--open-turn-every", "0")
    result = json.loads(
        run("policy", *options, "--turns", "documents", "--reset-interval", "60", "--json", "--url", url).stdout
    )
    assert (result["version"], result["reset"], result["thresholds"], result["dispatch"], result["turns"]) == (
        2,
        "sliding",
        [-1, -2.5],
        "strict",
        "documents",
    )
    shown = run("policy", "--url", url).stdout
    assert "turns            documents" in shown
    assert "reset interval   60 s" in shown
    assert "< -2.5" in shown


def test_policy_shows_and_sets_the_limits_of_customers(url: str) -> None:
    Queue(url).close()
    options = ("--waiting-max", "none", "--bytes-max", "1.5GB", "--documents-max", "7", "--retries-max", "0")
    result = json.loads(run("policy", *options, "--json", "--url", url).stdout)
    assert [result[name] for name in ("waiting_max", "descendants_max", "documents_max", "bytes_max", "retries_max")] == [
        None, 10_000, 7, 1_500_000_000, 0,
    ]  # fmt: skip
    shown = run("policy", "--bytes-max", "12 kb", "--url", url).stdout
    assert "waiting max      none\n" in shown
    assert "bytes max        12,000\n" in shown
    for wrong, message in (
        (("--bytes-max", "much"), "'much' is not a size; write it as 500MB, 50GB or 1.5TB, or as a number of bytes"),
        (("--waiting-max", "-1"), "waiting_max is -1; it must be a whole number from 0 to 1,000,000,000,000,000, or None"),
        (("--retries-max", "2.5"), "'2.5' is not a valid integer"),
    ):
        result = run("policy", *wrong, "--url", url)
        assert result.exit_code == 2
        assert message in result.stderr


def test_a_full_queue_is_one_line_and_exit_code_3(url: str, tmp_path: Path) -> None:
    """It is worth another try, as is a store that is busy; a full quota is not."""
    (tmp_path / "a.txt").write_text("a")
    with Queue(url) as queue:
        queue.tune("acme", waiting_max=0)
        queue.tune("bolt", bytes_max=5)
    for customer, code, message in (
        ("acme", 3, "customer 'acme' has 0 of at most 0 documents waiting (waiting_max)"),
        ("bolt", 2, "customer 'bolt' keeps 0 of at most 5 bytes (bytes_max)"),
    ):
        result = run("submit", "--customer", customer, str(tmp_path / "a.txt"), "--url", url)
        assert (result.exit_code, len(result.stderr.splitlines())) == (code, 1)
        assert message in result.stderr


def test_a_mistake_is_one_line_and_exit_code_2(url: str) -> None:
    Queue(url).close()
    for arguments, message in [
        (["check", "", "--url", url], "customer is ''"),
        (["check", "acme", "--url", "mysql://x"], "url is 'mysql://x'; it must be memory://, sqlite:///file.db"),
        (["check", "acme", "--cost", "0", "--url", url], "cost is 0.0"),
        (["policy", "--thresholds=-2,x", "--url", url], "--thresholds is '-2,x'"),
        (["policy", "--thresholds=", "--url", url], "--thresholds is ''"),
        (["check", "acme", "--now", "1", "--now", "-1", "--url", url], "--now is -1"),
        (["policy", "--thresholds=-2,-1", "--url", url], "strictly falling"),
        (["policy", "--reset-interval", "0", "--url", url], "reset_interval is 0"),
        (["status", "--url", url + ".other"], "there is no queue at"),
        (["check"], "Missing argument"),
        (["check", "a", "--cost", "much"], "not a valid float"),
        (["frobnicate"], "No such command"),
    ]:
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert message in result.stderr
        assert "Traceback" not in result.output


def test_a_check_with_one_wrong_time_makes_none(url: str) -> None:
    Queue(url).close()
    run("check", "acme", "--now", "1", "--now", "-1", "--url", url)
    assert json.loads(run("status", "--json", "--url", url).stdout) == []


@pytest.mark.parametrize("command", ["check acme", "status", "--help", "--version", "check --help"])
def test_an_answer_that_cannot_be_written_is_exit_code_1(tmp_path: Path, command: str) -> None:
    with Queue(f"sqlite:///{tmp_path}/fairlane.db") as queue:
        queue.check("acme")
    with open("/dev/full", "w") as full:
        arguments = [sys.executable, "-m", "fairlane.cli", *command.split()]
        buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # as people have it
        result = subprocess.run(
            arguments, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path, env=buffered
        )
    assert result.returncode == 1
    assert "cannot write the output" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_letter_that_the_terminal_does_not_have_is_replaced(url: str) -> None:
    with Queue(url) as queue:
        queue.check("zoë")
    code, stdout, stderr = run_program("status", "--url", url, environment={"PYTHONIOENCODING": "ascii"})
    assert (code, "zo? " in stdout, stderr) == (0, True, "")


def test_long_times_are_reported_in_days(url: str) -> None:
    with Queue(url) as queue:
        queue.configure(reset_interval=2_000_000)
        queue.check("acme")
    assert " 23 d 3:3" in run("status", "--url", url).stdout


def test_a_store_that_fails_is_exit_code_3(tmp_path: Path) -> None:
    result = run("check", "acme", "--url", f"sqlite:///{tmp_path}/nowhere/queue.db")
    assert result.exit_code == 3
    assert "does not exist; create it" in result.stderr


def test_the_url_comes_from_the_option_then_the_environment_then_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fairlane.toml").write_text('url = "sqlite:///file.db"\n')
    run("check", "acme")
    run("check", "acme", FAIRLANE_URL="sqlite:///environment.db")
    run("check", "acme", "--url", "sqlite:///option.db", FAIRLANE_URL="sqlite:///environment.db")
    made = {path.name for path in tmp_path.glob("*.db")}
    assert made == {"file.db", "environment.db", "option.db"}
    (tmp_path / "fairlane.toml").unlink()
    run("check", "acme")
    assert (tmp_path / "fairlane.db").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('link = "x"', "sets 'link', which is not a setting; the settings are: url, blobs"),
        ("url = 7", "url in"),
        ("url = ", "cannot be read"),
    ],
)
def test_a_settings_file_that_is_wrong_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fairlane.toml").write_text(content)
    result = run("check", "acme")
    assert result.exit_code == 2
    assert message in result.stderr


def test_the_place_of_files_comes_from_the_option_then_the_environment_then_the_file_then_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a")
    run("submit", "--customer", "acme", "a.txt")
    (tmp_path / "fairlane.toml").write_text('blobs = "file"\n')
    run("submit", "--customer", "acme", "a.txt")
    run("submit", "--customer", "acme", "a.txt", FAIRLANE_BLOBS="environment")
    run("submit", "--customer", "acme", "a.txt", "--blobs", "option", FAIRLANE_BLOBS="environment")
    places = [path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("input")]
    assert sorted(places) == ["environment", "fairlane.db.blobs", "file", "option"]
    assert "FAIRLANE_BLOBS is ''" in run("check", "acme", FAIRLANE_BLOBS="").stderr
    wrong = run("submit", "--customer", "acme", "a.txt", "--blobs", "ftp://x")
    assert (wrong.exit_code, "blobs is 'ftp://x'; it must be a folder" in wrong.stderr) == (2, True)


def test_an_empty_environment_variable_is_not_taken_for_a_default() -> None:
    assert "FAIRLANE_URL is ''" in run("check", "acme", FAIRLANE_URL="").stderr


def test_version_and_help() -> None:
    assert __version__ in run("--version").stdout
    for command in main.commands:
        result = run(command, "--help")
        assert result.exit_code == 0
        assert "Usage:" in result.stdout
        assert f"fairlane {command} " in result.stdout.partition("Example:")[2].replace("\n", " "), "an example to copy"


def test_no_sentence_of_the_help_is_cut() -> None:
    assert "..." not in run("--help").stdout.replace("[ARGS]...", "")
    assert "..." not in run("keys", "--help").stdout.replace("[ARGS]...", "")


def test_rich_is_loaded_only_when_a_table_is_drawn(url: str) -> None:
    program = (
        "import sys; from click.testing import CliRunner; from fairlane.cli import main; "
        f"CliRunner().invoke(main, ['check', 'acme', '--url', {url!r}]); print('rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
