"""Lines, limits and tracebacks of handlers' output, alone."""

from __future__ import annotations

from fairlane.worker.output import (
    LINE_LENGTH_MAX,
    LINES_A_SECOND,
    LINES_AT_ONCE,
    TRACEBACK_LENGTH_MAX,
    LineLimit,
    LineSplitter,
    format_traceback,
    split_crash,
)


def test_bytes_become_lines_however_they_arrive() -> None:
    splitter = LineSplitter()
    assert splitter.feed("Grü".encode()[:-1]) == []
    assert splitter.feed("ü".encode()[1:] + b"n\n\nlast") == ["Grün", ""]
    assert splitter.feed(b" line\r\n 10 %\r 50 %\r100 %\nend") == ["last line", "100 %"]
    assert splitter.flush() == ["end"]
    assert splitter.flush() == []


def test_an_endless_line_is_cut_and_never_kept_whole() -> None:
    splitter = LineSplitter()
    lines = splitter.feed(b"x" * (10 * LINE_LENGTH_MAX + 5)) + splitter.flush()
    assert "".join(lines) == "x" * (10 * LINE_LENGTH_MAX + 5)
    assert max(map(len, lines)) == LINE_LENGTH_MAX


def test_a_flood_passes_in_part_and_what_is_dropped_is_counted() -> None:
    now = 0.0
    limit = LineLimit(lambda: now)
    assert [limit.admit(10) for _ in range(LINES_AT_ONCE)] == [0] * LINES_AT_ONCE
    assert [limit.admit(10) for _ in range(50)] == [None] * 50
    now = 1.0
    assert limit.admit(10) == 50
    assert sum(limit.admit(10) is not None for _ in range(LINES_AT_ONCE)) == LINES_A_SECOND - 1
    assert limit.take_dropped() == LINES_AT_ONCE - LINES_A_SECOND + 1
    assert limit.take_dropped() == 0
    now = 10_000.0
    assert sum(limit.admit(10) is not None for _ in range(3 * LINES_AT_ONCE)) == LINES_AT_ONCE
    limit.reset()
    assert sum(limit.admit(LINE_LENGTH_MAX) is not None for _ in range(LINES_AT_ONCE)) < LINES_AT_ONCE / 10


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_of_a_long_traceback_the_newest_part_is_kept() -> None:
    def even(depth: int) -> None:
        odd(depth - 1)

    def odd(depth: int) -> None:
        if depth <= 0:
            raise KeyError("the last word \0 \ud800")
        even(depth - 1)

    try:
        even(200)
    except KeyError as error:
        text = format_traceback(error)
    assert text is not None
    assert len(text) <= TRACEBACK_LENGTH_MAX + 10
    assert text.startswith("…\n")
    assert text.endswith("KeyError: 'the last word \\x00 \\ud800'")
    assert "Unprintable" in str(format_traceback(Unprintable()))


def test_a_crash_is_split_into_output_and_traceback() -> None:
    assert split_crash("a\nb\n") == ("a\nb", None)
    crash = 'Fatal Python error: Segmentation fault\n\n  File "x.py", line 1 in work'
    assert split_crash(f'page 7\n{crash}\n  File "child.py", line 9 in run_handler\n  more\n') == ("page 7", crash)
