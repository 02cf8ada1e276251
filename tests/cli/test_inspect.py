"""Commands that look at documents and at what happens."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.core.document import Done, Failed, Outcome, Retried

from .running import run, run_json, start

DETAILS = {
    "attempt": 1, "token": 1, "at": 1_700_000_000_000, "worker": "w\x1b[1m", "seconds": 0.25, "reason": "ValueError: bad",
    "traceback": "Traceback\n\tline\nValueError: bad\x1b[2J", "output": "page 7\nlast",
}  # fmt: skip


@pytest.fixture
def queue(url: str) -> Iterator[Queue]:
    with Queue(url) as queue:
        yield queue


def settle(queue: Queue, *outcomes: Outcome) -> list[str]:
    """Take as many documents as there are outcomes, and end them so; return their ids."""
    claims = queue.engine.claim("w", len(outcomes), 60_000)
    assert queue.engine.settle(list(zip(claims, outcomes, strict=True))) == []
    return [claim.id for claim in claims]


def test_documents_are_listed_by_what_is_asked_for(queue: Queue, url: str) -> None:
    queue.submit("ada", kind="scan", now=1000)
    queue.submit("bob", kind="ocr", key="k-1", now=2000)
    queue.submit("bob", kind="scan", now=3000)
    settle(queue, Failed("encrypted: \x1b[31mno key"))

    def customers(*options: str) -> list[str]:
        return [row["customer"] for row in run_json("documents", *options, "--url", url)]

    assert customers() == ["bob", "bob", "ada"]
    assert customers("--limit", "1") == ["bob"]
    assert customers("--customer", "ada") == ["ada"]
    assert customers("--kind", "scan") == ["bob", "ada"]
    assert customers("--state", "failed") == customers("--reason", "encrypted") == ["ada"]
    assert customers("--since", "1970-01-01T00:30:00") == ["bob", "bob"]
    assert customers("--until", "1970-01-01T01:30:00+01:00", "--customer", "ada") == ["ada"]
    assert customers("--since", "1h") == []
    (row,) = run_json("documents", "--kind", "ocr", "--url", url)
    assert (row["state"], row["key"], row["submitted_at"], row["attempts_max"]) == ("ready", "k-1", 2000, 3)


def test_a_list_for_people_has_a_line_a_document_and_no_control_characters(queue: Queue, url: str) -> None:
    ids = [queue.submit("acme", now=1000 + n).id for n in range(3)]
    settle(queue, Failed("bad\x1b[31m\nfake line"))
    shown = run("documents", "--url", url).stdout.splitlines()
    assert [line.split("  ")[0] for line in shown] == ids[::-1]
    assert shown[2].endswith("acme  default  failed, attempt 1 of 3: bad\ufffd[31m\ufffdfake line")
    assert (
        run("documents", "--limit", "2", "--url", url).stdout.splitlines()[2] == "there are more; --limit 4 shows twice as many"
    )
    assert run("documents", "--customer", "nobody", "--url", url).stdout == "no document matches\n"
    refused = run("documents", "--since", "yesterday", "--url", url)
    assert (refused.exit_code, "'yesterday' is not a time; write it as 24h (ago), 2026-11-18" in refused.stderr) == (2, True)


def test_a_line_says_once_which_attempt_failed(queue: Queue, url: str) -> None:
    queue.submit("ada")
    queue.submit("ada")
    settle(queue, Failed("attempt 1 of 3 failed: KeyError: 'page'"), Failed("corrupt: page 3"))
    lines = run("documents", "--url", url).stdout.splitlines()
    assert sorted(line.split("default  ")[1] for line in lines) == [
        "failed, attempt 1 of 3 failed: KeyError: 'page'",
        "failed, attempt 1 of 3: corrupt: page 3",
    ]


def test_on_a_terminal_prose_is_broken_between_words(queue: Queue, url: str) -> None:
    queue.submit("ada")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fairlane.cli", "explain", "ada", "--url", url]
    subprocess.run(command, stdout=theirs, check=True, env={**os.environ, "COLUMNS": "40"})
    os.close(theirs)
    lines = os.read(ours, 100_000).decode().splitlines()
    os.close(ours)
    assert all(len(line) <= 40 for line in lines)
    assert " ".join(lines).split("after")[0] == run("explain", "ada", "--url", url).stdout.split("after")[0]


def test_show_has_the_whole_life_the_payload_and_the_tracebacks(queue: Queue, url: str) -> None:
    id = queue.submit("acme", {"order": "17\x9b"}, key="k").id
    settle(queue, Retried(0, "ValueError: bad", details=json.dumps(DETAILS)))
    settle(queue, Failed("torn"))
    shown = run("show", id, "--url", url).stdout
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    lines = shown.splitlines()
    assert lines[:4] == [f"document   {id}", "customer   acme", "kind       default", "state      failed: torn"]
    assert 'payload    {"order": "17\ufffd"}' in lines
    life = lines[lines.index("History") + 1 : lines.index("History") + 6]
    assert [line.split()[2] for line in life] == ["submitted", "started", "retried", "started", "failed"]
    assert life[1].endswith("started    claim 1  by w")
    assert life[2].endswith("retried    claim 1  ValueError: bad")
    assert lines[-7:] == [
        "Attempt 1 (claim 1) failed on w\ufffd[1m after 0.250 s: ValueError: bad",
        "    Traceback",
        "            line",
        "    ValueError: bad\ufffd[2J",
        "  printed at the end:",
        "    page 7",
        "    last",
    ]
    (value,) = run_json("show", id, "--url", url)
    assert (value["payload"], value["file"], value["state"]) == ({"order": "17\x9b"}, None, "failed")
    assert [entry["event"] for entry in value["history"]] == ["submitted", "claimed", "retried", "claimed", "failed"]
    assert value["failed_attempts"][0]["traceback"] == DETAILS["traceback"]
    missing = run("show", "nothing", "--url", url)
    assert (missing.exit_code, missing.stdout) == (2, "")


def test_show_of_a_document_whose_feed_was_purged(queue: Queue, url: str) -> None:
    id = queue.submit("acme", now=1000).id
    (claim,) = queue.engine.claim("w", 1, 60_000, now_ms=1_100_000)
    queue.engine.settle([(claim, Failed("torn"))], now_ms=5_000_000)
    queue.purge(2000, now=6000)
    (value,) = run_json("show", id, "--url", url)
    assert [(entry["event"], entry["at"]) for entry in value["history"]] == [("submitted", 1000), ("failed", 5000)]


def test_result_prints_what_came_out(queue: Queue, url: str, tmp_path: Path) -> None:
    id = queue.submit("acme").id
    early = run("result", id, "--url", url)
    assert (early.exit_code, "has no result: it is ready" in early.stderr) == (2, True)
    settle(queue, Done('{"pages": 2, "title": "a\\u009bz"}'))
    assert run_json("result", id, "--url", url) == [{"pages": 2, "title": "a\x9bz"}]
    assert run("result", id, "--url", url).stdout == '{\n  "pages": 2,\n  "title": "a\ufffdz"\n}\n'
    both = run("result", id, "--text", "--json", "--url", url)
    assert (both.exit_code, "leave one of them out" in both.stderr) == (2, True)


def test_an_error_that_quotes_a_reason_is_safe_to_print(queue: Queue, url: str) -> None:
    id = queue.submit("acme").id
    settle(queue, Failed("\x1b]0;title\x07"))
    assert "failed: \ufffd]0;title\ufffd; only a document" in run("result", id, "--url", url).stderr
    assert "It is failed: \ufffd]0;title\ufffd." in run("explain", id, "--url", url).stdout


def test_events_begin_with_the_last_twenty(queue: Queue, url: str) -> None:
    queue.submit_many("acme", range(30))
    other = queue.submit("bob").id
    rows = run_json("events", "--url", url)
    assert [row["number"] for row in rows] == list(range(12, 32))
    assert rows[-1] == rows[-1] | {"event": "submitted", "customer": "bob", "document": other, "reason": None}
    assert len(run_json("events", "--after", "0", "--url", url)) == 31
    assert [row["number"] for row in run_json("events", "--after", "0", "--customer", "bob", "--url", url)] == [31]
    assert [row["number"] for row in run_json("events", "--after", "0", "--document", other, "--url", url)] == [31]
    assert run("events", "--after", "30", "--url", url).stdout.endswith(f"submitted  bob  {other}\n")
    assert run_json("events", "--after", "31", "--url", url) == []


def test_events_of_an_empty_queue(queue: Queue, url: str) -> None:
    assert run_json("events", "--url", url) == []


def test_events_are_followed_until_ctrl_c(queue: Queue, url: str) -> None:
    queue.submit("acme")
    with start("events", "--follow", "--json", "--url", url, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert json.loads(program.stdout.readline())["number"] == 1
        queue.submit("bob")
        assert json.loads(program.stdout.readline())["customer"] == "bob"
        program.send_signal(signal.SIGINT)
        _, stderr = program.communicate(timeout=60)
    assert (program.returncode, stderr) == (0, "")
