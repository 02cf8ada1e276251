"""Commands about where a queue lives."""

from __future__ import annotations

import json
import time
from pathlib import Path

import apsw
import psycopg
import pytest
from click.testing import CliRunner, Result

from fairlane import Queue
from fairlane.cli import main
from fairlane.engine.sqlite.queries import SCHEMA
from tests.servers import postgres


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
    assert f"is ready, schema version {SCHEMA.version}; durable" in result.output
    made = json.loads(run("migrate", "--url", f"sqlite:///{tmp_path}/new.db", "--json").output)
    assert made["url"].endswith("new.db")
    assert made["schema"] == SCHEMA.version


def test_doctor_finds_nothing_wrong_with_a_healthy_queue(url: str) -> None:
    result = run("doctor", "--url", url, "--json")
    assert result.exit_code == 0
    found = {one["name"]: one for one in json.loads(result.output)}
    assert {
        "version",
        "schema",
        "durability",
        "clock",
        "time",
        "room",
        "indexes",
        "pages",
        "reading",
        "writing",
        "moving",
        "feed",
    } <= set(found)
    assert found["indexes"]["level"] == found["pages"]["level"] == found["durability"]["level"] == "fine"


def test_doctor_names_a_missing_index_and_what_to_do(url: str) -> None:
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.execute("DROP INDEX lanes_by_age")
    connection.close()
    result = run("doctor", "--url", url)
    assert result.exit_code == 4
    assert "missing: lanes_by_age" in result.output
    assert "fairlane move" in result.output


def test_doctor_says_that_the_clock_was_set_back(url: str) -> None:
    with Queue(url) as queue:
        queue.submit("ada", now=time.time() + 3600)  # the clock was an hour ahead
    result = run("doctor", "--url", url, "--json")
    found = {finding["name"]: finding for finding in json.loads(result.output)}
    assert found["time"]["level"] == "warning"
    assert "the store's clock was set back by 3,5" in found["time"]["told"] or "back by 3,600" in found["time"]["told"]


def test_doctor_says_that_a_queue_was_not_made_yet_and_examines_the_machine(tmp_path: Path) -> None:
    result = run("doctor", "--url", f"sqlite:///{tmp_path}/none.db")
    assert result.exit_code == 4
    assert f"bad     queue       there is no queue at {tmp_path}/none.db\n" in result.stdout
    assert "-> fairlane migrate makes it" in result.stdout
    assert "sandbox" in result.stdout
    assert not list(tmp_path.glob("none.db*"))
    found = json.loads(run("doctor", "--url", f"sqlite:///{tmp_path}/none.db", "--json").stdout)
    assert (found[0]["name"], found[0]["level"]) == ("queue", "bad")


@pytest.mark.parametrize(
    ("damage", "missing"),
    [
        ("ALTER TABLE {schema}.records DROP CONSTRAINT records_pkey", "records_pkey"),
        ("ALTER TABLE {schema}.documents DROP CONSTRAINT documents_id_key", "documents_id_key"),
        ("DROP INDEX {schema}.documents_by_key", "documents_by_key"),
    ],
)
def test_doctor_names_a_missing_key_without_an_error_of_sql(damage: str, missing: str) -> None:
    server = postgres.shared()
    url = postgres.empty_queue(server, f"without_{missing}")
    assert run("migrate", "--url", url).exit_code == 0
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(damage.format(schema=f"without_{missing}"))
        result = run("doctor", "--url", url)
        connection.execute(f"DROP SCHEMA without_{missing} CASCADE")
    assert (result.exit_code, result.stderr) == (4, "")
    assert f"bad     indexes     missing: {missing}\n" in result.stdout
    assert "warning writing     not examined, because the store is not whole" in result.stdout
    assert "constraint matching" not in result.output


def test_doctor_says_when_the_store_fails_while_it_is_examined(url: str) -> None:
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.execute("DROP TABLE records")
    connection.close()
    result = run("doctor", "--url", url)
    assert result.exit_code == 4
    assert "bad     writing     the store failed: " in result.stdout
    assert "fine    reading" in result.stdout


def test_move_carries_a_queue_over(url: str, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path}/target.db"
    result = run("move", url, target)
    assert result.exit_code == 0, result.output
    assert "Moved: 1 customer, 1 document, 1 record, 0 files." in result.output
    refused = run("check", "ada", "--url", url)
    assert refused.exit_code == 3
    assert f"was moved to {target}: use that one" in refused.output
    assert run("check", "ada", "--url", target).exit_code == 0
    result = run("doctor", "--url", url)
    assert result.exit_code == 4
    assert "the queue accepts no documents" in result.output


def test_move_says_in_json_what_it_carried(url: str, tmp_path: Path) -> None:
    result = run("move", url, f"sqlite:///{tmp_path}/target.db", "--json")
    assert json.loads(result.output) == {"customers": 1, "documents": 1, "records": 1, "files": 0}  # its entry in the audit log


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
