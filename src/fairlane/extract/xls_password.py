"""Workbooks locked with the password that Excel tries by itself, so that people open them without being asked for one.

Excel locks workbooks in this way whose structure is protected. Those with any other password, or another cipher, stay locked.
"""

from __future__ import annotations

import struct
from hashlib import md5

from .builder import ExtractionBuilder
from .failure import Unreadable

PASSWORD = "VelvetSweatshop"  # noqa: S105 - published by Microsoft
RC4 = (1, 1, 1)  # the cipher, and its version
BLOCK = 1_024  # bytes that share a key
KEY = 5
OPEN_RECORDS = (0x0809, 0x2F, 0xE1, 0x0194, 0x0195, 0x0196, 0x0138)
SHEET, OPEN_IN_SHEET = 0x85, 4  # a record whose first bytes are not locked
_RECORD = struct.Struct("<2H")


def _key_stream(key: bytes, length: int) -> bytes:
    """Return what RC4 adds to a text of this length."""
    state = list(range(256))
    other = 0
    for index in range(256):
        other = (other + state[index] + key[index % len(key)]) & 0xFF
        state[index], state[other] = state[other], state[index]
    stream = bytearray(length)
    first = second = 0
    for position in range(length):
        first = (first + 1) & 0xFF
        value = state[first]
        second = (second + value) & 0xFF
        state[first], state[second] = state[second], value
        stream[position] = state[(state[first] + value) & 0xFF]
    return bytes(stream)


def _combine(content: bytes, stream: bytes) -> bytes:
    return (int.from_bytes(content, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(content), "big")


class _Lock:
    """The password and the salt of a workbook."""

    def __init__(self, salt: bytes) -> None:
        word = md5(PASSWORD.encode("utf-16-le"), usedforsecurity=False).digest()[:KEY]
        self._base = md5((word + salt) * 16, usedforsecurity=False).digest()[:KEY]

    def stream(self, block: int, length: int) -> bytes:
        return _key_stream(md5(self._base + struct.pack("<L", block), usedforsecurity=False).digest(), length)


def unlock(builder: ExtractionBuilder, content: bytes, start: int) -> bytes:
    """Return the stream of a workbook without its lock, which is at `start`; refuse one with a password of its own."""
    try:
        *cipher, salt, proof, digest = struct.unpack_from("<3H16s16s16s", content, start)
    except struct.error:
        cipher = []
    if tuple(cipher) != RC4:
        raise Unreadable("encrypted", "a workbook with a password")
    lock = _Lock(salt)
    opened = _combine(proof + digest, lock.stream(0, len(proof + digest)))
    if md5(opened[: len(proof)], usedforsecurity=False).digest() != opened[len(proof) :]:
        raise Unreadable("encrypted", "a workbook with a password")
    pieces: list[bytes] = []
    for block, begin in enumerate(range(0, len(content), BLOCK)):
        builder.meter.check_time()
        piece = content[begin : begin + BLOCK]
        pieces.append(_combine(piece, lock.stream(block, len(piece))))
    unlocked = bytearray().join(pieces)
    position = 0
    while position + _RECORD.size <= len(content):
        kind, length = _RECORD.unpack_from(content, position)
        end = position + _RECORD.size + (length if kind in OPEN_RECORDS else OPEN_IN_SHEET if kind == SHEET else 0)
        unlocked[position:end] = content[position:end]
        position += _RECORD.size + length
    return bytes(unlocked)
