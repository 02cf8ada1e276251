"""Frames: however they are cut, and what is not one."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.procs.ipc import FRAME_BYTES_MAX, BadFrame, FrameDecoder, encode_frame


def test_frames_come_out_as_they_went_in_however_they_are_cut() -> None:
    messages: list[list[Any]] = [["a"], ["b", {"x": "ä\ud800"}], ["c", "y" * 70_000]]
    sent = b"".join(map(encode_frame, messages))
    for size in (1, 7, 4096, len(sent)):
        decoder = FrameDecoder()
        received = [message for start in range(0, len(sent), size) for message in decoder.feed(sent[start : start + size])]
        assert received == messages


@pytest.mark.parametrize("sent", [b"\xff\xff\xff\xff", b"\0\0\0\2{]", b"\0\0\0\2{}", b"\0\0\0\2[]"])
def test_what_is_no_frame_is_refused(sent: bytes) -> None:
    received = FrameDecoder().feed(encode_frame(["before"]) + sent)
    assert next(received) == ["before"]
    with pytest.raises(BadFrame):
        next(received)


def test_a_message_that_is_too_large_is_refused_by_the_sender() -> None:
    with pytest.raises(BadFrame, match="at most"):
        encode_frame(["x" * FRAME_BYTES_MAX])
