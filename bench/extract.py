"""Benchmark of the extractors: pages a second, beside a bare loop of the parser on the same file; and the start of an attempt.

Measured in CPU seconds, alternately, the median of the rounds. The bare loop does the least that could be called reading:
PDFium returns the text of its pages, expat parses without handlers, Pillow decodes. The ratio is what structure, counting,
cleaning, hashing, language and the thumbnail cost. A page is a page, a slide or a sheet; of other formats 3,000 characters.

The cost of isolation is the wall-clock time from the call to the response of an attempt that does nothing, with every parser
loaded; with all layers of this machine, and with those that need no namespace. The goal is 10 ms.
"""

from __future__ import annotations

import csv
import email
import io
import json
import statistics
import time
import zipfile
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from PIL import Image

from chaos.corpus.all import pdf_lines
from chaos.corpus.office import make_docx, make_odt, make_pptx, make_xlsx, paragraph, zipped
from chaos.corpus.others import draw, make_image, rtf_text
from chaos.corpus.pdf import make_pdf
from chaos.corpus.samples import SAMPLES
from fairlane import sandbox
from fairlane.extract import Limits, extract, warm

from .figures import Figure, Goal

SAMPLE = SAMPLES[1]
PARAGRAPHS = 600
PAGE_CHARACTERS = 3_000
LIMITS = Limits(ocr_pages_max=0)
START_MS_MAX = 10.0
WITHOUT = {"all layers": frozenset[str](), "without namespaces": sandbox.NAMESPACES}


class Case(NamedTuple):
    """A file, its number of pages, and the bare loop."""

    name: str
    content: bytes
    pages: float
    bare: Callable[[bytes], object]


def _pdf(content: bytes) -> object:
    import pypdfium2  # type: ignore[import-untyped]

    with pypdfium2.PdfDocument(content) as document:
        return [page.get_textpage().get_text_bounded() for page in document]


def _parts(content: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        for name in package.namelist():
            if name.endswith((".xml", ".rels")):
                expat.ParserCreate().Parse(package.read(name), True)


def _members(content: bytes) -> list[bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        return [package.read(name) for name in package.namelist()]


def _html(content: bytes) -> None:
    parser = HTMLParser()
    parser.feed(content.decode())
    parser.close()


def _picture(content: bytes) -> object:
    with Image.open(io.BytesIO(content)) as image:
        image.load()
        return image.resize((256, 256))


def _mail(content: bytes) -> object:
    return [part.get_payload(decode=True) for part in email.message_from_bytes(content).walk()]


def cases(share: float) -> list[Case]:
    """Make one file of each format; `share` makes all of them smaller."""
    count = max(20, int(PARAGRAPHS * share))
    lines = [SAMPLE.paragraph] * count
    text = "\n\n".join(lines)
    pages = len(text) / PAGE_CHARACTERS
    html = "<html><body>" + "".join(f"<p>{line} <a href='/x'>link</a></p>" for line in lines)
    mail = f"From: a@example.org\nSubject: x\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n\n{text}"
    odt = "".join(f"<text:p>{line}</text:p>" for line in lines)
    rtf = "{\\rtf1\\ansi\\ansicpg1250 " + "\\par\n".join(rtf_text(line, "cp1250") for line in lines) + "}"
    rows = "".join("<row>" + "".join(f"<c><v>{n * 7}</v></c>" for n in range(10)) + "</row>" for _ in range(count * 5))
    table = "\n".join(";".join(str(n * 7) for n in range(10)) for _ in range(count * 5))
    facts = json.dumps([SAMPLE._asdict()] * count, ensure_ascii=False)
    page = draw(pdf_lines(SAMPLE), (1240, 1754))
    return [
        Case("PDF", make_pdf([pdf_lines(SAMPLE) * 5] * (count // 12)), count // 12, _pdf),
        Case("DOCX", make_docx(SAMPLE, "".join(paragraph(line) for line in lines)), pages, _parts),
        Case("PPTX", make_pptx(SAMPLE), 2, _parts),
        Case("XLSX", make_xlsx(SAMPLE, rows), len(table) / PAGE_CHARACTERS, _parts),
        Case("ODT", make_odt(SAMPLE, odt), pages, _parts),
        Case("RTF", rtf.encode(), pages, lambda content: content.decode("cp1250")),
        Case("HTML", html.encode(), pages, _html),
        Case("e-mail", mail.encode(), pages, _mail),
        Case("text", text.encode(), pages, bytes.decode),
        Case(
            "CSV", table.encode(), len(table) / PAGE_CHARACTERS, lambda content: list(csv.reader(content.decode().split("\n")))
        ),
        Case("JSON", facts.encode(), len(facts) / PAGE_CHARACTERS, json.loads),
        Case("PNG", make_image(page, "PNG"), 1, _picture),
        Case("JPEG", make_image(page, "JPEG"), 1, _picture),
        Case("ZIP", zipped({f"{n}.txt": text for n in range(5)}), 5 * pages, _members),
    ]


def _bare(case: Case, path: Path) -> object:
    return case.bare(path.read_bytes())


def _seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def measure(share: float, rounds: int, folder: Path, advance: Callable[[], None]) -> list[Figure]:
    """Measure pages a second for every format, and the start of an attempt."""
    warm()
    figures = []
    for case in cases(share):
        path = folder / f"file.{case.name}"
        path.write_bytes(case.content)
        times: list[tuple[float, float]] = []
        for number in range(rounds + 1):
            scratch = folder / f"{case.name}-{number}"
            scratch.mkdir()
            own = _seconds(partial(extract, path, f"a.{case.name}", scratch, LIMITS))
            times.append((own, _seconds(partial(_bare, case, path))))
        own_seconds, bare_seconds = (max(statistics.median(column), 1e-6) for column in zip(*times[1:], strict=True))
        note = f"{len(case.content) / 1000:,.0f} kB, {own_seconds * 1000:.1f} ms a file"
        figures.append(
            Figure(f"extract {case.name}", case.pages / own_seconds, "pages/s", case.pages / bare_seconds, None, note)
        )
        advance()
    figures += [_start(name, rounds * 20) for name in WITHOUT]
    advance()
    return figures


def _start(name: str, rounds: int) -> Figure:
    """Measure an attempt that does nothing, from the call to its response, started as the built-in worker does."""
    fork_server = sandbox.SandboxForkServer.start("bench.nothing")
    marks = []
    for _ in range(rounds + 2):
        marks.append(time.perf_counter())
        sandbox.run_in_fork_server(fork_server, (), without=WITHOUT[name])
    fork_server.close()
    took = sorted(1000 * (end - began) for began, end in pairwise(marks[1:]))  # without the first, which forks a supervisor
    note = f"median; 99 of 100 within {took[min(len(took) - 1, len(took) * 99 // 100)]:.1f} ms"
    return Figure(f"start, {name}", statistics.median(took), "ms", START_MS_MAX, Goal(1, is_least=False), note)
