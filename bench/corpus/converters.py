"""The converters that are compared: Fairlane in this process, pandoc, and markitdown in an environment of its own."""

from __future__ import annotations

import contextlib
import importlib
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

PANDOC_READS = {"docx", "odt", "rtf", "html", "md", "csv", "epub"}
SECONDS_MAX = 120


class Outcome(NamedTuple):
    """What a converter made of a file: Markdown, or why there is none; and the seconds of processor time."""

    markdown: str
    failure: str
    seconds: float


def by_fairlane(path: Path) -> Outcome:
    """Read a file as the built-in worker does, without a picture and OCR."""
    from fairlane.extract import Limits, Unreadable, extract

    with tempfile.TemporaryDirectory(prefix="fairlane-bench-members-") as scratch:
        began = time.process_time()
        try:
            markdown = extract(path, path.name, Path(scratch), Limits(ocr_pages_max=0, thumbnail_side=0)).text
            return Outcome(markdown, "", time.process_time() - began)
        except Unreadable as failure:
            return Outcome("", failure.code, time.process_time() - began)


def by_pandoc(path: Path) -> Outcome:
    """Read a file with pandoc, a program that starts for each file."""
    suffix = path.suffix[1:]
    if suffix not in PANDOC_READS or shutil.which("pandoc") is None:
        return Outcome("", "unsupported", 0.0)
    source = "markdown" if suffix == "md" else suffix
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    command: list[str | Path] = ["pandoc", f"--from={source}", "--to=gfm", "--wrap=none", path]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
    return Outcome(ran.stdout, "" if ran.returncode == 0 else "failed", seconds)


def all_by_markitdown(python: Path, paths: list[Path], folder: Path) -> dict[Path, Outcome]:
    """Read all files with markitdown, in one process of the environment that has it; nothing if it has not."""
    listed, result = folder / "markitdown-files.json", folder / "markitdown.json"
    listed.write_text(json.dumps([str(path) for path in paths]), encoding="utf-8")
    command: list[str | Path] = [python, "-m", "bench.corpus.converters", listed, result]
    ran = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    if ran.returncode:
        return {}
    return {Path(path): Outcome(*values) for path, values in json.loads(result.read_text(encoding="utf-8")).items()}


def _by_markitdown(paths: Iterable[str]) -> dict[str, Outcome]:
    converter = importlib.import_module("markitdown").MarkItDown(enable_plugins=False)
    outcomes = {}
    for path in paths:
        began = time.process_time()
        try:
            outcomes[path] = Outcome(str(converter.convert(path).text_content), "", time.process_time() - began)
        except Exception as error:  # noqa: BLE001 - every error is an outcome
            outcomes[path] = Outcome("", type(error).__name__, time.process_time() - began)
    return outcomes


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        converted = _by_markitdown(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(converted), encoding="utf-8")
