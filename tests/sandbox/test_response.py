"""The response of a confined process arrives as it was sent, up to its limit, and nothing in it is trusted."""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import replace

import pytest

from fairlane import sandbox

from .harness import QUICK, WITH_ALL_LAYERS, Caller, call_in_fork, error_name, outcome, run


@WITH_ALL_LAYERS
@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe garbage",
        b"[" * 100_000,
        b'{"value": NaN}',
        b'{"value": 1, "code": "empty"}',
        b'{"code": ["empty"], "detail": ""}',
        b'{"code": "empty", "detail": 3}',
        b'{"value": ' + b"9" * 5000 + b"}",
        b'["value", 1]',
        b'{"status": 0, "layer": "limits", "why": "lies"}\n',
    ],
)
def test_a_malformed_response_is_a_crash(caller: Caller, body: bytes) -> None:
    def work() -> None:
        for handle in range(3, 64):
            error_name(os.pwrite, handle, struct.pack("<3Q", 0, 0, len(body)) + body, 0)
        os._exit(0)

    assert outcome(caller, work) == ["crashed", "the response is malformed"]


@WITH_ALL_LAYERS
@pytest.mark.parametrize("lengths", [(0, 0, 2**63), (0, 0, 5_000_000), (1, 0, 2), (0, 2**64 - 1, 2), (2**63, 2**63, 2)])
def test_lengths_that_lie_are_a_crash(caller: Caller, lengths: tuple[int, ...]) -> None:
    def work() -> None:
        for handle in range(3, 64):
            error_name(os.pwrite, handle, struct.pack("<3Q", *lengths) + b'{"value": 1}', 0)
        os._exit(0)

    assert outcome(caller, work) == ["crashed", "the response is malformed"]


@WITH_ALL_LAYERS
def test_a_response_has_an_end(caller: Caller) -> None:
    def work() -> list[object]:
        response_file = next(handle for handle in range(3, 64) if error_name(os.fstat, handle) is None)
        written = 0
        with contextlib.suppress(PermissionError):
            while True:
                written += os.write(response_file, b"x" * 65536)
        more = [
            error_name(os.write, response_file, b"x" * 65536),
            *(error_name(os.ftruncate, response_file, size) for size in (6_000_000, 10)),
        ]
        return [written, more, error_name(os.posix_fallocate, response_file, 0, 6_000_000)]

    code, (written, *errors) = outcome(caller, work, replace(QUICK, parts_max=1_000_000))
    assert (code, errors) == ("value", [["EPERM"] * 3, "EPERM"])
    assert 4_900_000 < written < 5_000_100
    code, detail = outcome(caller, lambda: "x" * 5_000_000)
    assert (code, "its response has more than" in detail) == ("too_large", True)
    code, detail = outcome(caller, lambda: sandbox.Response(1, (b"x" * 1_000_001,)), replace(QUICK, parts_max=1_000_000))
    assert (code, detail) == ("crashed", "the response is malformed")  # it fits into the file, but not into what parts may take


def test_parts_arrive_as_they_were_sent(caller: Caller) -> None:
    text, picture = "zażółć 🦊\n".encode() * 50_000, bytes(range(256)) * 1_000

    def call() -> object:
        limits = replace(QUICK, parts_max=3_000_000)
        response = run(caller, lambda: sandbox.Response([1], (text, picture)), limits)
        return [response.value, response.parts == (text, picture)]

    assert call_in_fork(caller, call) == [[1], True]
