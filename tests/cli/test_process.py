"""Processing a folder of documents: what is shown meanwhile, and the summary."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.demo.make import make

from .running import Terminal, run, run_program, start


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    """One big and two small customers: 46 documents, and 5 of the big one's are e-mails with a table attached."""
    make(str(tmp_path / "inbox"), seed=1, big=40, small=2, each=3, paragraphs=2)
    return tmp_path / "inbox"


@contextmanager
def running(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A slow run that has ended its first document, and has more to do."""
    arguments = ("process", str(folder), "--slots", "1", "--pace", "300ms", *options)
    with start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline().endswith("  done\n")
        yield program


def few(folder: Path, count: int = 5) -> Path:
    (folder / "acme").mkdir(parents=True)
    for number in range(count):
        (folder / f"acme/{number}.txt").write_text("one two\n")
    return folder


def test_everything_is_processed_and_summarised(inbox: Path) -> None:
    code, stdout, stderr = run_program("process", str(inbox))
    assert (code, stderr) == (0, "")
    lines = stdout.splitlines()
    ended = [line for line in lines if line.endswith("  done")]
    assert len(ended) == 51
    assert sum(line.startswith("northwind  priority 9  waited ") for line in ended) == 24
    table = [line.split() for line in lines[len(ended) :]]
    assert table[1] == ["customer", "documents", "done", "failed", "priorities", "wait", "p50", "wait", "p95"]
    assert [row[:4] for row in table[3:6]] == [
        ["ada-law", "3", "3", "0"],
        ["bakery", "3", "3", "0"],
        ["northwind", "45", "45", "0"],
    ]
    assert table[5][4:7] == ["1", "to", "9"]
    assert lines[-1].startswith("51 documents of 3 customers in ")


def test_small_customers_wait_less_than_the_big_one(inbox: Path) -> None:
    code, stdout, _ = run_program("process", str(inbox), "--json", "--pace", "20ms", "--slots", "2")
    summary = json.loads(stdout)
    assert (code, summary["documents"], summary["left"], summary["failed"]) == (0, 51, 0, [])
    small, other, big = summary["customers"]
    assert big["priorities"] == {"1": 3, "2": 2, "3": 2, "4": 2, "5": 2, "6": 2, "7": 2, "8": 6, "9": 24}
    assert small["priorities"] == other["priorities"] == {"1": 3}
    assert max(small["wait_p95"], other["wait_p95"]) < big["wait_p50"]


def test_a_live_screen_on_a_terminal(inbox: Path) -> None:
    with Terminal(80, 24, "process", str(inbox), "--pace", "60ms") as terminal:
        terminal.wait_for(lambda shown: "waiting, by priority" in shown and "■■■" in shown and "started last" in shown)
        assert "of 46 documents finished" in terminal.shown or "of 51 documents finished" in terminal.shown
        assert terminal.wait() == 0
    picture, _, table = terminal.shown.rpartition("started last")
    assert "next" in picture
    assert "wait p95" in table
    assert "51 documents of 3 customers in" in table


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (120, 40), (40, 12)])
def test_the_live_view_fits_the_screen(tmp_path: Path, columns: int, lines: int) -> None:
    from rich.console import Console

    from fairlane.cli.process_view import ProcessScreen
    from fairlane.folders.tracker import Tracker

    tracker = Tracker()
    with Queue("memory://") as queue:
        for number in range(30):
            count = 300 if number == 0 else 3
            receipts = queue.submit_many(f"customer {number} with quite a long name, [bold]really", range(count))
            tracker.add(receipts, ["folder/a-very-long-name-of-a-file-that-goes-on-and-on-for-ever-and-ever.pdf"] * count)
        queue.engine.claim("w", 50, 60_000)
        tracker.apply(queue.engine.changes(None, 1000))
        console = Console(width=columns, height=lines, record=True, file=io.StringIO())
        console.print(ProcessScreen(tracker, queue.look, console).draw())
    drawn = console.export_text().splitlines()
    assert max(map(len, drawn)) <= columns
    assert len(drawn) <= max(lines - 1, 18)
    assert [line[2] for line in drawn[2:11]] == list("123456789")
    assert "+" in drawn[10], "more than fit are counted"
    assert any("[bold]" in line for line in drawn) or columns < 80


def test_results_are_written_side_by_side_in_the_same_sub_folders(tmp_path: Path) -> None:
    folder = few(tmp_path / "inbox", 1)
    (folder / "acme/sub").mkdir()
    with zipfile.ZipFile(folder / "acme/sub/two.zip", "w") as archive:
        archive.writestr("../../../escaped.txt", "still inside")
        archive.writestr("letter.txt", "a letter")
    (folder / "acme/broken.pdf").write_bytes(b"%PDF-1.7 and no more")
    code, stdout, stderr = run_program("process", str(folder), "--out", str(tmp_path / "out"), "--json")
    assert code == 1
    assert stderr == "" or "broken.pdf" in stderr
    summary = json.loads(stdout)
    assert [(one["name"], one["reason"].partition(":")[0]) for one in summary["failed"]] == [("acme/broken.pdf", "corrupt")]
    assert (summary["documents"], summary["customers"][0]["done"]) == (5, 4)
    names = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert [name for name in names if "escaped" not in name] == [
        "acme/0.txt.json", "acme/0.txt.md", "acme/0.txt.png", "acme/sub/two.zip.json", "acme/sub/two.zip.md",
        "acme/sub/two.zip/letter.txt.json", "acme/sub/two.zip/letter.txt.md", "acme/sub/two.zip/letter.txt.png",
    ]  # fmt: skip
    (escaped,) = (tmp_path / "out/acme/sub/two.zip").rglob("escaped.txt.md")
    assert escaped.read_text() == "still inside"
    assert (tmp_path / "out/acme/0.txt.md").read_text() == "one two\n"
    assert json.loads((tmp_path / "out/acme/0.txt.json").read_text())["media_type"] == "text/plain"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["inbox", "out"]


def test_a_folder_for_results_that_cannot_be_is_reported_before_anything_is_done(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, stdout, stderr = run_program("process", str(few(tmp_path / "inbox")), "--out", str(tmp_path / "file"))
    assert (code, stdout) == (2, "")
    assert "is a file, not a folder" in stderr


def test_a_file_that_vanished_is_a_failed_document_and_exit_code_1(tmp_path: Path) -> None:
    folder = few(tmp_path / "inbox")
    with running(folder) as program:
        (folder / "acme/4.txt").unlink()
        stdout, stderr = program.communicate(timeout=60)
    assert program.returncode == 1
    assert f"4.txt  failed: there is no file {folder}/acme/4.txt" in stdout
    assert stderr.splitlines() == [
        f"failed: acme/4.txt: there is no file {folder}/acme/4.txt; it was moved, or its name is wrong"
    ]


def test_what_was_interrupted_can_be_worked_off_later(tmp_path: Path, url: str) -> None:
    with running(few(tmp_path / "inbox"), "--url", url) as program:
        program.send_signal(signal.SIGINT)
        stdout, stderr = program.communicate(timeout=60)
    assert (program.returncode, "documents not processed" in stdout) == (1, True)
    assert f"`fairlane work --url {url}` processes the rest." in stderr
    code, *_ = run_program("work", "--until-empty", "--url", url)
    with Queue(url) as queue:
        assert (code, queue.look("acme").done, queue.look("acme").failed) == (0, 5, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_queue_of_its_own_is_removed_however_it_ends(tmp_path: Path, number: int) -> None:
    (tmp_path / "temporary").mkdir()
    arguments = ("process", str(few(tmp_path / "inbox", 500)), "--slots", "1", "--pace", "300ms")
    environment = {"TMPDIR": str(tmp_path / "temporary"), "FAIRLANE_URL": f"sqlite:///{tmp_path}/not-used.db"}
    with start(*arguments, stdout=subprocess.PIPE, environment=environment) as program:
        assert program.stdout is not None
        program.stdout.readline()
        assert [one.name for one in (tmp_path / "temporary").iterdir() if not one.name.startswith("fairlane-attempt-")]
        program.send_signal(number)
        program.communicate(timeout=60)
    assert program.returncode == 1
    assert list((tmp_path / "temporary").iterdir()) == []
    assert not (tmp_path / "not-used.db").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_queue_of_its_own_is_removed_if_it_ends_before_the_first_document(tmp_path: Path, number: int) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    arguments = ("process", str(few(tmp_path / "inbox", 500)), "--pace", "1s")
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "environment": {"TMPDIR": str(temporary)}}
    with start(*arguments, **options) as program:
        while not list(temporary.glob("fairlane-*/queue.db")):
            assert program.poll() is None
        program.send_signal(number)
        _, stderr = program.communicate(timeout=60)
    assert (program.returncode, "Traceback" in stderr) == (1, False)
    assert list(temporary.iterdir()) == []


def test_it_goes_on_under_nohup_when_the_terminal_is_closed(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does: programs inherit it
    try:
        with running(few(tmp_path / "inbox")) as program:
            program.send_signal(signal.SIGHUP)
            stdout, _ = program.communicate(timeout=60)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (program.returncode, "5 documents of 1 customer in" in stdout) == (0, True)


def test_on_a_shared_queue_only_its_own_documents_are_taken_and_reported(tmp_path: Path, url: str) -> None:
    with Queue(url) as queue:
        before = queue.submit_many("acme", range(30))
        queue.cancel(before[0].id)
        code, stdout, _ = run_program("process", str(few(tmp_path / "inbox")), "--json", "--url", url)
        assert (queue.look("acme").waiting, queue.look("acme").done) == (29, 5)
    (acme,) = json.loads(stdout)["customers"]
    assert (code, acme["documents"], acme["done"], acme["cancelled"], acme["priorities"]) == (0, 5, 5, 0, {"9": 5})


def test_documents_of_a_paused_customer_are_not_waited_for(tmp_path: Path, url: str) -> None:
    with Queue(url) as queue:
        queue.pause("acme")
    code, stdout, stderr = run_program("process", str(few(tmp_path / "inbox")), "--url", url)
    assert (code, "5 documents of 1 customer" in stdout, "5 documents not processed" in stdout) == (1, True, True)
    assert "processes the rest" in stderr


def test_what_is_skipped_is_reported(tmp_path: Path) -> None:
    folder = few(tmp_path / "inbox")
    (folder / "top.txt").write_text("")
    (folder / "acme/.hidden").write_text("")
    code, _, stderr = run_program("process", str(folder))
    assert (code, stderr.splitlines()) == (
        0,
        ["skipped: not in a sub-folder, so without a customer: top.txt", "skipped: hidden: 1"],
    )


def test_nobody_reads_any_more_and_it_ends_quietly(tmp_path: Path, url: str) -> None:
    with running(few(tmp_path / "inbox", 20), "--url", url) as program:
        assert program.stdout is not None
        program.stdout.close()
        assert program.wait(timeout=60) == 1
        assert program.stderr is not None
        assert program.stderr.read() == ""
    with Queue(url) as queue:
        assert 0 < queue.look("acme").waiting < 20


def test_what_cannot_be_is_reported_before_anything_is_submitted(tmp_path: Path, url: str) -> None:
    folder = few(tmp_path / "inbox")
    for arguments, message in [
        ((str(tmp_path / "nowhere"),), "there is no folder"),
        ((str(folder / "acme"),), "each sub-folder is a customer, each file in it a document"),
        ((str(folder), "--slots", "0"), "slots is 0"),
        ((str(folder), "--pace", "soon"), "'soon' is not a duration"),
        ((str(folder), "--pace", "8d"), "--pace is 691200.0; it must be at most 604,680 seconds"),
        ((str(folder), "--url", "mysql://"), "url is 'mysql://'"),
        ((str(folder), "--url", "memory://"), "memory://"),
    ]:
        result = run("process", *arguments, *(() if "--url" in arguments else ("--url", url)))
        assert (result.exit_code, message in result.stderr) == (2, True), result.output
    assert not Path(url.removeprefix("sqlite:///")).exists()
