"""A queue of an older version that counts with `window` or `gradual`: nothing begins in it until an operator sets another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from fairlane import Queue
from fairlane.core.document import Done
from fairlane.engine.codec import RESETS_GONE
from fairlane.sim.verify import verify

from .running import run, run_json

Store = Callable[[str], None]
SENT = 30


@pytest.fixture
def store(url: str) -> Store:
    """A queue with 30 documents of acme, and a change of its file as an older version would have left it."""

    def store(statement: str) -> None:
        with Queue(url) as queue:
            queue.configure(reset_interval=600)
            queue.tune("acme", reset_interval=1200)
            queue.submit_many("acme", range(SENT))
        connection = apsw.Connection(str(Path(url.removeprefix("sqlite:///"))))
        connection.execute(statement)
        connection.close()

    return store


def with_rules(reset: str) -> str:
    return (
        f"UPDATE rules SET body = json_set(body, '$.reset', '{reset}') WHERE version = 2; "
        f"UPDATE changes SET note = json_set(note, '$.reset', '{reset}') WHERE what = 'configured'"
    )


def with_terms(reset: str) -> str:
    return (
        f"UPDATE terms SET body = json_set(body, '$.reset', '{reset}'); "
        f"UPDATE changes SET note = json_set(note, '$.reset', '{reset}') WHERE what = 'tuned'"
    )


@pytest.mark.parametrize("reset", RESETS_GONE)
def test_nothing_begins_and_every_command_says_what_to_set(url: str, store: Store, reset: str) -> None:
    store(with_rules(reset))
    why = f"this queue has rules with reset = {reset}, which is gone: `fairlane policy --reset sliding` sets its successor"
    for command in ("check acme", "policy --dispatch strict", "policy --retries-max 5", "pause acme", "reset acme"):
        result = run(*command.split(), "--url", url)
        assert result.exit_code != 0, command
        assert f"{why}; nothing was changed" in result.stderr, command
    assert f"frozen           {why}" in run("policy", "--url", url).stdout
    (finding,) = [each for each in run_doctor(url) if each["name"] == "moving"]
    assert (finding["level"], "fairlane policy --reset sliding" in finding["advice"]) == ("bad", True)
    (look,) = run_json("status", "acme", "--url", url)[0]
    assert look["waiting"] == SENT


def run_doctor(url: str) -> list[dict[str, str]]:
    findings: list[dict[str, str]] = json.loads(run("doctor", "--json", "--url", url).stdout)
    return findings


@pytest.mark.parametrize("reset", ["sliding", "idle"])
def test_setting_another_lets_everything_go_on(url: str, store: Store, reset: str) -> None:
    store(with_rules("gradual"))
    (before,) = run_json("policy", "--url", url)
    (after,) = run_json("policy", "--reset", reset, "--url", url)
    assert (after["version"], after["reset"], after["reset_interval"]) == (before["version"] + 1, reset, 600)
    assert "frozen" in before
    assert "frozen" not in after
    (check,) = run_json("check", "acme", "--url", url)
    assert check["counter"] == -SENT  # from where it stood
    with Queue(url) as queue:
        (claim,) = queue.engine.claim("worker", 1, 60_000)
        assert queue.engine.settle([(claim, Done())]) == []
        assert queue.rules().frozen is None


def test_the_change_is_in_the_audit_log(url: str, store: Store) -> None:
    store(with_rules("window"))
    run_json("policy", "--reset", "sliding", "--url", url)
    (entry,) = [each for each in run_json("audit", "--url", url) if each["action"] == "policy.set"]
    assert "reset = window" in entry["before"]["frozen"]
    assert (entry["after"]["reset"], entry["after"]["frozen"]) == ("sliding", None)


@pytest.mark.parametrize("reset", RESETS_GONE)
def test_a_customers_own_reads_as_sliding(url: str, store: Store, reset: str) -> None:
    store(with_terms(reset))
    assert run_json("check", "acme", "--url", url)[0]["counter"] == -SENT
    (facts,) = run_json("explain", "acme", "--url", url)
    assert (facts["reset"], facts["reset_interval"]) == ("sliding", 1200)


@pytest.mark.parametrize("statement", [with_rules("gradual"), with_terms("window")], ids=["rules", "terms"])
def test_checks_under_it_are_skipped_by_verify_and_later_ones_are_not(url: str, store: Store, statement: str) -> None:
    store(statement)
    run("policy", "--reset", "sliding", "--url", url)
    run("tune", "acme", "--reset", "idle", "--url", url)
    with Queue(url) as queue:
        queue.check("acme")
        queue.reset("acme")
        queue.check("acme")
        queue.check("acme")
        result = verify(queue)
    assert (result.checks, result.skipped, result.customers, result.differences) == (2, SENT + 1, 1, ())
