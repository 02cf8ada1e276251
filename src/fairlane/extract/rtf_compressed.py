"""Compressed RTF, the form in which Outlook keeps formatted texts."""

from __future__ import annotations

import struct

from .builder import ExtractionBuilder
from .failure import Unreadable

COMPRESSED, PLAIN = b"LZFu", b"MELA"
HEADER = 16
WINDOW = 4_096
COUNTED = 65_536  # bytes after which they are counted
# What the window holds at the beginning, for both sides: the commonest words of RTF.
PRESET = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript \fdecor MS Sans SerifSymbolArial"
    rb"Times New RomanCourier{\colortbl\red0\green0\blue0"
    b"\r\n"
    rb"\par \pard\plain\f0\fs20\b\i\u\tab\tx"
)


def decompress_rtf(builder: ExtractionBuilder, content: bytes) -> bytes:
    """Return the RTF, as far as it is there."""
    if len(content) < HEADER:
        raise Unreadable("corrupt", "compressed RTF without its header")
    (size,) = struct.unpack_from("<L", content, 4)
    kind = content[8:12]
    if kind == PLAIN:
        return content[HEADER : HEADER + size]
    if kind != COMPRESSED:
        raise Unreadable("corrupt", "compressed RTF of an unknown kind")
    return _unpack(builder, content)


def _unpack(builder: ExtractionBuilder, content: bytes) -> bytes:
    """Unpack references into the last 4096 bytes; one to the place that is written next is the end."""
    out = bytearray(PRESET)
    start, counted, position = len(PRESET), 0, HEADER
    while position < len(content):
        flags = content[position]
        position += 1
        for bit in range(8):
            if not flags >> bit & 1:
                out += content[position : position + 1]
                position += 1
                continue
            reference = int.from_bytes(content[position : position + 2], "big")
            position += 2
            offset, length = reference >> 4, (reference & 0xF) + 2
            here = len(out)
            distance = (here - offset) % WINDOW
            if not distance or position > len(content):
                return bytes(out[start:])
            for index in range(here - distance, here - distance + length):
                out.append(out[index] if index >= 0 else 0)
        if len(out) - counted > COUNTED:
            builder.meter.count_unpacked(len(out) - counted)
            counted = len(out)
    return bytes(out[start:])
