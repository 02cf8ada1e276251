"""Run a service for some minutes, read it with Prometheus, and draw the dashboard: `python -m bench.dashboard`.

It says which query of which panel gave nothing, and which alerts were pending and firing. What Prometheus read is kept in
build/dashboard, and with `--again` the queries of now are run on it. Needs the programs prometheus, chromium and npm.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from . import load, prometheus
from .draw import draw
from .prometheus import SCRAPE_SECONDS, Alert, Target

ROOT = Path(__file__).parents[2]
RECORDING, PICTURE = ROOT / "build/dashboard", ROOT / "docs/pictures/dashboard.png"
SERIES_MAX = 12  # that a legend shows without scrolling


def record(seconds: float) -> None:
    """Run the load under Prometheus, and keep what it read."""
    shutil.rmtree(RECORDING, ignore_errors=True)
    RECORDING.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="fairlane-dashboard-") as name, load.running(Path(name), load.Scene()) as running:
        service, traffic = running
        with prometheus.running(RECORDING, prometheus.settings_for(service, Path(name))) as address:
            start = time.time()
            traffic.run(seconds)
            run = {"start": start, "end": time.time()}
            prometheus.read_alerts(address, **run)
            (RECORDING / "run.json").write_text(json.dumps(run))


def read() -> dict[str, Any]:
    """Return what Prometheus answers to each query over the run, and what the alerts did."""
    run = json.loads((RECORDING / "run.json").read_text())
    with prometheus.running(RECORDING, prometheus.settings_for(None, RECORDING)) as address:
        targets = prometheus.read_panels(address, **run)
        alerts = prometheus.read_alerts(address, **run)
    return {**run, "step": SCRAPE_SECONDS, "targets": targets, "alerts": alerts}


def show(recording: dict[str, Any]) -> bool:
    """Print what gave nothing, what has many series, and the alerts; whether every query gave something."""
    console = Console()
    targets: list[Target] = recording["targets"]
    empty = [target for target in targets if target.is_empty]
    for target in empty:
        console.print(f"no data: {target.panel} {target.ref}: {target.query}", style="red", markup=False, soft_wrap=True)
    for target in targets:
        if len(target.series) > SERIES_MAX:
            console.print(f"{len(target.series)} series: {target.panel} {target.ref}", markup=False)
    console.print(f"{len(targets) - len(empty)} of {len(targets)} queries gave data")
    table = Table("alert", "pending, s", "firing, s")
    alerts: list[Alert] = recording["alerts"]
    for alert in alerts:
        table.add_row(alert.name, str(alert.pending or ""), str(alert.firing or ""))
    console.print(table)
    return not empty


@click.command()
@click.option("--minutes", default=8.0, show_default=True, help="How long the load runs.")
@click.option("--again", is_flag=True, help="Draw what was recorded last, without a load.")
@click.option("--no-picture", is_flag=True, help="Run the queries and the alerts only.")
def main(minutes: float, again: bool, no_picture: bool) -> None:
    """Record, report and draw."""
    prometheus.check_alerts()
    if not again:
        record(minutes * 60)
    recording = read()
    is_complete = show(recording)
    if not no_picture:
        draw(recording, PICTURE)
        click.echo(f"{PICTURE.name}: {PICTURE.stat().st_size // 1000} kB")
    raise SystemExit(not is_complete)


if __name__ == "__main__":
    main()
