"""Run the benchmarks: `python -m bench`, with `--quick` for a small run and `--only NAME` for some of them."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from . import durable, encryption, extract, http, limits, pipeline, policy, postgres, redis, replay, scale, worker
from .figures import Figure, show, write

NAMES = (
    "policy",
    "submit",
    "callers",
    "batch",
    "claim",
    "worker",
    "scale",
    "replay",
    "extract",
    "pipeline",
    "postgres",
    "redis",
    "limits",
    "http",
    "encryption",
)


def _scenarios(is_quick: bool) -> dict[str, durable.Scenario]:
    share = 10 if is_quick else 1
    return {
        "submit": durable.one_caller(400 // share),
        "callers": durable.many_callers(1600 // share),
        "batch": durable.batches(8000 // share),
        "claim": durable.claims(2000 // share),
    }


def _measure(names: tuple[str, ...], is_quick: bool, folder: Path, progress: Progress) -> list[Figure]:
    figures: list[Figure] = []
    rounds = 3 if is_quick else 31
    if "policy" in names:
        task = progress.add_task("policy", total=1)
        figures.append(policy.measure(5, 40_000 if is_quick else 200_000))
        progress.advance(task)
    for name, scenario in _scenarios(is_quick).items():
        if name in names:
            task = progress.add_task(scenario.name, total=rounds)
            (folder / name).mkdir()
            figures += durable.measure(scenario, rounds, folder / name, partial(progress.advance, task))
    if "worker" in names:
        task = progress.add_task("worker", total=worker.STEPS)
        figures += worker.measure(is_quick, folder / "worker", partial(progress.advance, task))
    if "scale" in names:
        large = 20_000 if is_quick else 1_000_000
        task = progress.add_task(f"scale: {large:,} documents", total=large)
        figures += scale.measure(
            1000, large, 10 if is_quick else 60, folder, lambda count: progress.update(task, completed=count)
        )
    if "replay" in names:
        repeats = 1 if is_quick else 3
        task = progress.add_task("replay", total=repeats)
        figures += replay.measure(8000 if is_quick else 200_000, repeats, partial(progress.advance, task))
    if "postgres" in names:
        figures += _postgres(is_quick, progress)
    if "redis" in names:
        figures += _on_redis(is_quick, progress)
    if "limits" in names:
        figures += _limits(is_quick, folder / "limits", progress)
    return figures + _documents(names, is_quick, folder, progress)


def _documents(names: tuple[str, ...], is_quick: bool, folder: Path, progress: Progress) -> list[Figure]:
    """Measure submissions over HTTP, the extractors alone, and the whole pipeline in the sandbox."""
    figures: list[Figure] = []
    if "http" in names:
        task = progress.add_task("http", total=http.ROUNDS_QUICK if is_quick else http.ROUNDS)
        figures += http.measure(is_quick, folder / "http", partial(progress.advance, task))
    if "encryption" in names:
        task = progress.add_task("encryption", total=encryption.ROUNDS_QUICK if is_quick else encryption.ROUNDS)
        figures += encryption.measure(is_quick, folder / "encryption", partial(progress.advance, task))
    if "extract" in names:
        task = progress.add_task("extract", total=15)
        (folder / "extract").mkdir()
        figures += extract.measure(
            0.1 if is_quick else 1, 2 if is_quick else 15, folder / "extract", partial(progress.advance, task)
        )
    if "pipeline" in names:
        task = progress.add_task("pipeline", total=2 if is_quick else 2 * pipeline.ROUNDS)
        (folder / "pipeline").mkdir()
        figures += pipeline.measure(is_quick, folder / "pipeline", partial(progress.advance, task))
    return figures


def _postgres(is_quick: bool, progress: Progress) -> list[Figure]:
    """Measure on a server of its own: beside bare psycopg, and with many waiting documents beside few."""
    task = progress.add_task("postgres beside bare psycopg", total=160 if is_quick else 1600)
    figures = postgres.measure(is_quick, partial(progress.advance, task))
    large = 3000 if is_quick else 1_000_000
    task = progress.add_task(f"postgres scale: {large:,} documents", total=large)
    return figures + postgres.measure_scale(
        1000, large, 4 if is_quick else 60, lambda count: progress.update(task, completed=count)
    )


def _on_redis(is_quick: bool, progress: Progress) -> list[Figure]:
    figures: list[Figure] = []
    for product in ("redis", "valkey"):
        task = progress.add_task(product, total=len(redis.scenarios(is_quick)) + 1)
        figures += redis.measure(product, is_quick, partial(progress.advance, task))
        figures += _redis_scale(product, is_quick, progress)
    return figures


def _limits(is_quick: bool, folder: Path, progress: Progress) -> list[Figure]:
    """Measure what the limits of customers cost, on each engine."""
    figures: list[Figure] = []
    for engine in limits.ENGINES:
        task = progress.add_task(f"limits on {engine}", total=len(limits.scenarios(is_quick)))
        figures += limits.measure(engine, is_quick, folder, partial(progress.advance, task))
    return figures


def _redis_scale(product: str, is_quick: bool, progress: Progress) -> list[Figure]:
    large = 2000 if is_quick else 1_000_000
    task = progress.add_task(f"{product} scale: {large:,} documents", total=large)
    return redis.measure_scale(
        product, 1000, large, 3 if is_quick else 40, lambda count: progress.update(task, completed=count)
    )


@click.command()
@click.option("--quick", is_flag=True, help="A small run, to test the benchmarks; its figures are rough.")
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="Run only this benchmark; may be repeated.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("build/bench.json"), show_default=True)
def main(quick: bool, only: tuple[str, ...], output: Path) -> None:
    """Measure the speed of Fairlane, beside the bare engine in the same run."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        figures = _measure(only or NAMES, quick, Path(folder), progress)
    show(figures)
    write(figures, output)
    click.echo(f"Written to {output}")


main()
