"""Text that other people wrote is safe to print."""

from __future__ import annotations

import pytest

from fairlane.printable import printable, printable_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Zażółć gęślą jaźń ✓ 発注", "Zażółć gęślą jaźń ✓ 発注"),
        ("a\x1b[2Jb\x9b31mc\x07", "a\ufffd[2Jb\ufffd31mc\ufffd"),
        ("one\ntwo\rthree\u2028four", "one\ufffdtwo\ufffdthree\ufffdfour"),
        ("1\u202f000\xa0kg\u3000", "1 000 kg "),
        ("invoice\u202efdp.exe", "invoice\ufffdfdp.exe"),
        ("\ud800", "\ufffd"),
    ],
)
def test_what_cannot_be_seen_is_replaced(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(text).isprintable()


def test_lines_stay_lines_and_nothing_else_makes_one() -> None:
    assert printable_lines("a\tb\r\n\x1b[1mc\u2028d\x85\n") == "a       b\n\ufffd[1mc\ufffdd\ufffd\n"
