"""Commands for customers: pause, resume, tune, reset."""

from __future__ import annotations

import re

import pytest

from fairlane import CustomerLimits, Queue, Terms

from .running import run, run_json


@pytest.fixture
def acme(url: str) -> str:
    """A queue in which acme has sent 30 documents."""
    with Queue(url) as queue:
        queue.submit_many("acme", range(30))
    return url


def terms(url: str) -> Terms:
    with Queue(url) as queue:
        return queue.terms("acme")


def test_pause_and_resume(acme: str) -> None:
    paused = run("pause", "acme", "--url", acme).stdout
    assert paused == "acme is paused, with 30 documents waiting; `fairlane resume acme` ends the pause.\n"
    assert terms(acme).paused
    assert run("explain", "acme", "--url", acme).stdout.startswith(
        "acme is paused: nothing of it is served until it is resumed. "
    )
    assert run("resume", "acme", "--url", acme).stdout == "acme is no longer paused; 30 documents waiting.\n"
    assert not terms(acme).paused
    assert run("resume", "acme", "--url", acme).stdout == "acme was not paused; 30 documents waiting.\n"
    assert run_json("pause", "acme", "--url", acme) == [{"customer": "acme", "paused": True, "waiting": 30}]
    assert run_json("resume", "acme", "--url", acme) == [{"customer": "acme", "paused": False, "waiting": 30}]


def test_a_customer_can_be_paused_before_it_sends_anything(acme: str) -> None:
    run_json("pause", "new one", "--url", acme)
    assert "`fairlane resume 'new one'`" in run("pause", "new one", "--url", acme).stdout
    assert "new one is paused: nothing of it is served until it is resumed." in run("explain", "new one", "--url", acme).stdout


@pytest.mark.parametrize("command", ["resume", "reset", "forget"])
def test_a_name_that_is_wrong_is_reported(acme: str, command: str) -> None:
    result = run(command, "acmee", "--url", acme)
    assert result.exit_code == 2
    assert "there is no customer 'acmee'; it never sent a document here, or it was forgotten" in result.stderr


def test_tune_changes_what_is_named_and_none_is_as_everybody(acme: str) -> None:
    options = ("--weight", "2", "--cap", "3", "--reset", "sliding", "--reset-interval", "10m", "--thresholds=-1,-2.5")
    (row,) = run_json("tune", "acme", *options, "--url", acme)
    assert row == {
        "customer": "acme", "weight": 2, "cap": 3, "paused": False, "reset": "sliding", "reset_interval": 600,
        "thresholds": [-1, -2.5], "waiting_max": None, "descendants_max": None, "documents_max": None, "bytes_max": None,
        "retries_max": None, "cost_min": 1,
    }  # fmt: skip
    assert terms(acme) == Terms(2, 3, False, 600, (-1, -2.5), "sliding")
    run_json("tune", "acme", "--cap", "none", "--url", acme)
    assert terms(acme) == Terms(2, None, False, 600, (-1, -2.5), "sliding")
    nothing = [word for name in ("weight", "reset", "reset-interval", "thresholds") for word in (f"--{name}", "none")]
    run_json("tune", "acme", *nothing, "--url", acme)
    assert terms(acme) == Terms()


def test_tune_without_options_only_shows(acme: str) -> None:
    run_json("tune", "acme", "--weight", "2.5", "--reset-interval", "10m", "--thresholds=-1,-2", "--url", acme)
    with Queue(acme) as queue:
        before = len(list(queue.changes()))
        lines = run("tune", "acme", "--url", acme).stdout.splitlines()
        run("tune", "nobody", "--url", acme)
        assert len(list(queue.changes())) == before
    assert [line.split(maxsplit=1)[0] for line in lines] == [
        "customer", "weight", "cap", "paused", "reset", "reset", "thresholds", "waiting", "descendants", "documents", "bytes",
        "retries", "cost",
    ]  # fmt: skip
    own = "the queue's own"
    assert [line[17:] for line in lines] == ["acme", "2.5", own, "no", own, "600", "-1, -2", own, own, own, own, own, "1"]


