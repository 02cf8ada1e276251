"""Policies to be tried: names, files, and changes on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.core.errors import BadValue, Mistake
from fairlane.core.policy import Policy, Rules, Terms
from fairlane.sim.contenders import CONTENDERS, MEANINGS, Contender, load_contender


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mine.toml"


def test_a_name_means_rules_of_production() -> None:
    assert load_contender("texts") == Contender("texts", Rules())
    assert load_contender("texts-strict").rules == Rules(dispatch="strict")
    assert load_contender("sliding").rules == Rules(Policy(reset="sliding"))
    assert load_contender("sliding-documents").rules == Rules(Policy(reset="sliding"), turns="documents")
    assert load_contender("texts-documents").rules == Rules(turns="documents")
    assert load_contender("fifo").rules == Rules(Policy(thresholds=()), "strict")
    assert load_contender("round-robin").rules == Rules(Policy(thresholds=()), "fair", 0, turns="documents")
    assert load_contender("fair-queueing").rules == Rules(Policy(thresholds=()), "fair", 0, turns="time")
    assert set(MEANINGS) == set(CONTENDERS)


def test_a_file_may_set_everything(path: Path) -> None:
    path.write_text(
        'reset = "sliding"\nreset_interval = 600\nthresholds = [-1, -2.5]\ndispatch = "strict"\nopen_turn_every = 8\n'
        'turns = "documents"\n'
        '[customers.acme]\nweight = 2\ncap = 3\n[customers."bolt & co"]\nreset = "sliding"\nthresholds = [-9]\n'
    )
    loaded = load_contender(str(path))
    assert loaded.name == "mine"
    assert loaded.rules == Rules(Policy(600, (-1, -2.5), "sliding"), "strict", 8, turns="documents")
    assert loaded.terms == {"acme": Terms(weight=2, cap=3), "bolt & co": Terms(reset="sliding", thresholds=(-9,))}


def test_an_empty_file_is_the_default(path: Path) -> None:
    path.write_text("")
    assert load_contender(str(path)) == Contender("mine")


def test_a_file_does_not_pass_for_a_named_policy(tmp_path: Path) -> None:
    path = tmp_path / "texts.toml"
    path.write_text('dispatch = "strict"')
    assert load_contender(str(path)).name == "texts.toml"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("interval = 5", "a name in the file is 'interval'; it must be one of reset_interval, thresholds, reset, dispatch"),
        ("version = 5", "a name in the file is 'version'"),
        ("policy = 5", "a name in the file is 'policy'"),
        ("interval_ms = 5", "a name in the file is 'interval_ms'"),
        ('reset = "never"', "reset is 'never'"),
        ('reset = "gradual"', "reset is 'gradual'; it must be one of idle, sliding"),
        ('turns = "pages"', "turns is 'pages'; it must be one of time, documents"),
        ("turns = [1]", r"turns is \[1\]"),
        ("reset = [1]", "reset is"),
        ('reset_interval = "long"', "reset_interval is 'long'"),
        ("reset_interval = true", "reset_interval is True"),
        ("reset_interval = nan", "reset_interval is nan"),
        ("reset_interval = 0", "reset_interval is 0"),
        ("thresholds = -2", r"thresholds is -2; it must be a list of numbers, as in \[-2, -4, -6\]"),
        ('thresholds = ["-2"]', "thresholds is '-2'"),
        ("thresholds = [[-2]]", "thresholds is"),
        ("thresholds = [-4, -2]", "strictly falling"),
        ("thresholds = [2026-03-01]", "thresholds is"),
        ("dispatch = 1", "dispatch is 1"),
        ("dispatch = [1]", r"dispatch is \[1\]"),
        ("open_turn_every = [1]", "open_turn_every is"),
        ("[customers.acme]\ncap = [1]", "cap is"),
        ("[customers.acme]\nreset = [1]", "reset is"),
        ("open_turn_every = 1.5", "open_turn_every is 1.5"),
        ("open_turn_every = -1", "open_turn_every is -1"),
        ("customers = 5", r"customers is 5; it must be tables, as in \[customers.acme\]"),
        ("[customers]\nacme = 2", "customers.acme is 2; it must be a table"),
        ("[customers.acme]\nheight = 2", "a name in customers.acme is 'height'; it must be one of weight, cap"),
        ("[customers.acme]\nweight_thousandths = 2", "a name in customers.acme is 'weight_thousandths'"),
        ('[customers.acme]\nweight = "2"', "weight is '2'"),
        ("[customers.acme]\nweight = 0", "weight is 0"),
        ("[customers.acme]\ncap = 0", "cap is 0"),
        ("[customers.acme]\npaused = 1", "paused is 1"),
        ("[customers.acme]\nthresholds = 3", "thresholds is 3"),
        ("reset = ", "cannot be read as a policy"),
        ("thresholds = " + "[" * 30_000, "cannot be read as a policy"),
        ("\xff", "cannot be read as a policy"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_name(path: Path, content: str, message: str) -> None:
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(Mistake, match=r"mine\.toml.*" + message):
        load_contender(str(path))


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    for name in ("lifo", str(tmp_path), str(tmp_path / "nowhere.toml"), "", "current"):
        with pytest.raises(BadValue, match=r"--policy is .*; it must be one of fifo, texts-strict, .* or a policy file"):
            load_contender(name)


def test_changes_hold_where_they_mean_something() -> None:
    own = Contender("mine", Rules(dispatch="strict"), {"acme": Terms(cap=2), "bolt": Terms(weight=3)})
    changed = own.with_changes(600, (-1, -2), {"acme": 5, "new": 0.5})
    assert changed.rules == Rules(Policy(600, (-1, -2)), "strict")
    assert changed.terms == {"acme": Terms(cap=2, weight=5), "bolt": Terms(weight=3), "new": Terms(weight=0.5)}
    assert own.with_changes() == own
    assert CONTENDERS["fifo"].with_changes(thresholds=(-1, -2)).rules.policy.thresholds == ()
    assert CONTENDERS["fifo"].with_changes(reset_interval=9).rules.policy.reset_interval == 9
    with pytest.raises(BadValue, match="weight is 0"):
        own.with_changes(weights={"acme": 0})
