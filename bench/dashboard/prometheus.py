"""A real Prometheus with the project's settings and alerts, and what it answers to the queries of the dashboard."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml

from .load import Load, free_port, wait_for

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = DEPLOY / "grafana/fairlane.json"
ALERTS = DEPLOY / "prometheus/alerts.yml"
ALERTS_TEST = Path(__file__).with_name("alerts_test.yml")
SCRAPE_SECONDS = 5  # in production 15, so that Grafana takes rates over a minute: four times as long
RATE_SECONDS = 60


class Target(NamedTuple):
    """A query of a panel, and the series that it gave."""

    panel: str
    ref: str
    query: str
    series: list[dict[str, Any]]

    @property
    def is_empty(self) -> bool:
        """Whether no series has a number."""
        return not any(math.isfinite(float(value)) for series in self.series for _, value in series["values"])


def check_alerts() -> None:
    """Let promtool read the alerts, and raise each of them with made-up series."""
    missing = [program for program in ("prometheus", "promtool") if shutil.which(program) is None]
    if missing:
        raise SystemExit(f"{' and '.join(missing)} not found; as root: apt-get install prometheus")
    _promtool("check", "rules", ALERTS)
    _promtool("test", "rules", ALERTS_TEST)


def _promtool(*arguments: str | Path) -> None:
    checked = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    if checked.returncode:
        raise SystemExit(checked.stdout + checked.stderr)


@contextmanager
def running(folder: Path, settings: dict[str, Any]) -> Iterator[str]:
    """Run Prometheus with its series in this folder; its address."""
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(settings))
    _promtool("check", "config", path)
    port = free_port()
    command = ["prometheus", f"--config.file={path}", f"--storage.tsdb.path={folder / 'series'}",
               f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        wait_for(f"http://127.0.0.1:{port}/-/ready")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def settings_for(load: Load | None, folder: Path) -> dict[str, Any]:
    """Return the settings of deploy/ with the addresses, the key and the pace of this run; without a load nothing is read."""
    settings: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    settings["global"] = {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": f"{SCRAPE_SECONDS}s"}
    settings["rule_files"] = [str(ALERTS)]
    if load is None:
        return settings | {"scrape_configs": []}
    service, workers = settings["scrape_configs"]
    (folder / "key").write_text(load.key)
    service["authorization"]["credentials_file"] = str(folder / "key")
    service["static_configs"] = [{"targets": [load.service.removeprefix("http://")], "labels": {"instance": "service:8000"}}]
    del workers["dns_sd_configs"]
    workers["static_configs"] = [
        {"targets": [address], "labels": {"instance": f"{name}:9100"}} for name, address in load.workers.items()
    ]
    return settings


def ask(address: str, path: str, **parameters: Any) -> Any:
    """Return what Prometheus answers; a query that it does not accept ends the run."""
    answer = httpx.get(f"{address}/api/v1/{path}", params=parameters, trust_env=False, timeout=60)
    if answer.status_code != 200:
        raise SystemExit(f"{parameters.get('query', path)}: {answer.text}")
    return answer.json()["data"]


def read_panels(address: str, start: float, end: float) -> list[Target]:
    """Run every query of the dashboard over the run, as Grafana would."""
    variables = {"$__rate_interval": f"{RATE_SECONDS}s", "$__range": f"{end - start:.0f}s"}
    targets = []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"]
            for name, value in variables.items():
                query = query.replace(name, value)
            if target.get("instant"):
                series = ask(address, "query", query=query, time=end)["result"]
                series = [{"metric": found["metric"], "values": [found["value"]]} for found in series]
            else:
                series = ask(address, "query_range", query=query, start=start, end=end, step=SCRAPE_SECONDS)["result"]
            targets.append(Target(panel["title"], target["refId"], target["expr"], series))
    return targets


class Alert(NamedTuple):
    """A rule, and for how many seconds of the run it was pending and firing."""

    name: str
    pending: int
    firing: int


def read_alerts(address: str, start: float, end: float) -> list[Alert]:
    """Return every rule; one that Prometheus cannot evaluate ends the run."""
    times: dict[tuple[str, str], set[float]] = {}
    for series in ask(address, "query_range", query="ALERTS", start=start, end=end, step=SCRAPE_SECONDS)["result"]:
        labels = series["metric"]
        moments = times.setdefault((labels["alertname"], labels["alertstate"]), set())
        moments.update(moment for moment, _ in series["values"])
    alerts = []
    for rule in ask(address, "rules")["groups"][0]["rules"]:
        if rule["health"] == "err":
            raise SystemExit(f"{rule['name']}: {rule['lastError']}")
        pending, firing = (SCRAPE_SECONDS * len(times.get((rule["name"], state), ())) for state in ("pending", "firing"))
        alerts.append(Alert(rule["name"], pending, firing))
    return alerts
