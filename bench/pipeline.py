"""What do the queue and the sandbox cost on top of reading a document?

The same files on both cores: in a bare loop in two processes, which calls `extract` and writes text, facts and picture into
three files, as a person's own loop would (`bench/loop.py`); and through a queue on SQLite, by the built-in worker as it is by
default (four slots, so that the cores do not wait for the disk), each attempt confined, text, facts and picture kept and
synced. The bare loops are fresh processes, so that nothing which this one has loaded weighs on them.

The files are of six formats in turns, each with headings, paragraphs, lists and tables (the sheet with words and numbers) over
and over until reading it takes about 100 ms. Some need more memory or write more text than others, and so cost the sandbox or
the queue more: no one of them speaks for all.

A round is the one and right after it the other, and what is told is the middle one of the rounds, by how they compare. So a
machine that is slower for a minute slows both, a moment that slows one of them is one round of many, and every round has a
worker of its own, whose template is a little faster or slower than the next.

What is compared is work under way, not a start: a round is long enough that its beginning and its end weigh little, and the
time of the queue is from the first claim to the last ending, by the store's clock. The start of the worker and submitting come
before it; what submitting takes is told. CPU seconds are told too: of everything, the starts as well.

Nothing is removed between rounds: on ext4 files are made more slowly for minutes after others were deleted.
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
WANTED_SECONDS = 0.1
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


class Sent(NamedTuple):
    """One file."""

    path: Path
    pages: int


class Round(NamedTuple):
    """Seconds of the same files in the bare loop and through the queue, those of submitting, and how CPU seconds compare."""

    bare: float
    queued: float
    submitting: float
    cpu: float

    @property
    def times(self) -> float:
        """How many times as long as the bare loop."""
        return self.queued / self.bare


def _sized(folder: Path) -> list[Sent]:
    """A file of each format that takes about as long as wanted.

    Formats take turns, and of all that was measured the quickest counts: else a slow second would make one of them too short.
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
            sizes[name] = max(1, round(WANTED_SECONDS / quickest[name]))
    return [Sent(folder / name, pages[name]) for name in FILES]


def _bare(files: list[Sent]) -> float:
    """Seconds of the bare loop, in as many fresh processes as there are cores; each has as many files of each format."""
    each = len(files) // CORES
    loops = []
    for core in range(CORES):
        results = tempfile.mkdtemp(dir=files[0].path.parent)
        paths = [str(one.path) for one in files[core * each : core * each + each]]
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


def _queued(files: list[Sent], folder: Path) -> tuple[float, float]:
    """Seconds from the first claim to the last ending; and those that submitting took."""
    url = f"sqlite:///{folder / 'queue.db'}"
    with Queue(url) as queue:
        began = time.perf_counter()
        for number in range(0, len(files), 20):
            queue.submit_files(f"customer-{number}", [Input(one.path) for one in files[number : number + 20]])
        submitting = time.perf_counter() - began
        command = [sys.executable, "-m", "fairlane.cli", "work", "--until-empty", "--url", url]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with suppress(ChildProcessError):  # the template, which ends after the worker: what it used counts too
            while os.wait():
                pass
        changes = queue.changes(limit=10_000)
        assert sum(one.what == "done" for one in changes) == len(files)
    first = min(one.at_ms for one in changes if one.what == "claimed")
    last = max(one.at_ms for one in changes if one.what == "done")
    return (last - first) / 1000, submitting


def _cpu() -> float:
    """CPU seconds of all processes that have ended: the loops, the worker and everything it forked."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _round(files: list[Sent], folder: Path, advance: Callable[[], None]) -> Round:
    at_first = _cpu()
    bare = _bare(files)
    between = _cpu()
    advance()
    queued, submitting = _queued(files, Path(tempfile.mkdtemp(dir=folder)))
    at_last = _cpu()
    advance()
    return Round(bare, queued, submitting, (at_last - between) / (between - at_first))


def measure(is_quick: bool, folder: Path, advance: Callable[[], None]) -> list[Figure]:
    """Documents and pages a second, beside the bare loop."""
    warm()
    become_subreaper()
    times, rounds = (1, 1) if is_quick else (26, ROUNDS)
    files = _sized(folder) * times
    done = [_round(files, folder, advance) for _ in range(rounds)]
    middle = sorted(done, key=lambda one: one.times)[len(done) // 2]
    count, pages = len(files), sum(one.pages for one in files)
    each, submitting = CORES * middle.bare / count, statistics.median(one.submitting for one in done) / count
    note = f"{1000 * each:.0f} ms a document; submitting took {1000 * submitting:.1f} ms each"
    told = ", ".join(f"{one.times:.2f}" for one in done)
    cpu = statistics.median(one.cpu for one in done)
    return [
        Figure("queue and sandbox", count / middle.queued, "documents/s", count / middle.bare, Goal(SHARE_LEAST), note),
        Figure(
            "queue and sandbox: pages",
            pages / middle.queued,
            "pages/s",
            pages / middle.bare,
            None,
            f"times the bare loop, rounds {told}; CPU {cpu:.2f}",
        ),
    ]