def test_a_customer_gets_limits_of_its_own(acme: str) -> None:
    options = ("--waiting-max", "40", "--bytes-max", "2MB", "--cost-min", "0.5", "--retries-max", "0")
    (row,) = run_json("tune", "acme", *options, "--url", acme)
    assert (row["waiting_max"], row["bytes_max"], row["cost_min"], row["documents_max"]) == (40, 2_000_000, 0.5, None)
    sentence = run("explain", "acme", "--url", acme).stdout
    assert "It keeps 30 documents with 50 of at most 2,000,000 bytes." in sentence
    (facts,) = run_json("explain", "acme", "--url", acme)
    assert (facts["documents"], facts["waiting_max"], facts["bytes_max"], facts["descendants_max"]) == (
        30,
        40,
        2_000_000,
        10_000,
    )
    run_json("tune", "acme", "--waiting-max", "30", "--documents-max", "30", "--url", acme)
    sentence = run("explain", "acme", "--url", acme).stdout
    assert "It keeps 30 of at most 30 documents (that limit is reached) with" in sentence
    assert "No more than 30 documents may wait, so new ones are refused." in sentence
    run_json("tune", "acme", "--waiting-max", "none", "--bytes-max", "none", "--cost-min", "none", "--url", acme)
    assert terms(acme) == Terms(limits=CustomerLimits(documents_max=30, retries_max=0))
    assert run("tune", "acme", "--cost-min", "2", "--url", acme).exit_code == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--weight", "0"], "weight is 0.0"),
        (["--weight", "heavy"], "not a valid float"),
        (["--cap", "0"], "cap is 0"),
        (["--waiting-max", "-1"], "waiting_max is -1"),
        (["--cost-min", "0"], "cost_min is 0.0"),
        (["--cap", "some"], "not a valid integer"),
        (["--reset", "often"], "'often' is not one of 'idle', 'sliding'"),
        (["--reset-interval", "soon"], "'soon' is not a duration"),
        (["--reset-interval", "31d"], "reset_interval is 2678400"),
        (["--thresholds=x"], "--thresholds is 'x'"),
        (["--thresholds=-2,-1"], "strictly falling"),
    ],
)
def test_terms_that_cannot_be_are_refused(acme: str, options: list[str], message: str) -> None:
    result = run("tune", "acme", *options, "--url", acme)
    assert (result.exit_code, terms(acme)) == (2, Terms())
    assert message in result.stderr


def test_explain_shows_what_a_customer_has_of_its_own(acme: str) -> None:
    run_json("tune", "acme", "--weight", "2", "--cap", "1", "--reset", "sliding", "--reset-interval", "1h", "--url", acme)
    with Queue(acme) as queue:
        queue.engine.claim("w", 1, 60_000)
        sentence = run("explain", "acme", "--url", acme).stdout
        assert sentence.endswith(
            "; 1 running. It keeps 30 documents with 50 bytes. At most 1 document may run at once, which is reached now. Its "
            "weight is 2: it may send 2 times as much for the same priority, and gets 2 turns for one. It has its own reset "
            "and reset interval.\n"
        )
        counts = "The counter is what it sent within the last 60 minutes; it is back at 0 after about "
        assert re.search(counts + "(5[6-9]|60) minutes without a document", sentence)
        queue.tune("acme", reset="idle")
        assert "It starts afresh at 0 after about 60 minutes more without a document." in str(queue.explain_customer("acme"))
        later = queue.explain_customer("acme", now=4e9)
        assert "Its reset interval is over, so its next document starts afresh at 0." in str(later)
        assert (later.facts["cap"], later.facts["weight"], later.facts["resets_in"]) == (1, 2.0, 0)


def test_reset_lets_a_customer_stand_as_never_seen(acme: str) -> None:
    assert run("reset", "acme", "--url", acme).stdout == "acme counts as never seen; its counter was -29.\n"
    assert run_json("reset", "acme", "--url", acme) == [{"customer": "acme", "counter_before": 0, "counter": 0}]
    (look,) = run_json("status", "acme", "--url", acme)[0]
    assert (look["counter"], look["next_priority"], look["waiting"]) == (0, 1, 30)
