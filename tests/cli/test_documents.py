"""Commands for documents: what goes in, what is stdout of it, how it ends."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.core.document import Done, Failed, Outcome

from .running import run, run_json


def files(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).write_text("one two\n")
    return [str(folder / name) for name in names]


def settled(url: str, outcome: Outcome) -> str:
    """The next document is taken and ends like this."""
    with Queue(url) as queue:
        (claim,) = queue.engine.claim("w", 1, 60_000)
        assert queue.engine.settle([(claim, outcome)]) == []
    return claim.id


# -- submit ----------------------------------------------------------------------------------------------------------


def test_each_file_is_a_document_with_its_bytes_and_name(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path, "a.txt", "b.txt")
    monkeypatch.chdir(tmp_path)
    rows = run_json("submit", "--customer", "acme", "a.txt", "../" + tmp_path.name + "/b.txt", "--url", url)
    assert [(row["priority"], row["counter"], row["path"]) for row in rows] == [
        (1, 0, f"{tmp_path}/a.txt"),
        (1, -1, f"{tmp_path}/b.txt"),
    ]
    with Queue(url) as queue:
        for path in tmp_path.glob("*.txt"):
            path.unlink()  # its bytes are the queue's now
        assert [queue.input(row["id"]).name for row in rows] == ["a.txt", "b.txt"]
        for row in rows:
            with queue.file(row["id"]) as file:
                assert file.read() == b"one two\n"
        assert {queue.document(row["id"]).kind for row in rows} == {row["kind"] for row in rows} == {"extract"}


def test_a_cost_in_pages_is_estimated_from_each_file(tmp_path: Path, url: str) -> None:
    (tmp_path / "three.pdf").write_bytes(b"%PDF-1.4" + 3 * b"<</Type /Page>>")
    rows = run_json(
        "submit", "--customer", "acme", str(tmp_path / "three.pdf"), *files(tmp_path, "a"), "--cost", "pages", "--url", url
    )
    with Queue(url) as queue:
        assert [queue.document(row["id"]).cost for row in rows] == [3, 1]
    wrong = run("submit", "--customer", "acme", *files(tmp_path, "a"), "--cost", "sheets", "--url", url)
    assert (wrong.exit_code, "'sheets' is neither a number nor 'pages'" in wrong.stderr) == (2, True)


def test_submit_shows_people_a_line_a_document(tmp_path: Path, url: str) -> None:
    lines = run("submit", "--customer", "acme", *files(tmp_path, "a", "b", "c", "d"), "--url", url).stdout.splitlines()
    assert [line[36:] for line in lines][-2:] == ["  priority 1  counter -2  c", "  priority 2  counter -3  d"]


def test_kind_cost_and_delay_are_passed_on(tmp_path: Path, url: str) -> None:
    options = ("--kind", "scan", "--cost", "2.5", "--delay", "2h")
    (row,) = run_json("submit", "--customer", "acme", *files(tmp_path, "a"), *options, "--url", url)
    with Queue(url) as queue:
        document = queue.document(row["id"])
    assert (document.kind, document.cost, document.state) == ("scan", 2.5, "delayed")
    assert document.ready_at - document.submitted_at == timedelta(hours=2)


def test_a_repeated_key_gives_the_first_receipt(tmp_path: Path, url: str) -> None:
    first, other = files(tmp_path, "a", "b")
    rows = [run_json("submit", "--customer", "acme", first, "--key", "k", "--url", url)[0]["id"] for _ in range(2)]
    assert rows[0] == rows[1]
    conflict = run("submit", "--customer", "acme", other, "--key", "k", "--url", url)
    assert (conflict.exit_code, "another body" in conflict.stderr) == (2, True)
    many = run("submit", "--customer", "acme", first, other, "--key", "k", "--url", url)
    assert (many.exit_code, "--key is for one document, not 2 files" in many.stderr) == (2, True)


def test_one_bad_file_and_nothing_is_submitted(tmp_path: Path, url: str) -> None:
    Queue(url).close()
    good = files(tmp_path, "a", "b")
    result = run("submit", "--customer", "acme", good[0], f"{tmp_path}/nope", str(tmp_path), good[1], "--url", url)
    assert result.exit_code == 2
    assert f"there is no file {tmp_path}/nope" in result.stderr
    assert f"{tmp_path} is a folder, not a regular file" in result.stderr
    assert (result.stdout, run_json("status", "--url", url)) == ("", [[]])


def test_names_of_files_come_from_standard_input(tmp_path: Path, url: str) -> None:
    a, b, c = files(tmp_path, "a", "b b", "ü\udcff")
    names = "\n".join([b, "", c]).encode(errors="surrogateescape") + b"\r\n"
    result = run("submit", "--customer", "acme", a, "-", "--url", url, input=names)
    assert [line.rpartition("  ")[2] for line in result.stdout.splitlines()] == ["a", "b b", "ü�"]
    with Queue(url) as queue:
        assert {queue.input(document.id).name for document in queue.documents()} == {"a", "b b", "ü�"}
    empty = run("submit", "--customer", "acme", "-", "--url", url, input=b"\n")
    assert (empty.exit_code, "standard input has no file names" in empty.stderr) == (2, True)


# -- explain ---------------------------------------------------------------------------------------------------------


def test_explain_a_document(tmp_path: Path, url: str) -> None:
    *_, last = run_json("submit", "--customer", "acme", *files(tmp_path, *"abcd"), "--url", url)
    assert run("explain", last["id"], "--url", url).stdout.startswith(
        "Priority 2, because acme's counter stood at -3 when it was submitted. About 3 documents are ahead of it"
    )
    (facts,) = run_json("explain", last["id"], "--url", url)
    assert (facts["priority"], facts["ahead"], facts["expected_in"]) == (2, 3, None)


def test_explain_shows_from_when_to_when_a_document_will_probably_start(tmp_path: Path, url: str) -> None:
    *_, last = run_json("submit", "--customer", "acme", *files(tmp_path, *"abcd"), "--url", url)
    assert "no worker takes documents of kind 'extract', so when" in run("explain", last["id"], "--url", url).stdout
    with Queue(url) as queue:
        queue.engine.claim("worker-1", 2, 60_000)
    assert "About 1 document is ahead of it; it will probably start " in run("explain", last["id"], "--url", url).stdout
    (facts,) = run_json("explain", last["id"], "--url", url)
    assert 0 <= facts["expected_in_low"] <= facts["expected_in"] <= facts["expected_in_high"]


def test_explain_a_customer(url: str) -> None:
    with Queue(url) as queue:
        queue.submit_many("acme", range(30))
    settled(url, Done())
    assert run("explain", "acme", "--url", url).stdout == (
        "acme's counter stands at -29; its next document gets priority 9. It starts afresh at 0 after about 25 minutes more "
        "without a document. 29 documents are waiting, the longest for a second; 1 done. It keeps 30 documents with 50 bytes. "
        "An attempt of it usually takes less than a second: that is what it pays for a turn.\n"
    )
    (facts,) = run_json("explain", "acme", "--url", url)
    assert (facts["counter"], facts["next_priority"], facts["waiting"], facts["done"]) == (-29, 9, 29, 1)
    assert facts["turns"] == "time"
    assert 0 <= facts["usual_seconds"] < 1


def test_explain_says_that_both_were_tried(url: str) -> None:
    Queue(url).close()
    result = run("explain", "nobody", "--url", url)
    assert result.exit_code == 2
    assert "'nobody' is neither a document nor a customer of this queue; `fairlane status` lists" in result.stderr


# -- cancel, retry, purge --------------------------------------------------------------------------------------------


def test_cancel_ends_what_has_not_ended(url: str) -> None:
    with Queue(url) as queue:
        first, second = (customer.id for customer in queue.submit_many("acme", range(2)))
    settled(url, Done())
    assert run_json("cancel", first, second, "--url", url) == [
        {"id": first, "cancelled": False, "state": "done"},
        {"id": second, "cancelled": True, "state": "cancelled"},
    ]
    lines = run("cancel", first, second, "--url", url).stdout.splitlines()
    assert lines == [f"{first}: was already done", f"{second}: was already cancelled"]


def test_one_unknown_id_and_nothing_is_cancelled(url: str) -> None:
    with Queue(url) as queue:
        known = queue.submit("acme").id
        result = run("cancel", known, "nope", "--url", url)
        assert (result.exit_code, "there is no document nope" in result.stderr) == (2, True)
        assert queue.document(known).state == "ready"


def test_retry_gives_failed_documents_another_round(url: str) -> None:
    with Queue(url) as queue:
        queue.submit_many("acme", range(3))
    failed = [settled(url, Failed("torn page")) for _ in range(2)]
    assert run_json("retry", *failed, failed[0], "--url", url) == [{"id": id, "retried": True} for id in failed]
    assert run_json("status", "--url", url)[0][0]["waiting"] == 3


def test_one_that_has_not_failed_and_none_is_retried(url: str) -> None:
    with Queue(url) as queue:
        queue.submit_many("acme", range(2))
        failed = settled(url, Failed("torn page"))
        (ready,) = queue.documents(state="ready")
        result = run("retry", failed, ready.id, "--url", url)
        assert result.exit_code == 2
        assert f"nothing was retried: {ready.id} is ready; only a failed document" in result.stderr
        assert queue.document(failed).state == "failed"


def test_purge_forgets_what_ended_long_ago(url: str) -> None:
    with Queue(url) as queue:
        queue.submit_many("acme", range(2))
    settled(url, Done())
    assert run("purge", "--older-than", "7d", "--url", url).stdout == "0 documents deleted.\n"
    assert run("purge", "--older-than", "0", "--url", url).stdout == "1 document deleted.\n"
    assert run_json("purge", "--older-than", "1.5h", "--url", url) == [{"purged": 0, "older_than": 5400.0, "audit_entries": 0}]


def test_purge_takes_the_files_along_or_says_that_it_does_not_know_where_they_are(tmp_path: Path, url: str) -> None:
    where = str(tmp_path / "elsewhere")
    for arguments, said, left in (((), "the files of this queue are somewhere else", 1), (("--blobs", where), "", 1)):
        (row,) = run_json("submit", "--customer", "acme", *files(tmp_path, "a"), "--url", url, "--blobs", where)
        run("cancel", row["id"], "--url", url)
        result = run("purge", "--older-than", "0", "--url", url, *arguments)
        assert (result.stdout, said in result.stderr) == ("1 document deleted.\n", True)
        assert bool(said) == bool(result.stderr)
        with Queue(url, blobs=where) as queue:
            assert len(list(queue.files.open().list_files())) == left


def test_sweep_removes_what_no_document_owns(tmp_path: Path, url: str) -> None:
    (row,) = run_json("submit", "--customer", "acme", *files(tmp_path, "a"), "--url", url)
    with Queue(url) as queue:
        queue.files.open().put_input("acme", "01234567-0000-7000-8000-000000000000", b"orphan")
        assert run("sweep", "--url", url).stdout == "2 files checked; 0 deleted, 0 bytes.\n"
        assert run_json("sweep", "--grace", "0", "--url", url) == [{"looked": 2, "removed": 1, "bytes": 6}]
        assert [file.document for file in queue.files.open().list_files()] == [row["id"]]
        assert run("forget", "acme", "--yes", "--url", url).exit_code == 0
        assert list(queue.files.open().list_files()) == []


@pytest.mark.parametrize("duration", ["7x", "-1d", "", "d", "1d2", "nan", "1e3"])
def test_a_duration_that_is_none_is_refused(url: str, duration: str) -> None:
    result = run("purge", f"--older-than={duration}", "--url", url)
    assert result.exit_code == 2
    assert f"'{duration}' is not a duration; write it as 90s, 15m, 24h or 7d" in result.stderr


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [("250ms", 0.25), ("90", 90), ("90s", 90), ("15m", 900), ("24H", 86400), ("7d", 604800), ("2w", 1209600), ("0.5 h", 1800)],
)
def test_durations_have_a_unit_or_are_seconds(url: str, duration: str, seconds: float) -> None:
    Queue(url).close()
    assert run_json("purge", "--older-than", duration, "--url", url)[0]["older_than"] == seconds


@pytest.mark.parametrize(
    "command",
    [("explain", "x"), ("cancel", "x"), ("retry", "x"), ("purge", "--older-than", "1d"), ("sweep",), ("status", "--watch")],
)
def test_a_queue_that_is_not_there_is_not_made(tmp_path: Path, command: tuple[str, ...]) -> None:
    result = run(*command, "--url", f"sqlite:///{tmp_path}/nowhere.db")
    assert (result.exit_code, "there is no queue at" in result.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


# -- many at once ----------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(url: str) -> str:
    with Queue(url) as queue:
        queue.submit_many("acme", range(5), kind="scan")
        queue.submit_many("bolt", range(3), kind="ocr")
    return url


def test_all_that_match_are_cancelled_after_a_count_and_a_confirmation(mixed: str) -> None:
    arguments = ("cancel", "--kind", "scan", "--state", "ready", "--url", mixed)
    refused = run(*arguments, input="n\n")
    assert (refused.exit_code, "5 documents will be cancelled. Go on? [y/N]" in refused.stderr) == (1, True)
    assert "Nothing was cancelled." in refused.stderr
    assert run(*arguments, "--dry-run").stdout == "5 documents would be cancelled.\n"
    with Queue(mixed) as queue:
        assert queue.look("acme").waiting == 5
    assert run(*arguments, input="y\n").stdout == "5 documents cancelled.\n"
    with Queue(mixed) as queue:
        assert (queue.look("acme").cancelled, queue.look("bolt").waiting) == (5, 3)
    assert run(*arguments, "--yes").stdout == "No document can be cancelled: none matches.\n"


def test_all_that_match_are_retried(mixed: str) -> None:
    with Queue(mixed) as queue:
        for claim in queue.engine.claim("worker", 3, 60_000, {"ocr": 1}):
            queue.engine.settle([(claim, Failed("timed_out: 60 s"))])
    result = run_json("retry", "--customer", "bolt", "--reason", "timed_out", "--since", "24h", "--yes", "--url", mixed)
    assert result == [{"matched": 3, "changed": 3, "refused": 0, "reason": None}]
    with Queue(mixed) as queue:
        assert queue.look("bolt").waiting == 3


def test_what_a_limit_does_not_let_wait_again_is_reported(mixed: str) -> None:
    with Queue(mixed) as queue:
        for claim in queue.engine.claim("worker", 3, 60_000, {"ocr": 1}):
            queue.engine.settle([(claim, Failed("timed_out: 60 s"))])
        waiting = queue.look("bolt").waiting
        queue.tune("bolt", waiting_max=waiting + 2)
    result = run("retry", "--customer", "bolt", "--reason", "timed_out", "--yes", "--url", mixed)
    assert result.stdout.splitlines() == [
        "2 documents retried.",
        f"1 document not retried; of the first: customer 'bolt' has {waiting + 2} of at most {waiting + 2} documents waiting "
        "(waiting_max), so 1 more cannot be taken; submit again when some are done, or have an operator raise the limit",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cancel"], "give the IDs of documents, or options that select them"),
        (["retry", "--yes"], "give the IDs of documents, or options that select them"),
        (["cancel", "0199d3c2", "--kind", "scan"], "give either IDs, or options that select documents"),
        (["cancel", "--state", "done", "--yes"], "ready or delayed or running"),
        (["retry", "--state", "ready", "--yes"], "failed"),
    ],
)
def test_a_selection_that_makes_no_sense_is_refused(mixed: str, arguments: list[str], message: str) -> None:
    result = run(*arguments, "--url", mixed)
    assert (result.exit_code, message in result.stderr) == (2, True), result.output


def test_without_a_terminal_and_without_yes_nothing_is_changed(mixed: str) -> None:
    assert run("cancel", "--kind", "scan", "--url", mixed, input="").exit_code != 0
    with Queue(mixed) as queue:
        assert queue.look("acme").waiting == 5


def test_steps_and_slices_are_submitted_and_shown(url: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    arguments = ("submit", str(tmp_path / "a.txt"), "--customer", "acme", "--url", url)
    (receipt,) = run_json(*arguments, "--steps", "extract,index", "--slices", "20")
    assert receipt["kind"] == "extract"
    assert "steps      extract (ready), index (to come)" in run("show", receipt["id"], "--url", url).stdout
    (shown,) = run_json("show", receipt["id"], "--url", url)
    assert [step["kind"] for step in shown["steps"]] == ["extract", "index"]
    assert "begins as the first of them" in run(*arguments, "--steps", "a,b", "--kind", "c").stderr
    assert "pages of a slice" in run(*arguments, "--slices", "0").stderr
