"""Commands for personal data: export, forget, vacuum."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.api import auth
from fairlane.engine.sqlite import vacuum
from fairlane.engine.sqlite.connection import connect
from tests.privacy.archive import Exported

from .running import run, run_json


@pytest.fixture
def acme(url: str) -> str:
    """A queue in which acme has sent 30 documents."""
    with Queue(url) as queue:
        queue.submit_many("acme", range(30))
    return url


def test_forget_asks_first(acme: str) -> None:
    result = run("forget", "acme", "--url", acme, input="n\n")
    assert result.exit_code == 1
    assert (
        "acme: documents: 30 waiting; counter -29; its settings and its entries in the feed.\nErase all data" in result.stderr
    )
    assert "Nothing was erased." in result.stderr
    assert run("forget", "acme", "--url", acme, input="").exit_code == 1
    assert run_json("status", "--url", acme)[0][0]["waiting"] == 30
    assert run("forget", "acme", "--url", acme, input="y\n").stdout == "acme was erased, with 30 documents and 0 records.\n"
    assert run_json("status", "--url", acme) == [[]]


def test_forget_does_not_ask_with_yes(acme: str) -> None:
    result = run("forget", "acme", "--yes", "--json", "--url", acme)
    expected = '{"customer": "acme", "forgotten": 30, "records": 0, "files_left": 0, "not_rewritten": null}\n'
    assert (result.stdout, result.stderr) == (expected, "")


def test_forget_knows_a_customer_that_has_nothing_but_a_key(acme: str) -> None:
    with Queue(acme) as queue:
        auth.create(queue.engine, customer="new")
    result = run("forget", "new", "--url", acme, input="y\n")
    assert "new: documents: none; counter 0; its settings and its entries in the feed; 1 record (keys, " in result.stderr
    assert result.stdout == "new was erased, with 0 documents and 1 record.\n"


def test_forget_of_a_name_that_is_wrong_says_what_an_interrupted_run_needs(acme: str) -> None:
    result = run("forget", "acmee", "--url", acme, input="y\n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "if that was interrupted, --yes erases what may be left" in result.stderr
    assert run("forget", "acmee", "--yes", "--url", acme).exit_code == 0


def test_forget_says_which_files_wait_for_the_sweep(acme: str) -> None:
    with Queue(acme) as queue:
        queue.files.open().put_input("acme", "01234567-0000-7000-8000-000000000000", b"new")
    result = run("forget", "acme", "--yes", "--url", acme)
    assert "1 file without a document may belong to an upload under way and stays for a day" in result.stdout


def test_forget_says_that_the_file_could_not_be_rewritten(acme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum, "LOG_SECONDS", 0.1)
    reader = connect(Path(acme.removeprefix("sqlite:///")))
    reader.execute("BEGIN; SELECT count(*) FROM documents").fetchall()
    result = run("forget", "acme", "--yes", "--url", acme)
    assert result.exit_code == 4
    assert result.stdout == "acme was erased, with 30 documents and 0 records.\n"
    assert "fairlane: the queue's file was not rewritten: " in result.stderr
    assert "run fairlane vacuum when that has ended" in result.stderr
    assert run("vacuum", "--url", acme).exit_code == 3
    reader.close()
    assert run("vacuum", "--url", acme).stdout == "The file was rewritten.\n"


def test_vacuum_has_nothing_to_do_on_a_server() -> None:
    assert run_json("vacuum", "--url", "memory://") == [{"rewritten": False}]


def test_export_writes_one_archive(acme: str, tmp_path: Path) -> None:
    path = tmp_path / "acme.tar.gz"
    assert run("export", "acme", "--to", str(path), "--url", acme).stdout == (
        f"acme was exported to {path}, with 30 documents and 0 files.\n"
    )
    assert len(Exported(path).rows("documents")) == 30
    (row,) = run_json("export", "acme", "--to", str(tmp_path / "again.tar"), "--url", acme)
    assert (row["documents"], row["files"], row["missing"]) == (30, 0, 0)
    assert row["bytes"] == (tmp_path / "again.tar").stat().st_size


def test_export_to_standard_output_is_the_archive_alone(acme: str) -> None:
    result = run("export", "acme", "--to", "-", "--url", acme)
    assert len(Exported(result.stdout_bytes).rows("documents")) == 30


def test_export_says_what_is_wrong(acme: str, tmp_path: Path) -> None:
    result = run("export", "acme", "--to", str(tmp_path / "acme.zip"), "--url", acme)
    assert (result.exit_code, "it must be the name of a new file that ends with .tar" in result.stderr) == (2, True)
    assert "there is no customer 'acmee'" in run("export", "acmee", "--to", str(tmp_path / "a.tar"), "--url", acme).stderr
    with Queue(acme) as queue:
        id = queue.submit("acme", content=b"bytes").id
    (lost,) = tmp_path.rglob(f"*/{id}/input")
    lost.unlink()
    result = run("export", "acme", "--to", str(tmp_path / "acme.tar"), "--url", acme)
    assert (result.exit_code, result.stderr) == (4, f"fairlane: 1 file missing or damaged, of documents such as {id}\n")
    assert len(Exported(tmp_path / "acme.tar").rows("documents")) == 31
