"""Benchmark of OCR: the share of words read, how sure it is, and processor time, by language and by what is wrong with a page.

Pages of known words in five languages, clean and with the defects that scanners and cameras make. `python -m bench.ocr` needs
the program tesseract with the five languages; `--language` reads one of them.
"""

from __future__ import annotations

import os
import resource
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
from PIL import Image
from rich.console import Console
from rich.table import Table

from chaos.corpus.pdf import make_scans
from chaos.corpus.scans import BY_LANGUAGE, DEFECTS, Letter, draw_page, draw_receipt, recall, words_of
from fairlane.extract import Limits, extract, warm


class Case(NamedTuple):
    """A file, and the words on it."""

    name: str
    content: Image.Image | bytes
    words: Counter[str]


class Measured(NamedTuple):
    """What came out of it."""

    recall: float
    confidence: float
    seconds: float


def cases(letter: Letter) -> Iterator[Case]:
    """Yield every page of a language."""
    page = draw_page(letter)
    for name, spoil in DEFECTS.items():
        yield Case(name, spoil(page), letter.words)
    yield Case("clean, 300 dpi", draw_page(letter, 300), letter.words)
    yield Case("small print, 75 dpi", draw_page(letter, 75), letter.words)
    yield Case("receipt", draw_receipt(letter), words_of("\n".join(letter.receipt)))
    mixed = [page, DEFECTS["skewed by -5°"](page), DEFECTS["turned by 180°"](page), DEFECTS["turned by 180°"](page)]
    times = Counter({word: count * len(mixed) for word, count in letter.words.items()})
    yield Case("PDF of four pages, clean to upside down", make_scans(mixed), times)


def measure(case: Case, path: Path) -> Measured:
    """Read one file."""
    if isinstance(case.content, bytes):
        path.write_bytes(case.content)
    else:
        case.content.save(path, "PNG", compress_level=1)
    began = _processor_seconds()
    result = extract(path, path.name, None, Limits(thumbnail_side=0))
    seconds = _processor_seconds() - began
    return Measured(recall(case.words, result.text), getattr(result, "ocr_confidence", None) or 0.0, seconds)


def _processor_seconds() -> float:
    """Return the processor time of this process and of all that it has started."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


@click.command()
@click.option("--language", "languages", multiple=True, type=click.Choice(list(BY_LANGUAGE)), help="May be repeated.")
@click.option("--rounds", default=1, show_default=True, help="The median of their times is shown.")
def main(languages: tuple[str, ...], rounds: int) -> None:
    """Measure OCR by language and by defect."""
    os.nice(5)
    warm()
    chosen = languages or tuple(BY_LANGUAGE)
    rows: dict[str, list[Measured]] = {}
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-ocr-") as folder:
        for language in chosen:
            for case in cases(BY_LANGUAGE[language]):
                found = [measure(case, Path(folder, "page")) for _ in range(rounds)]
                seconds = statistics.median(each.seconds for each in found)
                rows.setdefault(case.name, []).append(found[0]._replace(seconds=seconds))
    table = Table(title="share of words, and how sure OCR is", title_justify="left")
    for heading in ("page", *chosen, "CPU s"):
        table.add_column(heading, justify="left" if heading == "page" else "right")
    for name, measured in rows.items():
        mean = statistics.mean(each.seconds for each in measured)
        table.add_row(name, *(f"{each.recall:.3f} {each.confidence:.2f}" for each in measured), f"{mean:.2f}")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
