"""Write the corpus, convert it with Fairlane, pandoc and markitdown, and print what each finds: `python -m bench.corpus`.

The libraries that write office files, and markitdown, are no part of Fairlane's environment. Put them into one of their own,
`pip install openpyxl xlsxwriter python-docx python-pptx reportlab "markitdown[docx,pptx,xlsx,xls,pdf]"`, and name its Python
with `--python`. Programs that are missing are named, and what needs them is left out. Nothing here makes a connection.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table as Sheet

from fairlane.extract import warm

from .converters import Outcome, all_by_markitdown, by_fairlane, by_pandoc
from .files import FORMATS, Sample, write_corpus
from .model import Document, Table
from .programs import Programs, default_python
from .score import Score, score

HALVES = {"both": (False, True), "open": (False,), "aside": (True,)}
WIDTH_MIN = 170
Results = dict[str, dict[Path, Outcome]]  # of each converter


def _expected(name: str, document: Document) -> Document:
    """Return what a converter can find in a file of this format."""
    if name == "csv":
        return document._replace(blocks=tuple(block for block in document.blocks if isinstance(block, Table))[:1])
    if name == "eml":
        return document
    return document


def _convert(corpus: dict[str, list[Sample]], python: Path | None, folder: Path) -> Results:
    paths = [sample.path for samples in corpus.values() for sample in samples]
    warm()
    results: Results = {"fairlane": {path: by_fairlane(path) for path in paths}}
    results["pandoc"] = {path: by_pandoc(path) for path in paths}
    results["markitdown"] = all_by_markitdown(python, paths, folder) if python is not None else {}
    return results


def _share(pair: tuple[float, float]) -> str:
    return f"{100 * pair[0] / pair[1]:.0f}" if pair[1] else "·"


def _row(name: str, samples: list[Sample], outcomes: dict[Path, Outcome]) -> list[str] | None:
    """Return the figures of one converter for some files, or nothing if it reads none of them."""
    done = [sample for sample in samples if sample.path in outcomes and not outcomes[sample.path].failure]
    if not done:
        return None
    total = Score()
    for sample in samples:
        outcome = outcomes.get(sample.path, Outcome("", "missing", 0.0))
        total = total.plus(score(_expected(name, sample.document), outcome.markdown, is_plain=name == "txt"))
    milliseconds = 1000 * statistics.median(outcomes[sample.path].seconds for sample in done)
    shares = [_share(pair) for pair in total[:-1]]
    return [f"{len(done)}/{len(samples)}", *shares, f"{total.false[0]:.0f}", f"{milliseconds:.1f}"]


def show(corpus: dict[str, list[Sample]], results: Results, is_by_way: bool) -> None:
    """Print the table: a row for each format and converter, or for each way to write it."""
    sheet = Sheet(title="shares found, in %", title_justify="left")
    for heading in ("format", "written by", "converter", "done", *Score._fields[:-1], "none", "ms"):
        sheet.add_column(heading, justify="left" if heading in ("format", "written by", "converter") else "right")
    for name, samples in corpus.items():
        ways = list(dict.fromkeys(sample.way for sample in samples)) if is_by_way else [""]
        for way in ways:
            members = [sample for sample in samples if way in ("", sample.way)]
            for converter, outcomes in results.items():
                figures = _row(name, members, outcomes)
                if figures is not None:
                    sheet.add_row(name, way, converter, *figures)
        sheet.add_section()
    console = Console()
    console.width = max(console.width, WIDTH_MIN)
    console.print(sheet)


def _say_failures(results: Results) -> None:
    for path, outcome in results["fairlane"].items():
        if outcome.failure:
            click.echo(f"{path.suffix[1:]}: {path.parent.name}/{path.name}: {outcome.failure}", err=True)


@click.command()
@click.option("--python", type=click.Path(path_type=Path, exists=True), help="the Python that has the libraries")
@click.option("--format", "formats", multiple=True, type=click.Choice(list(FORMATS)), help="only these formats")
@click.option("--count", default=42, show_default=True, help="files of each format")
@click.option("--half", type=click.Choice(list(HALVES)), default="both", show_default=True, help="which files to score")
@click.option("--by-way", is_flag=True, help="a row for each way to write a format")
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    help="a folder that keeps files and texts; what is there stays",
)
def main(python: Path | None, formats: tuple[str, ...], count: int, half: str, by_way: bool, keep: Path | None) -> None:
    """Write the corpus, convert it and print the table."""
    os.nice(5)
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-corpus-") as temporary:
        folder = keep or Path(temporary)
        python = (python or default_python() or Path()).absolute() if python or default_python() else None
        programs = Programs(python)
        corpus = write_corpus(programs, formats or tuple(FORMATS), count, folder)
        for sentence in programs.missing.values():
            click.echo(sentence, err=True)
        corpus = {
            name: [sample for sample in samples if sample.is_kept_aside in HALVES[half]] for name, samples in corpus.items()
        }
        results = _convert(corpus, python, folder)
        if not results["markitdown"]:
            click.echo("markitdown is not compared: name an environment that has it with --python", err=True)
        if keep is not None:
            _keep_texts(results)
        show(corpus, results, by_way)
        _say_failures(results)


def _keep_texts(results: Results) -> None:
    for converter, outcomes in results.items():
        for path, outcome in outcomes.items():
            path.with_name(f"{path.name}.{converter}.txt").write_text(outcome.markdown or outcome.failure, encoding="utf-8")


if __name__ == "__main__":
    main()
