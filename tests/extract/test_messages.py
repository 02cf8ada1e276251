"""Every code has a text in five languages, and no text is left over."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

import fairlane.extract as package
from fairlane.extract import (
    CAN_RETRY,
    LANGUAGES,
    WARNING_CODES,
    Code,
    Unreadable,
    failure_code,
    failure_text,
    warning_text,
)
from fairlane.extract.messages import FOLDER, catalog

KEYS = {f"failure.{code}" for code in get_args(Code)} | {f"warning.{code}" for code in WARNING_CODES}
SOURCE = {path.name: path.read_text(encoding="utf-8") for path in Path(package.__file__).parent.glob("*.py")}
CALLER_ONLY = {"crashed"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_is_missing_unused_or_the_same_as_in_english(language: str) -> None:
    texts = catalog(language)
    assert set(texts) == KEYS
    assert list(texts) == list(catalog("en")), "in the same order, so that they can be read side by side"
    for key, text in texts.items():
        assert text[0].isupper() or text[0] in "¿¡"
        assert text.endswith(".")
        assert language == "en" or text != catalog("en")[key]


def test_there_is_a_catalog_for_each_language_and_no_other() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(LANGUAGES)


@pytest.mark.parametrize("code", WARNING_CODES)
def test_every_warning_is_given_somewhere(code: str) -> None:
    assert [name for name, text in SOURCE.items() if f'warn("{code}"' in text]


@pytest.mark.parametrize("code", get_args(Code))
def test_every_code_is_used_and_says_whether_a_retry_can_help(code: Code) -> None:
    assert [name for name, text in SOURCE.items() if f'Unreadable("{code}"' in text]
    assert Unreadable(code).can_retry is CAN_RETRY[code]
    assert CAN_RETRY[code] is (code in ("timed_out", "queue_full", "crashed"))


def test_codes_in_the_source_are_known() -> None:
    used = {code for text in SOURCE.values() for code in re.findall(r'Unreadable\("(\w+)"', text)}
    assert used == set(get_args(Code))


def test_texts_are_found_by_code_and_fall_back_to_english() -> None:
    assert failure_text("encrypted", "pl") == "Plik jest zabezpieczony hasłem. Prosimy wysłać go bez hasła."
    assert warning_text("no_text", "de") == "Es wurde kein Text gefunden."
    assert failure_text("empty", "fi") == failure_text("empty", "en")


def test_details_are_one_printable_line() -> None:
    failure = Unreadable("corrupt", "a\nb\0c" + "x" * 10_000)
    assert failure.detail.startswith("a b c")
    assert len(failure.detail) <= 300
    assert str(failure) == f"corrupt: {failure.detail}"


def test_the_code_is_found_in_a_reason_and_nothing_else_is_taken_for_one() -> None:
    assert failure_code("encrypted") == "encrypted"
    assert failure_code("too_large: has more than 5 cells") == "too_large"
    assert failure_code("attempt 3 of 3 failed: crashed: killed by SIGSEGV") == "crashed"
    for reason in (None, "", "the worker stopped", "encrypted files are not read", "ValueError: corrupt: x", "emptyish: y"):
        assert failure_code(reason) is None
