"""Benchmark of the pipeline: what the queue and the sandbox cost on top of extracting a document.

The same files on both cores: in a bare loop in two fresh processes, which call `extract` and write text, facts and thumbnail to
three files (`bench/loop.py`); and through a queue on SQLite by the built-in worker with its four slots, every attempt
confined, text, facts and thumbnail stored and synced.

The files are of six formats, each with headings, paragraphs, lists and tables, repeated until extraction takes about 100 ms.
Formats differ in how much memory they need and how much text they write, and so in what sandbox and queue cost: no single
format speaks for all.

A round runs the bare loop and right after it the queue; the result is the median round by the ratio of the two. So a machine
that is slow for a minute slows both, a brief disturbance spoils one round of many, and every round has a worker of its own.

The time of the queue is from the first claim to the last ending, by the store's clock, so the start of the worker and
submitting do not count; the time of submitting and the CPU seconds of everything, starts included, are reported beside it.

Nothing is removed between rounds: ext4 creates files more slowly for minutes after others were deleted.
"""

from __future__ import annotations

import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from chaos.corpus.all import pdf_lines
from chaos.corpus.office import make_docx, make_odt, make_xlsx, odt_content, word_body
from chaos.corpus.others import make_html, make_rtf
from chaos.corpus.pdf import make_pdf
from fairlane import Input, Queue
from fairlane.extract import extract, warm
from fairlane.procs.syscalls import become_subreaper

from .extract import SAMPLE
from .figures import Figure, Goal

CORES = 2
FILE_SECONDS = 0.1
SIZING_TURNS = 6
ROUNDS = 9
SHARE_LEAST = 1 / 1.15  # of the bare speed
_ROW = "<row>" + "".join(f'<c t="s"><v>{n % 4}</v></c><c><v>{n * 7}</v></c>' for n in range(5)) + "</row>"
FILES: dict[str, Callable[[int], bytes]] = {  # of so many pages, samples or rows
    "a.pdf": lambda pages: make_pdf([pdf_lines(SAMPLE) * 5] * pages),
    "a.docx": lambda times: make_docx(SAMPLE, word_body(SAMPLE) * times),
    "a.xlsx": lambda rows: make_xlsx(SAMPLE, _ROW * rows),
    "a.odt": lambda times: make_odt(SAMPLE, odt_content(SAMPLE) * times),
    "a.html": lambda times: make_html(SAMPLE, times=times),
    "a.rtf": lambda times: make_rtf(SAMPLE, 1250, times),
}


class SampleFile(NamedTuple):
    """A file, and its number of pages."""

    path: Path
    pages: int


class Round(NamedTuple):
    """Seconds of the same files in the bare loop, through the queue and for submitting; and the ratio of CPU seconds."""

    bare: float
    queued: float
    submitting: float
    cpu: float

    @property
    def ratio(self) -> float:
        """How many times as long as the bare loop the queue took."""
        return self.queued / self.bare


def _make_files(folder: Path) -> list[SampleFile]:
    """Make a file of each format that takes about 100 ms.

    Formats alternate, and the quickest time of each counts: else a slow second would make a file too short.
    """
    sizes = dict.fromkeys(FILES, 40)
    quickest = dict.fromkeys(FILES, math.inf)  # seconds a page, sample or row
    pages: dict[str, int] = {}
    for _ in range(SIZING_TURNS):
        for name, make in FILES.items():
            path = folder / name
            path.write_bytes(make(sizes[name]))
            for _ in range(3):
                began = time.process_time()
                pages[name] = len(extract(path, name).pages)
                quickest[name] = min(quickest[name], (time.process_time() - began) / sizes[name])
            sizes[name] = max(1, round(FILE_SECONDS / quickest[name]))
    return [SampleFile(folder / name, pages[name]) for name in FILES]


def _run_bare(files: list[SampleFile]) -> float:
    """Return the seconds of the bare loop, in a fresh process for each core; each gets as many files of each format."""
    each = len(files) // CORES
    loops = []
    for core in range(CORES):
        results = tempfile.mkdtemp(dir=files[0].path.parent)
        paths = [str(file.path) for file in files[core * each : core * each + each]]
        command = [sys.executable, "-m", "bench.loop", results, *paths]
        loops.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for loop in loops:
        assert loop.stdout is not None
        assert loop.stdout.readline() == "ready\n"
    began = time.perf_counter()
    for loop in loops:
        assert loop.stdin is not None
        loop.stdin.write("go\n")
        loop.stdin.flush()
    assert [loop.wait() for loop in loops] == [0] * CORES
    return time.perf_counter() - began


def _run_queued(files: list[SampleFile], folder: Path) -> tuple[float, float]:
    """Return the seconds from the first claim to the last ending, and those of submitting."""
    url = f"sqlite:///{folder / 'queue.db'}"
    with Queue(url) as queue:
        began = time.perf_counter()
        for number in range(0, len(files), 20):
            queue.submit_files(f"customer-{number}", [Input(file.path) for file in files[number : number + 20]])
        submitting = time.perf_counter() - began
        command = [sys.executable, "-m", "fairlane.cli", "work", "--until-empty", "--url", url]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with suppress(ChildProcessError):  # the fork server, which ends after the worker: its CPU seconds count too
            while os.wait():
                pass
        changes = list(queue.changes())
        assert sum(change.event == "done" for change in changes) == len(files)
    first = min(change.at for change in changes if change.event == "claimed")
    last = max(change.at for change in changes if change.event == "done")
    return (last - first).total_seconds(), submitting


def _cpu() -> float:
    """Return the CPU seconds of all processes that have ended: the loops, the worker and everything it forked."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run_round(files: list[SampleFile], folder: Path, advance: Callable[[], None]) -> Round:
    at_first = _cpu()
    bare = _run_bare(files)
    between = _cpu()
    advance()
    queued, submitting = _run_queued(files, Path(tempfile.mkdtemp(dir=folder)))
    at_last = _cpu()
    advance()
    return Round(bare, queued, submitting, (at_last - between) / (between - at_first))


def measure(is_quick: bool, folder: Path, advance: Callable[[], None]) -> list[Figure]:
    """Measure documents and pages a second, beside the bare loop."""
    warm()
    become_subreaper()
    times, rounds = (1, 1) if is_quick else (26, ROUNDS)
    files = _make_files(folder) * times
    done = [_run_round(files, folder, advance) for _ in range(rounds)]
    median = sorted(done, key=lambda result: result.ratio)[len(done) // 2]
    count, pages = len(files), sum(file.pages for file in files)
    each, submitting = CORES * median.bare / count, statistics.median(result.submitting for result in done) / count
    note = f"{1000 * each:.0f} ms a document; submitting took {1000 * submitting:.1f} ms each"
    ratios = ", ".join(f"{result.ratio:.2f}" for result in done)
    cpu = statistics.median(result.cpu for result in done)
    return [
        Figure("queue and sandbox", count / median.queued, "documents/s", count / median.bare, Goal(SHARE_LEAST), note),
        Figure(
            "queue and sandbox: pages",
            pages / median.queued,
            "pages/s",
            pages / median.bare,
            None,
            f"times the bare loop, rounds {ratios}; CPU {cpu:.2f}",
        ),
    ]
