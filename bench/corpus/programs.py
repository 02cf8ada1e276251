"""Programs that write or convert files: pandoc, LibreOffice, Chromium, wkhtmltopdf, and Python libraries of an environment.

A program that is missing is named once, with what to install; its files are left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.chromium import chromium
from tests.system import why_missing

from .markup import html_of, markdown_of, style_sheet
from .model import Document, to_json
from .plain import write_csv, write_mail, write_plain

ROOT = Path(__file__).resolve().parents[2]
BATCH = 40  # files that one start of LibreOffice converts
SECONDS_MAX = 600
FILTERS = {
    "docx": "docx:MS Word 2007 XML",
    "odt": "odt:writer8",
    "rtf": "rtf:Rich Text Format",
    "doc": "doc:MS Word 97",
    "html": "html:HTML (StarWriter)",
    "pdf": "pdf:writer_pdf_Export",
    "xls": "xls:MS Excel 97",
    "ppt": "ppt:MS PowerPoint 97",
}


class Job(NamedTuple):
    """A file to be written: its number, the composed document, and where it is until now."""

    number: int
    document: Document
    path: Path  # without suffix
    is_in_columns: bool = False

    def file(self, suffix: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{suffix}")


class Programs:
    """The programs of this machine; `python` is the Python of an environment with the libraries."""

    def __init__(self, python: Path | None) -> None:
        self.python = python
        self.missing: dict[str, str] = {}

    def has(self, program: str, package: str) -> bool:
        """Whether a program is installed; note what to install if not."""
        if shutil.which(program) is not None:
            return True
        self.missing[program] = f"{program} is not installed (Debian: {package})"
        return False

    def write(self, step: str, jobs: list[Job]) -> None:
        """Take one step for some files: write them from their content, or convert them (`pandoc:docx`, `soffice:docx:odt`)."""
        program, *suffixes = step.split(":")
        if program in SELF_WRITTEN:
            for job in jobs:
                SELF_WRITTEN[program](job)
        elif program == "pandoc":
            self._pandoc(jobs, *suffixes)
        elif program == "soffice":
            self._soffice(jobs, *suffixes)
        elif program == "chromium":
            self._chromium(jobs)
        elif program == "wkhtmltopdf":
            self._wkhtmltopdf(jobs)
        else:
            self._library(program, suffixes[0], jobs)

    def _library(self, writer: str, suffix: str, jobs: list[Job]) -> None:
        if self.python is None:
            self.missing[writer] = f"{writer} is not used: name an environment that has it with --python"
            return
        listed = [
            {"path": str(job.file(suffix)), "writer": writer, "seed": job.number, "document": to_json(job.document)}
            for job in jobs
        ]
        path = jobs[0].path.with_name(f"{writer}-jobs.json")
        path.write_text(json.dumps(listed), encoding="utf-8")
        ran = subprocess.run(
            [self.python, "-m", "bench.corpus.office", path], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for line in filter(None, ran.stdout.splitlines()):
            self.missing[writer] = line

    def _pandoc(self, jobs: list[Job], source: str, target: str) -> None:
        if self.has("pandoc", "pandoc"):
            kind = ["--from", "markdown-auto_identifiers", "--slide-level=1"] if source == "md" else []
            for job in jobs:
                command: list[str | Path] = ["pandoc", *kind, "--standalone", job.file(source), "-o", job.file(target)]
                subprocess.run(command, capture_output=True, check=True, timeout=SECONDS_MAX)

    def _soffice(self, jobs: list[Job], source: str, target: str) -> None:
        if not self.has("soffice", "libreoffice-writer-nogui, -calc-nogui and -impress-nogui"):
            return
        folder = jobs[0].path.parent
        options = ["--headless", f"-env:UserInstallation=file://{folder}/libreoffice"]
        options += ["--infilter=HTML (StarWriter)"] if source == "html" else []
        is_text = source in ("docx", "odt", "rtf", "html", "doc")
        kind = FILTERS[target] if target in FILTERS and (is_text or target in ("xls", "ppt")) else target
        for begin in range(0, len(jobs), BATCH):
            files = [job.file(source) for job in jobs[begin : begin + BATCH] if job.file(source).exists()]
            command: list[str | Path] = ["soffice", *options, "--convert-to", kind, "--outdir", folder, *files]
            subprocess.run(command, capture_output=True, check=True, timeout=SECONDS_MAX)

    def _chromium(self, jobs: list[Job]) -> None:
        if (missing := why_missing("chromium")) is not None:
            self.missing["chromium"] = missing
            return
        with chromium() as browser:
            tab = browser.new_page()
            for job in jobs:
                tab.set_content(job.file("html").read_text(encoding="utf-8"))
                tab.pdf(path=job.file("pdf"), prefer_css_page_size=True, print_background=True, tagged=job.number % 4 == 0)

    def _wkhtmltopdf(self, jobs: list[Job]) -> None:
        if self.has("wkhtmltopdf", "wkhtmltopdf"):
            environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
            for job in jobs:
                command: list[str | Path] = ["wkhtmltopdf", "--quiet", job.file("html"), job.file("pdf")]
                subprocess.run(command, capture_output=True, check=True, timeout=SECONDS_MAX, env=environment)


def _write_html(job: Job) -> None:
    columns = 2 if job.is_in_columns else 1
    job.file("html").write_text(html_of(job.document, style_sheet(job.number), columns), encoding="utf-8")


def _write_markdown(job: Job) -> None:
    job.file("md").write_text(markdown_of(job.document), encoding="utf-8")


SELF_WRITTEN: dict[str, Callable[[Job], None]] = {
    "html": _write_html,
    "markdown": _write_markdown,
    "mail": lambda job: write_mail(job.file("eml"), job.document, job.number),
    "text": lambda job: write_plain(job.file("txt"), job.document, job.number),
    "csv": lambda job: write_csv(job.file("csv"), job.document, job.number),
}


def default_python() -> Path | None:
    """Return this Python if it has one of the libraries."""
    from importlib.util import find_spec

    names = ("docx", "pptx", "openpyxl", "reportlab", "markitdown")
    return Path(sys.executable) if any(find_spec(name) for name in names) else None
