"""How each format of the corpus is written: the programs in turn, and what they can write.

To add a format, add its name to `FORMATS` with one or more ways to write it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from .content import COMPOSERS
from .model import Document
from .programs import Job, Programs

PRINTED = frozenset({"merged", "nested", "numbered", "links"})
IN_WORD = PRINTED | {"comments"}
FLAT_IN_WORD = IN_WORD - {"nested"}  # LibreOffice keeps no more of the levels of python-docx's styles than where they begin
BY_PANDOC = frozenset({"nested", "numbered", "links", "notes"})
SLIDES = frozenset({"merged", "nested", "links", "speech"})
PANDOC_SLIDES = frozenset({"nested", "numbered", "links", "speech"})
LATIN_GREEK_CYRILLIC = 7  # the languages that fonts of every program have
NO_RIGHT_TO_LEFT = 8


class Way(NamedTuple):
    """A way to write a file: the composer, what the programs can write, and the steps."""

    name: str
    composer: str
    features: frozenset[str]
    steps: tuple[str, ...]
    languages: int = 99
    columns_every: int = 0  # of so many files, one is in two columns


DOCX = ("python-docx:docx",)
PANDOC_ODT = ("markdown", "pandoc:md:odt")
FORMATS: dict[str, tuple[Way, ...]] = {
    "docx": (
        Way("python-docx", "text", IN_WORD, DOCX),
        Way("pandoc", "text", BY_PANDOC, ("markdown", "pandoc:md:docx")),
        Way("LibreOffice of HTML", "text", PRINTED, ("html", "soffice:html:odt", "soffice:odt:docx")),
        Way("LibreOffice of pandoc", "text", BY_PANDOC, (*PANDOC_ODT, "soffice:odt:docx")),
        Way("LibreOffice of python-docx", "text", IN_WORD, (*DOCX, "soffice:docx:odt", "soffice:odt:docx")),
    ),
    "odt": (
        Way("pandoc", "text", BY_PANDOC, PANDOC_ODT),
        Way("LibreOffice of python-docx", "text", FLAT_IN_WORD, (*DOCX, "soffice:docx:odt")),
        Way("LibreOffice of HTML", "text", PRINTED, ("html", "soffice:html:odt")),
    ),
    "rtf": (
        Way("pandoc", "text", BY_PANDOC, ("markdown", "pandoc:md:rtf")),
        Way("LibreOffice of python-docx", "text", FLAT_IN_WORD, (*DOCX, "soffice:docx:rtf")),
        Way("LibreOffice of pandoc", "text", BY_PANDOC, (*PANDOC_ODT, "soffice:odt:rtf")),
    ),
    "html": (
        Way("by hand", "text", PRINTED, ("html",)),
        Way("pandoc", "text", BY_PANDOC, ("markdown", "pandoc:md:html")),
        Way("LibreOffice of python-docx", "text", PRINTED - {"nested"}, (*DOCX, "soffice:docx:html")),
    ),
    "pptx": (
        Way("python-pptx", "slides", SLIDES, ("python-pptx:pptx",)),
        Way("pandoc", "slides", PANDOC_SLIDES, ("markdown", "pandoc:md:pptx")),
        Way("LibreOffice of python-pptx", "slides", SLIDES, ("python-pptx:pptx", "soffice:pptx:odp", "soffice:odp:pptx")),
    ),
    "xlsx": (
        Way("openpyxl", "sheets", frozenset(), ("openpyxl:xlsx",)),
        Way("XlsxWriter", "sheets", frozenset(), ("xlsxwriter:xlsx",)),
        Way("LibreOffice of openpyxl", "sheets", frozenset(), ("openpyxl:xlsx", "soffice:xlsx:ods", "soffice:ods:xlsx")),
    ),
    "pdf": (
        Way("Chromium", "text", PRINTED, ("html", "chromium:html:pdf"), NO_RIGHT_TO_LEFT, 3),
        Way("wkhtmltopdf", "text", PRINTED, ("html", "wkhtmltopdf:html:pdf"), NO_RIGHT_TO_LEFT),
        Way("LibreOffice of HTML", "text", PRINTED, ("html", "soffice:html:pdf"), LATIN_GREEK_CYRILLIC),
        Way("LibreOffice of python-docx", "text", PRINTED - {"links"}, (*DOCX, "soffice:docx:pdf"), LATIN_GREEK_CYRILLIC),
        Way("LibreOffice of pandoc", "text", PRINTED - {"merged"}, (*PANDOC_ODT, "soffice:odt:pdf"), LATIN_GREEK_CYRILLIC),
        Way("ReportLab", "text", PRINTED, ("reportlab:pdf",), LATIN_GREEK_CYRILLIC),
    ),
    "eml": (Way("by hand", "text", PRINTED, ("mail",)),),
    "md": (Way("by hand", "text", frozenset({"nested", "numbered", "links"}), ("markdown",)),),
    "txt": (Way("by hand", "text", frozenset(), ("text",)),),
    "csv": (Way("by hand", "sheets", frozenset(), ("csv",)),),
    "ods": (Way("LibreOffice of openpyxl", "sheets", frozenset(), ("openpyxl:xlsx", "soffice:xlsx:ods")),),
    "odp": (Way("LibreOffice of python-pptx", "slides", SLIDES, ("python-pptx:pptx", "soffice:pptx:odp")),),
    "epub": (Way("pandoc", "text", BY_PANDOC, ("markdown", "pandoc:md:epub")),),
    "xls": (Way("LibreOffice of openpyxl", "sheets", frozenset(), ("openpyxl:xlsx", "soffice:xlsx:xls")),),
    "doc": (Way("LibreOffice of python-docx", "text", PRINTED - {"nested"}, (*DOCX, "soffice:docx:doc")),),
    "ppt": (Way("LibreOffice of python-pptx", "slides", SLIDES, ("python-pptx:pptx", "soffice:pptx:ppt")),),
}


class Sample(NamedTuple):
    """A written file: what it says, how it was written, and the half of the corpus that it is in."""

    path: Path
    document: Document
    way: str
    is_kept_aside: bool


def write_corpus(programs: Programs, formats: tuple[str, ...], count: int, folder: Path) -> dict[str, list[Sample]]:
    """Write so many files of each format, the ways in turn."""
    corpus = {}
    for name in formats:
        ways = FORMATS[name]
        samples = []
        for index, way in enumerate(ways):
            inside = folder / name / f"{index}"
            inside.mkdir(parents=True, exist_ok=True)
            jobs = []
            for number in range(index, count, len(ways)):
                document = COMPOSERS[way.composer](number, way.features, *([way.languages] if way.composer == "text" else []))
                is_in_columns = bool(way.columns_every) and (number // len(ways)) % way.columns_every == 1
                jobs.append(Job(number, document, inside / f"{number:03d}", is_in_columns))
            for step in () if all(job.file(name).exists() for job in jobs) else way.steps:
                programs.write(step, jobs)
            samples += [
                Sample(job.file(name), job.document, way.name, bool(job.number // len(ways) % 2))
                for job in jobs
                if job.file(name).exists()
            ]
        corpus[name] = samples
    return corpus
