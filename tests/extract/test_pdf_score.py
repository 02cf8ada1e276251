"""The structure of PDFs that another program printed comes out: a floor for each kind, over twenty pages."""

from __future__ import annotations

import re
from pathlib import Path

import pypdfium2  # type: ignore[import-untyped]
import pytest

from chaos.corpus.pdf_pages import PAGES, Grid, Heading, PrintedPage, Words
from chaos.corpus.pdf_score import Printed, print_pages, score, score_pages
from fairlane.extract import Limits, extract
from tests.conftest import need_program

FLOORS = {"headings": 0.95, "tables": 0.95, "links": 1.0, "order": 0.95}
LIMITS = Limits(ocr_pages_max=0, thumbnail_side=0)
_MARKS = re.compile(r"^#+ |^\s*(?:-|\d+\.) |\]\([^)]*\)|\[|^\|? ?---.*$", re.MULTILINE)
_DRAWN = re.compile(r"^\s*\d+\.\s", re.MULTILINE)


def convert(path: Path) -> str:
    return extract(path, path.name, None, LIMITS).text


def words(text: str) -> list[str]:
    return sorted(re.findall(r"\w+", text))


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[Printed]:
    need_program("chromium")
    return print_pages(tmp_path_factory.mktemp("printed"))


def test_shares_of_what_is_found(printed: list[Printed]) -> None:
    shares = score_pages(printed, convert).shares()
    assert len(printed) == 20
    assert all(shares[name] >= floor for name, floor in FLOORS.items()), shares


def test_printed_words_are_all_there_once(printed: list[Printed]) -> None:
    for _, path in printed:
        with pypdfium2.PdfDocument(path) as document:
            expected = document[0].get_textpage().get_text_range()
        assert words(_MARKS.sub(" ", convert(path))) == words(_DRAWN.sub("", expected.replace("\r\n", "\n"))), path.name


def test_the_score_counts_what_is_missing_and_what_is_wrong() -> None:
    page = PrintedPage("x", "", (Heading(1, "One"), Words("some words", ("words", "t")), Grid((("a", "b"), ("c", "d")))))
    whole = "# One\n\nsome [words](t)\n\n| a | b |\n| --- | --- |\n| c | d |"
    assert set(score(page, whole).shares().values()) == {1.0}
    assert set(score(page, "One\n\nsome\nwords\n\na b\nc d").shares().values()) == {0.0}
    assert score(page, whole + "\n\n# Two").headings == (0, 1)
    assert score(page, whole.replace("| c | d |", "| c d |")).tables == (0.5, 1)
    assert {grid.style.split()[0] for page in PAGES for grid in page.flat() if isinstance(grid, Grid)} >= {
        "ruled",
        "rows",
        "plain",
    }
