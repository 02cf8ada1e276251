"""Benchmark of the structure of PDFs: shares of headings, tables, links and reading order, and the time a page takes.

Chromium prints twenty pages whose structure is known. pdfplumber and markitdown read the same files, where they are installed.
`python -m bench.pdf` needs Chromium.
"""

from __future__ import annotations

import importlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from chaos.corpus.pdf_score import Printed, print_pages, score_pages
from fairlane.extract import Limits, extract, warm

from .figures import Figure, Goal, show

LIMITS = Limits(ocr_pages_max=0, thumbnail_side=0)
GOALS = {"headings": 0.8, "tables": 0.9, "links": 1.0, "order": 0.9}
PAGE_MS_MAX = 10.0
ROUNDS = 15


def _read(path: Path) -> str:
    return extract(path, path.name, None, LIMITS).text


def _bare(path: Path) -> str:
    import pypdfium2  # type: ignore[import-untyped]

    with pypdfium2.PdfDocument(path) as document:
        return "\n\n".join(str(page.get_textpage().get_text_range()) for page in document)


def _pdfplumber(path: Path) -> str:
    """Read as pdfplumber's documentation shows: the text, then the tables."""
    with importlib.import_module("pdfplumber").open(path) as document:
        page = document.pages[0]
        rows = [
            "\n".join("| " + " | ".join((cell or "").replace("\n", " ") for cell in row) + " |" for row in table)
            for table in page.extract_tables()
        ]
        return "\n\n".join([page.extract_text(), *rows])


def _markitdown(path: Path) -> str:
    return str(importlib.import_module("markitdown").MarkItDown().convert(path).text_content)


def _converters() -> Iterator[tuple[str, Callable[[Path], str]]]:
    yield "fairlane", _read
    yield "bare PDFium", _bare
    for name, convert in (("pdfplumber", _pdfplumber), ("markitdown", _markitdown)):
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        yield name, convert


def _page_ms(printed: list[Printed], convert: Callable[[Path], str], rounds: int) -> float:
    """Return the milliseconds of processor time for the usual page."""
    took = []
    for _ in range(rounds):
        for _, path in printed:
            began = time.process_time()
            convert(path)
            took.append(1000 * (time.process_time() - began))
    return statistics.median(took)


def measure(folder: Path, rounds: int = ROUNDS) -> list[Figure]:
    """Measure every converter that is installed."""
    warm()
    printed = print_pages(folder)
    figures = []
    for name, convert in _converters():
        is_ours = convert is _read
        for what, share in score_pages(printed, convert).shares().items():
            figures.append(Figure(f"pdf {what}: {name}", share, "share", 1.0, Goal(GOALS[what]) if is_ours else None))
        milliseconds = _page_ms(printed, convert, rounds if name in ("fairlane", "bare PDFium") else 1)
        goal = Goal(1, is_least=False) if is_ours else None
        figures.append(Figure(f"pdf a page: {name}", milliseconds, "ms", PAGE_MS_MAX, goal, "processor time, the median page"))
    return figures


def main() -> None:
    os.nice(5)
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-pdf-") as folder:
        show(measure(Path(folder)))


if __name__ == "__main__":
    main()
