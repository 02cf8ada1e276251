"""Keys: made, listed, revoked from the command line; hashed, expiring, compared."""

from __future__ import annotations

import json

import pytest

from fairlane import Queue
from fairlane.api import auth
from fairlane.core.errors import Mistake, Unknown
from tests.cli.running import run, run_json


@pytest.fixture
def url(tmp_path: object) -> str:
    return f"sqlite:///{tmp_path}/queue.db"


def test_a_key_is_shown_once_and_kept_as_a_hash(url: str) -> None:
    (made,) = run_json("keys", "create", "--customer", "acme", "--name", "laptop", "--expires", "90d", "--url", url)
    assert made["key"].startswith("fl_")
    assert len(made["key"].rpartition("_")[2]) >= 43 or made["key"].count("_") > 2  # 256 bits
    (listed,) = run_json("keys", "list", "--url", url)
    assert "key" not in listed
    assert (listed["role"], listed["customer"], listed["name"], listed["state"]) == ("customer", "acme", "laptop", "active")
    with Queue(url) as queue:
        (record,) = queue.engine.records(auth.GROUP, "", 10)
    assert made["key"] not in record.value
    assert made["key"].split("_", 2)[2] not in record.value


def test_revoking_is_for_good_and_may_be_repeated(url: str) -> None:
    (made,) = run_json("keys", "create", "--admin", "--url", url)
    (revoked,) = run_json("keys", "revoke", made["id"], "--url", url)
    assert revoked["state"] == "revoked"
    assert run_json("keys", "revoke", made["id"], "--url", url) == [revoked]
    with Queue(url) as queue:
        assert not auth.has_admin(queue.engine)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create",), "a key is for a customer or for staff"),
        (("create", "--operator", "--customer", "a"), "a key is for a customer or for staff"),
        (
            ("create", "--customer", "a", "--scope", "metrics"),
            "scope is 'metrics'; it must be submit or read for a key of role customer",
        ),
        (("create", "--viewer", "--scope", "submit"), "scope is 'submit'; it must be read or metrics for a key of role viewer"),
        (("create", "--operator", "--expires", "101y"), "'101y' is not a duration"),
        (("create", "--customer", ""), "customer is ''"),
        (("create", "--operator", "--expires", "0s"), "expires is 0.0"),
        (("revoke", "nobody"), "there is no key nobody"),
        (("revoke", "fl_0123456789abcdef_" + 43 * "x"), "that is a whole key"),
    ],
)
def test_what_cannot_be_is_reported(url: str, arguments: tuple[str, ...], message: str) -> None:
    run("keys", "create", "--operator", "--url", url)
    result = run("keys", *arguments, "--url", url)
    assert (result.exit_code, message in result.output) == (2, True), result.output


def test_people_read_it_in_sentences(url: str) -> None:
    assert "This is a key of customer acme" in run("keys", "create", "--customer", "acme", "--url", url).output
    assert "acme" in run("keys", "list", "--url", url).output


def test_the_keyring_knows_only_whole_keys_that_are_in_use() -> None:
    with Queue("memory://") as queue:
        ring = auth.Keyring(queue.engine)
        right, key = auth.create(queue.engine, customer="acme")
        late, late_key = auth.create(queue.engine, customer="acme", expires_seconds=1, now_ms=1000)
        ring.load(key.id)
        ring.load(late_key.id)
        assert ring.caller(right) == key.caller
        for wrong in (late, right[:-1], right + "x", right.upper(), "", "fl__", "fl_" + key.id, right.replace("fl_", "xx_")):
            assert ring.caller(wrong) is None, wrong


def test_what_is_believed_is_asked_again_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    with Queue("memory://") as queue:
        ring = auth.Keyring(queue.engine)
        _, key = auth.create(queue.engine, customer="acme")
        assert not ring.is_cached(key.id)
        ring.load(key.id)
        assert ring.is_cached(key.id)
        monkeypatch.setattr(auth, "CACHE_SECONDS", 0)
        assert not ring.is_cached(key.id)


def test_an_unknown_key_is_unknown() -> None:
    with Queue("memory://") as queue:
        with pytest.raises(Unknown):
            auth.revoke(queue.engine, "nobody")
        with pytest.raises(Mistake):
            auth.revoke(queue.engine, "fl_a_b")
        assert json.loads("[]") == list(auth.list_keys(queue.engine))
