"""Encrypted files: plain bytes in, plain bytes out, in pieces; whatever else is done to them is noticed."""

from __future__ import annotations

import io
import os
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.errors import BlobDamaged
from fairlane.encryption.files import HEAD_BYTES, MAGIC, PIECE_BYTES, SEALED_BYTES, FileCipher
from fairlane.encryption.keyring import KEYS_VARIABLE, EncryptionKeyring, KeyMissing, load_keyring, new_key

KEYRING = load_keyring(environment={KEYS_VARIABLE: new_key()})
CIPHER = FileCipher(KEYRING)
SIZES = (0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 3 * PIECE_BYTES + 17)
CONTEXT = "01234567-0000-7000-8000-000000000000/input"


def encrypted(content: bytes, context: str = CONTEXT, cipher: FileCipher = CIPHER) -> bytes:
    return b"".join(cipher.encrypt(context, cut(content)))


def cut(content: bytes, size: int = 100_000) -> Iterable[bytes]:
    return [content[at : at + size] for at in range(0, len(content), size)]


def decrypted(stored: bytes, context: str = CONTEXT, cipher: FileCipher = CIPHER) -> bytes:
    with cipher.decrypt(context, io.BytesIO(stored)) as file:
        return file.read()


@pytest.mark.parametrize("size", SIZES)
def test_a_file_comes_back_whatever_its_size_and_its_pieces(size: int) -> None:
    content = os.urandom(size)
    for step in (7_777, 65_536, 262_144):
        stored = b"".join(CIPHER.encrypt(CONTEXT, cut(content, step)))
        assert decrypted(stored) == content
        assert len(stored) == HEAD_BYTES + size + 16 * max(1, -(-size // PIECE_BYTES))
    assert content[:64] not in stored or size < 16
    assert encrypted(content) != encrypted(content)


@given(st.lists(st.tuples(st.integers(0, 200_000), st.integers(0, 150_000)), max_size=8))
def test_any_part_can_be_read(parts: list[tuple[int, int]]) -> None:
    content = bytes(range(256)) * 700  # 179,200 bytes: two pieces and a half
    with CIPHER.decrypt(CONTEXT, io.BytesIO(encrypted(content))) as file:
        assert file.seek(0, io.SEEK_END) == len(content)
        for start, size in parts:
            file.seek(start)
            assert file.read(size) == content[start : start + size]
            assert file.tell() == start + len(content[start : start + size])


def test_a_file_that_was_changed_cut_or_put_together_is_noticed() -> None:
    content = os.urandom(2 * PIECE_BYTES + 100)
    stored = encrypted(content)
    head, pieces = stored[:HEAD_BYTES], [stored[at : at + SEALED_BYTES] for at in range(HEAD_BYTES, len(stored), SEALED_BYTES)]
    other = encrypted(content)
    wrong = {
        "a bit of a piece": stored[:-1] + bytes([stored[-1] ^ 1]),
        "a bit of the salt": stored[: HEAD_BYTES - 1] + bytes([stored[HEAD_BYTES - 1] ^ 1]) + stored[HEAD_BYTES:],
        "cut in a piece": stored[:-1],
        "cut between pieces": head + pieces[0] + pieces[1],
        "cut after the head": head,
        "pieces swapped": head + pieces[1] + pieces[0] + pieces[2],
        "a piece twice": head + pieces[0] + pieces[0] + pieces[1] + pieces[2],
        "a piece left out": head + pieces[1] + pieces[2],
        "a piece of another file": head
        + pieces[0]
        + other[HEAD_BYTES + SEALED_BYTES : HEAD_BYTES + 2 * SEALED_BYTES]
        + pieces[2],
        "something behind": stored + b"x",
        "the head of another file": other[:HEAD_BYTES] + stored[HEAD_BYTES:],
    }
    for bytes_ in wrong.values():
        with pytest.raises(BlobDamaged, match="an encrypted file for"):
            decrypted(bytes_)
    with pytest.raises(BlobDamaged):
        decrypted(stored, CONTEXT.replace("input", "1-text"))
    with pytest.raises(BlobDamaged):
        decrypted(encrypted(b""), "another/input")


def test_a_plain_file_is_read_as_it_is() -> None:
    for content in (b"", b"x", b"%PDF-1.7 and more", MAGIC):
        file = io.BytesIO(content)
        assert CIPHER.decrypt(CONTEXT, file) is file
        assert FileCipher(EncryptionKeyring()).decrypt(CONTEXT, file) is file
        assert list(FileCipher(EncryptionKeyring()).encrypt(CONTEXT, [content])) == [content]


def test_a_missing_key_is_named() -> None:
    assert KEYRING.first is not None
    with pytest.raises(KeyMissing, match=KEYRING.first.id):
        decrypted(encrypted(b"bytes"), cipher=FileCipher(EncryptionKeyring()))


def test_memory_does_not_grow_with_the_file() -> None:
    def source() -> Iterable[bytes]:
        for _ in range(400):
            yield os.urandom(100_000)

    tracemalloc.start()
    size = 0
    for piece in CIPHER.encrypt(CONTEXT, source()):
        size += len(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size > 40_000_000
    assert peak < 2_000_000
