"""Encryption keys: where they come from, how they are named, and what is said about one that cannot be used."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from fairlane.core.errors import Mistake, StoreUnfit
from fairlane.encryption.keyring import FILE_VARIABLE, KEYS_VARIABLE, EncryptionKeyring, KeyMissing, load_keyring, new_key

FIRST, SECOND = new_key(), new_key()


def ids_of(keyring: EncryptionKeyring) -> list[str]:
    return [key.id for key in keyring.keys]


def test_without_anything_there_are_no_keys() -> None:
    assert load_keyring(environment={}) == EncryptionKeyring(None, ())


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    keyring = load_keyring(environment={KEYS_VARIABLE: f"{FIRST}, {SECOND}"})
    assert keyring.first is keyring.keys[0]
    assert (len(keyring.keys), keyring.find(keyring.keys[1].id)) == (2, keyring.keys[1])


def test_none_in_the_first_place_encrypts_nothing() -> None:
    keyring = load_keyring(environment={KEYS_VARIABLE: f"none,{FIRST}"})
    assert (keyring.first, len(keyring.keys)) == (None, 1)
    with pytest.raises(Mistake, match="'none' in place 2; it may only come first"):
        load_keyring(environment={KEYS_VARIABLE: f"{FIRST},none"})


def test_a_file_has_a_key_a_line_and_may_have_remarks(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# of November\n{FIRST}\n\n{SECOND}   # of October\n")
    path.chmod(0o600)
    assert load_keyring(str(path), {}) == load_keyring(environment={FILE_VARIABLE: str(path)})
    assert ids_of(load_keyring(str(path), {KEYS_VARIABLE: new_key()})) == ids_of(
        load_keyring(environment={KEYS_VARIABLE: f"{FIRST},{SECOND}"})
    )


def test_the_id_follows_from_the_key_and_neither_is_the_key() -> None:
    (key,) = load_keyring(environment={KEYS_VARIABLE: FIRST}).keys
    urlsafe = base64.urlsafe_b64encode(base64.b64decode(FIRST)).decode()
    assert ids_of(load_keyring(environment={KEYS_VARIABLE: urlsafe})) == [key.id]
    assert len(key.id) == 8
    assert key.id != base64.b64decode(FIRST)[:4].hex()
    assert repr(EncryptionKeyring(key, (key,))).count(key.id) == 2
    assert FIRST not in repr(EncryptionKeyring(key, (key,)))
    assert repr(key.secret) not in repr(EncryptionKeyring(key, (key,)))


@pytest.mark.parametrize("text", ["short", base64.b64encode(bytes(31)).decode(), "=" * 44, FIRST[:-2] + "!="])
def test_what_is_not_a_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(Mistake, match=f"encryption key 2 in {KEYS_VARIABLE} is not one; it must be 32 random bytes") as caught:
        load_keyring(environment={KEYS_VARIABLE: f"{FIRST},{text}"})
    assert text not in str(caught.value)


def test_settings_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="are both set; unset one of them"):
        load_keyring(environment={KEYS_VARIABLE: FIRST, FILE_VARIABLE: "/x"})
    with pytest.raises(Mistake, match="cannot be read from /no/such/file: No such file"):
        load_keyring("/no/such/file", {})
    (tmp_path / "empty").write_text("# nothing\n")
    (tmp_path / "empty").chmod(0o600)
    with pytest.raises(Mistake, match="has no encryption key"):
        load_keyring(str(tmp_path / "empty"), {})
    with pytest.raises(Mistake, match="has no encryption key"):
        load_keyring(environment={KEYS_VARIABLE: ""})


@pytest.mark.parametrize(
    ("mode", "is_open"), [(0o600, False), (0o400, False), (0o640, False), (0o644, True), (0o606, True), (0o660, True)]
)
def test_a_file_that_is_open_to_others_is_refused(tmp_path: Path, mode: int, is_open: bool) -> None:
    path = tmp_path / "keys"
    path.write_text(FIRST)
    path.chmod(mode)
    if not is_open:
        assert len(load_keyring(str(path), {}).keys) == 1
        return
    with pytest.raises(Mistake, match=f"keys in {path} are open to others: its mode is {mode:o}; chmod 600 {path}"):
        load_keyring(environment={FILE_VARIABLE: str(path)})


def test_a_file_that_is_too_large_is_refused_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"{FIRST}\n" * 1500)
    path.chmod(0o600)
    with pytest.raises(Mistake, match="larger than 65,536 bytes"):
        load_keyring(str(path), {})


def test_a_key_that_is_missing_is_named() -> None:
    keyring = load_keyring(environment={KEYS_VARIABLE: FIRST})
    with pytest.raises(
        KeyMissing, match=r"encrypted with key 0123abcd, which this program does not have; add that key to FAIR"
    ):
        keyring.find("0123abcd")
    assert issubclass(KeyMissing, StoreUnfit)
