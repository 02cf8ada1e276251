"""Steering from the command line: prioritize, kinds and kind, and a backlog that follows the table or a reset."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.queue.audit import AuditFilter, cli_actor, walk_audit

from .running import run, run_json


@pytest.fixture
def acme(url: str) -> str:
    """A queue in which acme has sent 30 documents."""
    with Queue(url) as queue:
        queue.submit_many("acme", range(30), kind="scan")
    return url


def priorities(url: str, customer: str = "acme") -> list[int]:
    with Queue(url) as queue:
        return [document.priority for document in queue.documents(customer) if document.state in ("ready", "delayed")][::-1]


def newest_ids(url: str, count: int) -> list[str]:
    with Queue(url) as queue:
        return [document.id for document in queue.documents("acme")][:count]


# -- prioritize --------------------------------------------------------------------------------------------------------


def test_documents_are_prioritized_by_id(acme: str) -> None:
    ids = newest_ids(acme, 2)
    result = run("prioritize", *ids, "--priority", "1", "--url", acme)
    assert result.stdout == "".join(f"{id}: priority 1\n" for id in ids)
    assert priorities(acme)[-2:] == [1, 1]
    assert run_json("prioritize", ids[0], "--priority", "4", "--url", acme) == [{"id": ids[0], "priority": 4}]
    shown = run("show", ids[0], "--url", acme).stdout
    assert "priority   4, set by an operator; the counter stood at -29" in shown
    assert f"prioritized          priority 4, set by {cli_actor().id}" in shown
    assert f"prioritized acme  {ids[0]}  priority 4, set by {cli_actor().id}" in run("events", "--url", acme).stdout
    explained = run("explain", ids[0], "--url", acme).stdout
    assert explained.startswith("Priority 4, set by an operator; acme's counter stood at -29 when it was submitted, for 9.")


def test_if_one_does_not_wait_none_is_prioritized(acme: str) -> None:
    ids = newest_ids(acme, 2)
    run("cancel", ids[0], "--url", acme)
    result = run("prioritize", *ids, "--priority", "1", "--url", acme)
    assert result.exit_code == 2
    assert f"nothing was prioritized: {ids[0]} is cancelled; only a waiting document can get another priority" in result.stderr
    result = run("prioritize", ids[1], "nothing", "--priority", "1", "--url", acme)
    assert (result.exit_code, "there is no document nothing" in result.stderr) == (2, True)
    assert 1 not in priorities(acme)[-1:]


def test_all_that_match_are_counted_confirmed_and_prioritized(acme: str) -> None:
    options = ("prioritize", "--customer", "acme", "--kind", "scan", "--priority", "2", "--url", acme)
    assert run(*options, "--dry-run").stdout == "30 documents would be given priority 2.\n"
    declined = run(*options, input="n\n")
    assert (declined.exit_code, "30 documents will be given priority 2. Go on?" in declined.output) == (1, True)
    assert "Nothing was given priority 2." in declined.stderr
    assert set(priorities(acme)) != {2}
    assert run(*options, "--yes").stdout == "30 documents given priority 2.\n"
    assert set(priorities(acme)) == {2}
    assert run(*options, "--yes").stdout == "No document can be given priority 2: none matches.\n"
    (numbers,) = run_json("prioritize", "--kind", "scan", "--priority", "3", "--yes", "--url", acme)
    assert numbers == {"matched": 30, "changed": 30, "refused": 0, "reason": None}
    with Queue(acme) as queue:
        entries = list(walk_audit(queue.engine, AuditFilter(what="documents.prioritize")))
    assert [(entry.who.kind, entry.after["priority"]) for entry in entries] == [("cli", 3), ("cli", 2)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--priority", "1"), "give the IDs of documents, or options that select them"),
        (("x", "--customer", "acme", "--priority", "1"), "give either IDs, or options that select documents, not both"),
        (("--customer", "acme"), "Missing option '--priority'"),
        (("--customer", "acme", "--priority", "10"), "10 is not in the range 1<=x<=9"),
        (("--state", "done", "--priority", "1"), "state is 'done'; it must be ready or delayed"),
    ],
)
def test_what_makes_no_sense_is_refused(acme: str, arguments: tuple[str, ...], message: str) -> None:
    result = run("prioritize", *arguments, "--url", acme)
    assert (result.exit_code, message in result.stderr) == (2, True), result.output


# -- kinds -------------------------------------------------------------------------------------------------------------


def test_a_kind_is_limited_shown_and_set_free(acme: str) -> None:
    shown = run("kind", "scan", "--running-max", "3", "--rate", "10", "--burst", "20", "--url", acme).stdout
    assert [line.split() for line in shown.splitlines()] == [
        ["kind", "scan"], ["running", "0"], ["running", "max", "3"], ["rate", "10"], ["burst", "20"], ["held", "by", "none"],
        ["version", "1"],
    ]  # fmt: skip
    with Queue(acme) as queue:
        assert len(queue.engine.claim("worker", 10, 60_000)) == 3
    assert [line.split() for line in run("kinds", "--url", acme).stdout.splitlines() if "scan" in line] == [
        ["scan", "3", "3", "10", "20", "kind", "running"]
    ]
    (row,) = run_json("kinds", "--url", acme)[0]
    assert row == run_json("kind", "scan", "--url", acme)[0]
    assert row == {
        "kind": "scan", "running": 3, "running_max": 3, "rate": 10, "burst": 20, "held_by": "kind running", "version": 1,
    }  # fmt: skip
    assert run_json("kind", "scan", "--rate", "none", "--url", acme)[0]["rate"] is None
    (free,) = run_json("kind", "scan", "--no-limit", "--url", acme)
    assert (free["running_max"], free["rate"], free["burst"], free["held_by"]) == (None, None, 1, None)


def test_a_queue_without_kinds_says_so(url: str) -> None:
    with Queue(url):
        pass
    assert run("kinds", "--url", url).stdout == "No kinds yet: nothing waits, no worker is registered, and no limit was set.\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--running-max", "0"), "running_max is 0; it must be a whole number from 1 to 1,000,000"),
        (("--rate", "0"), "rate is 0.0; it must be a number from 0.001 to 1,000,000"),
        (("--burst", "0.5"), "burst is 0.5; it must be a number from 1 to 1,000,000"),
        (("--no-limit", "--rate", "3"), "--no-limit removes all limits of the kind; leave the other options out"),
        (("--rate", "fast"), "'fast' is not a valid float"),
    ],
)
def test_a_bad_limit_is_refused(acme: str, arguments: tuple[str, ...], message: str) -> None:
    result = run("kind", "scan", *arguments, "--url", acme)
    assert (result.exit_code, message in result.stderr) == (2, True), result.output


# -- the backlog -------------------------------------------------------------------------------------------------------


def test_a_table_is_applied_to_the_backlog_of_everybody(acme: str) -> None:
    run("policy", "--thresholds=-10", "--url", acme)
    assert max(priorities(acme)) == 9
    shown = run("policy", "--apply-to-backlog", "--url", acme).stdout
    assert shown.endswith("27 waiting documents got another priority.\n")
    assert priorities(acme) == [1] * 11 + [2] * 19
    (data,) = run_json("policy", "--thresholds=-20", "--apply-to-backlog", "--url", acme)
    assert (data["thresholds"], data["reprioritized"]) == ([-20], 10)
    assert run("policy", "--apply-to-backlog", "--url", acme).stdout.endswith("No waiting document got another priority.\n")


def test_a_table_is_applied_to_the_backlog_of_one(acme: str) -> None:
    with Queue(acme) as queue:
        queue.submit_many("bolt", range(5))
    (data,) = run_json("tune", "acme", "--thresholds=-10", "--apply-to-backlog", "--url", acme)
    assert data["reprioritized"] == 27
    assert (priorities(acme)[-1], priorities(acme, "bolt")) == (2, [1, 1, 1, 2, 2])
    shown = run("tune", "acme", "--apply-to-backlog", "--url", acme).stdout
    assert shown.endswith("No waiting document got another priority.\n")


def test_a_reset_takes_the_backlog_along(acme: str) -> None:
    run("cancel", *newest_ids(acme, 30)[-10:], "--url", acme)
    assert run("reset", "acme", "--url", acme).stdout == "acme counts as never seen; its counter was -29.\n"
    before = priorities(acme)
    shown = run("reset", "acme", "--with-backlog", "--url", acme).stdout
    after = priorities(acme)
    changed = sum(one != other for one, other in zip(before, after, strict=True))
    assert after[:4] == [1, 1, 1, 2]
    assert shown.splitlines() == [
        "acme counts as never seen; its counter was 0.",
        f"{changed} waiting documents got another priority. Its counter is -19 now.",
    ]
    (data,) = run_json("reset", "acme", "--with-backlog", "--url", acme)
    assert data == {"customer": "acme", "counter_before": -19, "counter": -19, "reprioritized": 0}


# -- no better than ----------------------------------------------------------------------------------------------------


def test_files_are_submitted_no_better_than(url: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    arguments = ("submit", str(tmp_path / "a.txt"), "--customer", "acme", "--url", url)
    (receipt,) = run_json(*arguments, "--no-better-than", "7")
    assert receipt["priority"] == 7
    assert (
        "priority   7, as it shall be no better than 7, and the counter stood at 0"
        in run("show", receipt["id"], "--url", url).stdout
    )
    assert (
        "Priority 7, because it was submitted to be no better than that" in run("explain", receipt["id"], "--url", url).stdout
    )
    assert "10 is not in the range 1<=x<=9" in run(*arguments, "--no-better-than", "10").stderr
