"""Every metric and label in the alerts and the dashboard is one that /metrics has."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fairlane import Fail, Queue, Worker
from fairlane.api.metrics import Metrics
from fairlane.worker import Document
from fairlane.worker.metrics import WorkerMetrics

from .deploy_files import ALERTS, DASHBOARD, DEPLOY, compose_service, queries

OF_PROMETHEUS = {"instance", "job", "le"}
Labels = dict[str, set[str]]


async def direct(function: Any, *args: Any) -> Any:
    return function(*args)


async def follow(queue: Queue, metrics: Metrics) -> None:
    await metrics.on_changes(queue.engine.changes(0, 1000))
    await metrics.refresh()


@pytest.fixture(scope="module")
def exposed() -> dict[str, Labels]:
    """What the service and a worker expose after some work: the names of series, with the values of each label."""
    queue = Queue("memory://")
    metrics = Metrics(queue, direct)
    asyncio.run(metrics.start())
    worker = Worker(queue, slots=1)

    @worker.handler(attempts=1)
    async def handle(document: Document) -> None:
        if document.payload:
            raise Fail("no")

    of_worker = WorkerMetrics(1)
    worker.on("*", of_worker)
    for payload in (0, 1):
        queue.submit("acme", payload)
    worker.run(until_empty=True)
    queue.submit("acme", kind="other")
    asyncio.run(follow(queue, metrics))
    metrics.on_response("GET", "/healthz", 503, 0.1)
    metrics.on_delivery("taken")
    found: dict[str, Labels] = {"up": {"job": {"fairlane"}}}
    for text in (metrics.scrape().decode(), generate_latest(of_worker.registry).decode()):
        for family in text_string_to_metric_families(text):
            found.setdefault(family.name if family.type != "counter" else f"{family.name}_total", {})
            for sample in family.samples:
                labels = found.setdefault(sample.name, {})
                for name, value in sample.labels.items():
                    labels.setdefault(name, set()).add(value)
    return found


def selectors(query: str) -> list[tuple[str, dict[str, str]]]:
    """The metrics of a query, each with the labels that select."""
    found = re.findall(r"\b(fairlane_\w+|up)\b(?:\{([^}]*)\})?", query)
    return [(name, dict(re.findall(r'(\w+)=~?"([^"]*)"', labels))) for name, labels in found]


@pytest.mark.parametrize("title", queries())
def test_every_metric_exists_with_its_labels(title: str, exposed: dict[str, Labels]) -> None:
    query = queries()[title]
    used = selectors(query)
    assert used, query
    for name, labels in used:
        assert name in exposed, name
        for label, value in labels.items():
            for word in value.split("|"):
                assert word in exposed[name][label], (name, label, word)
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")}
    known = {label for name, _ in used for label in exposed[name]} | OF_PROMETHEUS
    assert grouped <= known, query


def test_every_label_that_a_text_shows_is_in_its_query() -> None:
    shown = [(rule["alert"], rule["expr"], str(rule["annotations"])) for rule in ALERTS]
    for panel in DASHBOARD["panels"]:
        shown += [(panel["title"], target["expr"], target["legendFormat"]) for target in panel.get("targets", ())]
    for title, query, text in shown:
        grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")}
        for label in re.findall(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}", text):
            assert label in grouped or label == "instance", (title, label)


def test_every_metric_of_the_service_and_of_workers_is_on_the_dashboard(exposed: dict[str, Labels]) -> None:
    used = {name for title, query in queries().items() for name, _ in selectors(query)}
    families = {re.sub(r"_(bucket|count|sum|created|total)$", "", name) for name in exposed}
    # A limit of one server, explained in the docs; and what fairlane_workers{state="draining"} counts already.
    left_out = {"fairlane_untracked_documents", "fairlane_worker_draining", "up"}
    assert families - {re.sub(r"_(bucket|count|sum|total)$", "", name) for name in used} - left_out == set()


def test_alerts_are_those_of_the_docs_and_more() -> None:
    page = (DEPLOY.parent / "docs/service.md").read_text()
    table = page[page.index("### What to be woken for") : page.index("### Autoscaling")]
    written = set(re.findall(r"\| `(fairlane_\w+)", table))
    assert written <= {name for rule in ALERTS for name, _ in selectors(rule["expr"])}
    for rule in ALERTS:
        assert {"summary", "description"} == set(rule["annotations"])
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_every_alert_has_a_case_that_raises_it_and_one_that_does_not_yet() -> None:
    path = DEPLOY.parent / "bench/dashboard/alerts_test.yml"  # which promtool runs in python -m bench.dashboard
    cases = [case for test in yaml.safe_load(path.read_text())["tests"] for case in test["alert_rule_test"]]
    assert {rule["alert"] for rule in ALERTS} == {case["alertname"] for case in cases if case.get("exp_alerts")}
    assert {rule["alert"] for rule in ALERTS} == {case["alertname"] for case in cases if not case.get("exp_alerts")}


def test_prometheus_scrapes_what_compose_starts() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    assert jobs["fairlane"]["static_configs"] == [{"targets": ["service:8000"]}]
    assert jobs["fairlane-workers"]["dns_sd_configs"] == [{"names": ["worker"], "type": "A", "port": 9100}]
    command = compose_service("worker")["command"]
    assert command[command.index("--metrics-port") + 1] == "9100"
    assert jobs["fairlane"]["authorization"]["credentials_file"] == "/keys/metrics"
    assert (DEPLOY / "prometheus" / config["rule_files"][0]).exists()


def test_what_compose_mounts_exists_and_grafana_finds_its_dashboard() -> None:
    for name in ("prometheus", "grafana"):
        for volume in compose_service(name)["volumes"]:
            if volume.startswith("./"):
                assert (DEPLOY / volume.partition(":")[0]).exists(), volume
    provider = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/fairlane.yaml").read_text())["providers"][0]
    home = Path(compose_service("grafana")["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert provider["options"]["path"] == str(home.parent)
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"][0]
    (choice,) = DASHBOARD["templating"]["list"]  # a Grafana elsewhere has a Prometheus of another name
    assert (choice["type"], choice["query"]) == ("datasource", source["type"])
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    used = [part["datasource"] for panel in panels for part in (panel, *panel["targets"])]
    assert all(part == {"type": source["type"], "uid": f"${{{choice['name']}}}"} for part in used)
    assert source["isDefault"]


def test_what_is_so_now_is_read_at_this_moment_and_not_from_the_past() -> None:
    stats = [panel for panel in DASHBOARD["panels"] if panel["type"] == "stat"]
    assert stats
    assert all(target["instant"] and not target["range"] for panel in stats for target in panel["targets"])


def test_panels_do_not_overlap() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
