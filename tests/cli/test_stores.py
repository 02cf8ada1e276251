"""Commands about where a queue lives."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner, Result

from fairlane import Queue
from fairlane.cli import main


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/queue.db"
    with Queue(url) as queue:
        queue.submit("ada")
    return url


def test_migrate_makes_a_queue_and_says_what_it_is_worth(tmp_path: Path) -> None:
    result = run("migrate", "--url", f"sqlite:///{tmp_path}/new.db")
    assert result.exit_code == 0
    assert "is ready; durable" in result.output
    assert json.loads(run("migrate", "--url", f"sqlite:///{tmp_path}/new.db", "--json").output)["url"].endswith("new.db")


def test_doctor_finds_nothing_wrong_with_a_healthy_queue(url: str) -> None:
    result = run("doctor", "--url", url, "--json")
    assert result.exit_code == 0
    found = {one["name"]: one for one in json.loads(result.output)}
    assert {"version", "durability", "clock", "room", "indexes", "pages", "reading", "writing", "moving", "feed"} <= set(found)
    assert found["indexes"]["level"] == found["pages"]["level"] == found["durability"]["level"] == "fine"


def test_doctor_names_a_missing_index_and_what_to_do(url: str) -> None:
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.execute("DROP INDEX lanes_by_age")
    connection.close()
    result = run("doctor", "--url", url)
    assert result.exit_code == 4
    assert "missing: lanes_by_age" in result.output
    assert "fairlane move" in result.output


def test_doctor_needs_a_queue(tmp_path: Path) -> None:
    assert run("doctor", "--url", f"sqlite:///{tmp_path}/none.db").exit_code == 2


def test_move_carries_a_queue_over(url: str, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path}/target.db"
    result = run("move", url, target)
    assert result.exit_code == 0, result.output
    assert "Moved: 1 customer, 1 document, 0 records, 0 files." in result.output
    refused = run("check", "ada", "--url", url)
    assert refused.exit_code == 3
    assert f"was moved to {target}: use that one" in refused.output
    assert run("check", "ada", "--url", target).exit_code == 0
    result = run("doctor", "--url", url)
    assert result.exit_code == 4
    assert "the queue accepts no documents" in result.output


def test_move_says_in_json_what_it_carried(url: str, tmp_path: Path) -> None:
    result = run("move", url, f"sqlite:///{tmp_path}/target.db", "--json")
    assert json.loads(result.output) == {"customers": 1, "documents": 1, "records": 0, "files": 0}


def test_move_takes_files_along_and_says_where_they_are(url: str, tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("dear all")
    assert run("submit", "--customer", "ada", str(letter), "--url", url).exit_code == 0
    folder = tmp_path / "files"
    result = run("move", url, f"sqlite:///{tmp_path}/target.db", "--to-blobs", str(folder))
    assert result.exit_code == 0, result.output
    assert "1 file." in result.output
    assert f"The files are in {folder}: set --blobs" in result.output
    assert [path.read_text() for path in folder.rglob("input")] == ["dear all"]


def test_a_location_for_files_that_cannot_be_used_freezes_nothing(url: str, tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("dear all")
    submit = ("submit", "--customer", "ada", str(letter), "--url", url)
    assert run(*submit).exit_code == 0
    result = run("move", url, f"sqlite:///{tmp_path}/target.db", "--to-blobs", "ftp://x")
    assert (result.exit_code, "blobs is 'ftp://x'" in result.stderr) == (2, True), result.output
    assert run(*submit).exit_code == 0


def test_move_needs_a_target_and_stop_takes_none(url: str, tmp_path: Path) -> None:
    assert run("move", url).exit_code == 2
    assert run("move", url, f"sqlite:///{tmp_path}/target.db", "--stop").exit_code == 2
    result = run("move", url, "--stop")
    assert result.exit_code == 2
    assert "is not being moved" in result.output
