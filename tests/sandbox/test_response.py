"""What a confined process says is taken as it is, as far as it goes, and believed in nothing."""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane import sandbox

from .confined import QUICK, WITH_ALL_LAYERS, Caller, forked, outcome, run_of, tried


@WITH_ALL_LAYERS
@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xfe garbage",
        b"[" * 100_000,
        b'{"value": NaN}',
        b'{"value": 1, "code": "empty"}',
        b'{"code": "hacked", "detail": ""}',
        b'{"code": ["empty"], "detail": ""}',
        b'{"code": "empty", "detail": 3}',
        b'{"value": ' + b"9" * 5000 + b"}",
        b'["value", 1]',
        b'{"status": 0, "layer": "limits", "why": "lies"}\n',
    ],
)
def test_garbage_in_the_answer_is_a_crash(caller: Caller, scratch: Path, said: bytes) -> None:
    def work() -> None:
        for handle in range(3, 64):
            tried(os.pwrite, handle, struct.pack("<3Q", 0, 0, len(said)) + said, 0)
        os._exit(0)

    assert outcome(caller, work, scratch) == ["crashed", "the answer is garbage"]


@WITH_ALL_LAYERS
@pytest.mark.parametrize("lengths", [(0, 0, 2**63), (0, 0, 5_000_000), (1, 0, 2), (0, 2**64 - 1, 2), (2**63, 2**63, 2)])
def test_lengths_that_lie_are_a_crash(caller: Caller, scratch: Path, lengths: tuple[int, ...]) -> None:
    def work() -> None:
        for handle in range(3, 64):
            tried(os.pwrite, handle, struct.pack("<3Q", *lengths) + b'{"value": 1}', 0)
        os._exit(0)

    assert outcome(caller, work, scratch) == ["crashed", "the answer is garbage"]


@WITH_ALL_LAYERS
def test_an_answer_has_an_end(caller: Caller, scratch: Path) -> None:
    def work() -> list[object]:
        answer = next(handle for handle in range(3, 64) if tried(os.fstat, handle) is None)
        written = 0
        with contextlib.suppress(PermissionError):
            while True:
                written += os.write(answer, b"x" * 65536)
        more = [tried(os.write, answer, b"x" * 65536), *(tried(os.ftruncate, answer, size) for size in (6_000_000, 10))]
        return [written, more, tried(os.posix_fallocate, answer, 0, 6_000_000)]

    told, (written, *errors) = outcome(caller, work, scratch, replace(QUICK, parts_max=1_000_000))
    assert (told, errors) == ("value", [["EPERM"] * 3, "EPERM"])
    assert 4_900_000 < written < 5_000_100
    code, detail = outcome(caller, lambda: "x" * 5_000_000, scratch)
    assert (code, "answers with more than" in detail) == ("too_large", True)
    code, detail = outcome(caller, lambda: sandbox.Answer(1, (b"x" * 1_000_001,)), scratch, replace(QUICK, parts_max=1_000_000))
    assert (code, detail) == ("crashed", "the answer is garbage")  # it fits into the file, but not into what parts may take


def test_parts_arrive_as_they_were_sent(caller: Caller, scratch: Path) -> None:
    text, picture = "zażółć 🦊\n".encode() * 50_000, bytes(range(256)) * 1_000

    def call() -> object:
        bounds = replace(QUICK, parts_max=3_000_000)
        heard = run_of(caller)(lambda: sandbox.Answer([1], (text, picture)), scratch, bounds, without=caller.without)
        return [heard.value, heard.parts == (text, picture)]

    assert forked(caller, call) == [[1], True]
