"""Encrypted texts: they open where they were written and nowhere else, and nothing else passes for one."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.encryption import texts
from fairlane.encryption.keyring import KEYS_VARIABLE, EncryptionKeyring, KeyMissing, load_keyring, new_key
from fairlane.encryption.texts import TextDamaged, key_id_of, reseal, reseal_within, seal, unseal, unseal_within

OLD, NEW = new_key(), new_key()
KEYRING = load_keyring(environment={KEYS_VARIABLE: NEW})
BOTH = load_keyring(environment={KEYS_VARIABLE: f"{NEW},{OLD}"})
BEFORE = load_keyring(environment={KEYS_VARIABLE: OLD})
PLAIN = load_keyring(environment={KEYS_VARIABLE: f"none,{NEW}"})


@given(text=st.text(), context=st.text())
def test_a_text_opens_in_its_place(text: str, context: str) -> None:
    sealed = seal(KEYRING, context, text)
    assert unseal(KEYRING, context, sealed) == text
    assert KEYRING.first is not None
    assert key_id_of(sealed) == KEYRING.first.id
    assert seal(KEYRING, context, text) != sealed  # nobody sees that two texts are equal


@given(context=st.text(), other=st.text())
def test_a_text_does_not_open_in_another_place(context: str, other: str) -> None:
    if context != other:
        with pytest.raises(TextDamaged, match="was changed, or belongs elsewhere"):
            unseal(KEYRING, other, seal(KEYRING, context, "text"))


@given(data=st.data())
def test_a_text_that_was_changed_does_not_open(data: st.DataObject) -> None:
    sealed = seal(KEYRING, "payload/1", "some text")
    head, _, body = sealed.rpartition(":")
    content = bytearray(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    changed = base64.urlsafe_b64encode(content).rstrip(b"=").decode()
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    for wrong in (changed, cut, body + "AAAA"):
        with pytest.raises(TextDamaged):
            unseal(KEYRING, "payload/1", f"{head}:{wrong}")


def test_a_missing_key_is_told_from_damage() -> None:
    sealed = seal(BEFORE, "payload/1", "text")
    with pytest.raises(KeyMissing):
        unseal(KEYRING, "payload/1", sealed)
    with pytest.raises(KeyMissing):
        unseal(EncryptionKeyring(), "payload/1", sealed)
    assert unseal(BOTH, "payload/1", sealed) == "text"


@pytest.mark.parametrize("text", ['{"a": 1}', "null", '"enc1:00000000:x"', "1", ""])
def test_what_is_not_encrypted_stays_as_it_is(text: str) -> None:
    assert unseal(KEYRING, "context", text) == text
    assert unseal(EncryptionKeyring(), "context", text) == text
    assert seal(EncryptionKeyring(), "context", text) == text
    assert seal(PLAIN, "context", text) == text


def test_parts_of_a_text_are_decrypted_for_people() -> None:
    sealed = seal(KEYRING, "reason/1", "no such IBAN")
    composed = f"attempt 3 of 3 failed: {sealed}"
    assert unseal_within(KEYRING, "reason/1", composed) == "attempt 3 of 3 failed: no such IBAN"
    assert KEYRING.first is not None
    hidden = f"attempt 3 of 3 failed: (encrypted with key {KEYRING.first.id}, which is not here)"
    assert unseal_within(BEFORE, "reason/1", composed) == hidden
    assert unseal_within(KEYRING, "reason/2", composed) == composed
    looks_alike = f"the customer wrote enc1:{KEYRING.first.id}:{'A' * 60}"
    assert unseal_within(KEYRING, "reason/1", looks_alike) == looks_alike
    assert unseal_within(KEYRING, "reason/1", "plain") == "plain"


def test_texts_are_brought_to_the_first_key() -> None:
    old = seal(BEFORE, "p", "text")
    new = reseal(BOTH, "p", old)
    assert (key_id_of(new), unseal(KEYRING, "p", new)) == (key_id_of(seal(KEYRING, "p", "")), "text")
    assert reseal(BOTH, "p", new) == new
    assert reseal(BOTH, "p", "null").startswith(texts.MARK)
    assert reseal(PLAIN, "p", new) == "text"
    assert reseal(PLAIN, "p", "null") == "null"
    with pytest.raises(KeyMissing):
        reseal(KEYRING, "p", old)
    composed = f"attempt 3 of 3 failed: {seal(BEFORE, 'reason/1', 'why')}"
    again = reseal_within(BOTH, "reason/1", composed)
    assert unseal_within(KEYRING, "reason/1", again) == "attempt 3 of 3 failed: why"
    assert reseal_within(BOTH, "reason/1", again) == again
    assert unseal_within(KEYRING, "reason/1", reseal_within(BOTH, "reason/1", "plain")) == "plain"
    assert reseal_within(PLAIN, "reason/1", again) == "attempt 3 of 3 failed: why"
    assert reseal_within(BOTH, "reason/1", "") == ""
