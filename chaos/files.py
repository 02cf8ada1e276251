"""Chaos test of the extractors: damaged files.

`python -m chaos.files --count 20000` damages files of the corpus at random, reads them in forked children, a batch each, and
counts the outcomes; `--kind doc` takes only those of a kind. Errors are: anything but a result or an `Unreadable`; the code
`crashed`, which means that our own code raised; a child that died or wrote outside of its folder; a result that breaks its
laws; a file that took too long.

With `--sandbox` every file is read in a confined process of its own. There a parser may die, and is counted by its signal; a
process that is left is also an error, and so is anything written beside the scratch folder.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from chaos.corpus.all import corpus
from fairlane.extract import CAN_RETRY, Extraction, Limits, Unreadable, extract, warm
from fairlane.extract.builder import ExtractionBuilder
from fairlane.extract.ole import SIGNATURE, OleFile, Tree
from fairlane.extract.ole_writer import write_ole
from fairlane.extract.sandboxed import extract_isolated, prepare, release
from fairlane.procs.syscalls import become_subreaper

LIMITS = Limits(ocr_pages_max=0, seconds_max=10, unpacked_max=50_000_000)
SECONDS_MAX = 15
DIED = re.compile(r"\b(SIG[A-Z0-9]+)\b")
INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0x3C, 0x7B, 0x22)
TOKENS = (
    b"<",
    b"]]>",
    b"{\\",
    b"\\u-1?",
    b"stream\n",
    b"PK\x01\x02",
    b"\xff\xd8",
    b"&#99999999999;",
    b"<!ENTITY",
    b"%%EOF",
    b"\0" * 8,
)


class Report(NamedTuple):
    """The outcomes, and the errors."""

    outcomes: Counter[str]
    wrong: list[str]


def damage(content: bytes, random: Random) -> bytes:
    """Return the file with random changes."""
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 4, 16, 64))):
        position = random.randrange(len(changed)) if changed else 0
        match random.randrange(7):
            case 0 | 1:
                changed[position : position + 1] = bytes([random.randrange(256)])
            case 2:
                changed[position : position + 1] = bytes([random.choice(INTERESTING)])
            case 3:
                del changed[position : position + random.choice((1, 2, 16, 200))]
            case 4:
                changed[position:position] = random.choice(TOKENS)
            case 5:
                other = random.randrange(len(changed) + 1)
                changed[position:position] = changed[other : other + random.choice((4, 40, 400))]
            case 6:
                if random.random() < 0.2:
                    del changed[position:]
    return bytes(changed) or b"\0"


def files(count: int, seed: int, kinds: frozenset[str] = frozenset()) -> Iterator[tuple[str, bytes]]:
    """Yield damaged files, the same for the same seed. Most of what is packed is damaged before it is packed."""
    random = Random(seed)
    names = [name for name in sorted(corpus()) if not kinds or name.rpartition(".")[2] in kinds]
    for number in range(count):
        name = names[number % len(names)]
        content = corpus()[name]
        if content.startswith(b"PK") and random.random() < 0.7:
            content = _damage_part(content, random)
        elif content.startswith(SIGNATURE) and random.random() < 0.7:
            content = _damage_stream(content, random)
        elif name.endswith(".gz") and random.random() < 0.7:
            content = gzip.compress(damage(gzip.decompress(content), random), 1, mtime=0)
        else:
            content = damage(content, random)
        yield (name if random.random() < 0.8 else random.choice(names)), content


def _damage_part(content: bytes, random: Random) -> bytes:
    import io
    import zipfile

    from chaos.corpus.office import zipped

    with zipfile.ZipFile(io.BytesIO(content)) as package:
        parts: dict[str, str | bytes] = {name: package.read(name) for name in package.namelist()}
    chosen = random.choice(sorted(parts))
    part = parts[chosen]
    parts[chosen] = damage(part if isinstance(part, bytes) else part.encode(), random)
    return zipped(parts)


def _damage_stream(content: bytes, random: Random) -> bytes:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        with OleFile(ExtractionBuilder(Path(file.name), "", None, Limits())) as ole:
            tree = ole.tree(ole.root)
    chosen: Tree = tree
    while isinstance(part := chosen[name := random.choice(sorted(chosen))], dict) and part:
        chosen = part
    if isinstance(part, bytes):
        chosen[name] = damage(part, random)
    return write_ole(tree)


def broken_laws(result: Extraction, scratch: Path) -> list[str]:
    """List the laws of a result that are broken."""
    wrong = []
    try:
        result.text.encode()
        json.dumps(result.facts()).encode()
    except ValueError as error:
        wrong.append(f"cannot be sent: {error}")
    if any(letter < " " and letter not in "\n\t" for letter in result.text):
        wrong.append("control characters")
    if result.pages[0].start != 0 or result.pages[-1].end != len(result.text):
        wrong.append("pages do not cover the text")
    if {path.resolve() for path in scratch.iterdir()} != {member.path.resolve() for member in result.members}:
        wrong.append("the scratch folder contains something else than the members")
    return wrong


def _read_file(read: Callable[..., Extraction], path: Path, name: str, scratch: Path) -> tuple[str, list[str]]:
    began = time.monotonic()
    try:
        result = read(path, name, scratch, LIMITS)
        outcome, wrong = "read", broken_laws(result, scratch)
    except Unreadable as error:
        outcome, wrong = error.code, []
        died = DIED.search(error.detail) if read is extract_isolated else None
        if died is not None:
            outcome = f"{error.code}, {died[1]}"
        elif error.code == "crashed":
            wrong = [error.detail, "".join(traceback.format_exception(error.__cause__))]
        elif error.code not in CAN_RETRY:
            wrong = [f"an unknown code: {error.code}"]
    except BaseException:  # noqa: BLE001 - what this test is for
        outcome, wrong = "surprise", [traceback.format_exc()]
    if time.monotonic() - began > SECONDS_MAX:
        wrong.append(f"took {time.monotonic() - began:.0f} s")
    return outcome, wrong


def _traces(folder: Path, content: bytes) -> list[str]:
    """List what the reading of a file left beside its scratch folder."""
    traces = [f"wrote {path}" for path in folder.iterdir() if path.name != "file" and not path.name.startswith("scratch-")]
    if (folder / "file").read_bytes() != content:
        traces.append("changed the file")
    try:
        os.waitpid(-1, os.WNOHANG)
        traces.append("left a process")
    except ChildProcessError:
        pass
    return traces


def _child(batch: list[tuple[str, bytes]], folder: Path, log: Path, read: Callable[..., Extraction]) -> None:
    """Read a batch, write a line for each file, and exit."""
    become_subreaper()
    folder.chmod(0o777)  # so that only the sandbox keeps others from writing here
    with log.open("w") as lines:
        for number, (name, content) in enumerate(batch):
            path, scratch = folder / "file", folder / f"scratch-{number}"
            path.write_bytes(content)
            scratch.mkdir()
            outcome, wrong = _read_file(read, path, name, scratch)
            lines.write(json.dumps([outcome, wrong + _traces(folder, content)]) + "\n")
            lines.flush()
            for member in scratch.iterdir():
                member.unlink()
            scratch.rmdir()
    os._exit(0)


def run(
    count: int,
    seed: int,
    folder: Path,
    batch: int = 500,
    advance: Callable[[int], None] = lambda _: None,
    is_confined: bool = False,
    kinds: frozenset[str] = frozenset(),
) -> Report:
    """Read all files."""
    report = Report(Counter(), [])
    warm()
    if is_confined:
        prepare()
    read = extract_isolated if is_confined else extract
    pending: list[tuple[str, bytes]] = []
    for number, file in enumerate(files(count, seed, kinds), start=1):
        pending.append(file)
        if len(pending) == batch or number == count:
            _run_batch(report, pending, folder / f"batch-{number}", number - len(pending), read)
            advance(len(pending))
            pending = []
    release()
    return report


def _run_batch(
    report: Report, batch: list[tuple[str, bytes]], folder: Path, first: int, read: Callable[..., Extraction]
) -> None:
    folder.mkdir()
    log = folder.parent / f"{folder.name}.log"
    process = os.fork()
    if process == 0:
        _child(batch, folder, log, read)
    _, status = os.waitpid(process, 0)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for number, (outcome, wrong) in enumerate(lines):
        report.outcomes[outcome] += 1
        report.wrong.extend(f"file {first + number} ({batch[number][0]}): {error}" for error in wrong)
    if os.waitstatus_to_exitcode(status) != 0:
        name, content = batch[len(lines)]
        kept = Path(tempfile.gettempdir()) / f"fairlane-killer-{first + len(lines)}"
        kept.write_bytes(content)
        report.outcomes["died"] += 1
        report.wrong.append(f"file {first + len(lines)} ({name}) killed its child, see {kept}")


@click.command()
@click.option("--count", default=20_000, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--kind", "kinds", multiple=True, help="Only files with this suffix, as `doc`; may be repeated.")
@click.option("--sandbox", "is_confined", is_flag=True, help="Read each file in a confined process of its own.")
def main(count: int, seed: int, kinds: tuple[str, ...], is_confined: bool) -> None:
    """Read damaged files, and count the outcomes."""
    print(f"{count:,} files, seed {seed}{', in the sandbox' if is_confined else ''}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-files-") as folder,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task("files", total=count)
        batch = 100 if is_confined else 500
        report = run(
            count, seed, Path(folder), batch, lambda done: progress.update(task, advance=done), is_confined, frozenset(kinds)
        )
    for outcome, number in report.outcomes.most_common():
        print(f"  {outcome}: {number}")
    for error in report.wrong:
        print(f"WRONG: {error}")
    print("Nothing is wrong." if not report.wrong else f"{len(report.wrong)} things are wrong.")
    sys.exit(1 if report.wrong else 0)


if __name__ == "__main__":
    main()
