"""The files of deploy/, parsed: commands, variables, ports and queries that they name."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import yaml

from fairlane.cli import main
from tests.conftest import missing
from tests.system import carried_program

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/fairlane"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
ALERTS: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/fairlane.json").read_text())
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
TEXTS = {
    str(path.relative_to(DEPLOY)): path.read_text(encoding="utf-8") for path in sorted(DEPLOY.rglob("*")) if path.is_file()
}


def program(name: str) -> str:
    """Return a program that a package of the environment carries; without it skip the test, or fail it in CI."""
    found = carried_program(name)
    if found is None:
        missing(f"there is no {name} for this system in its Python package, so the files of deploy/ are not tried with it")
    return found or ""


def compose_service(name: str) -> dict[str, Any]:
    service: dict[str, Any] = COMPOSE["services"][name]
    return service


def chart_arguments(template: str) -> list[str]:
    """The arguments of the container in a template of the chart, those in conditions too, with 1 for what is inserted."""
    text = (CHART / "templates" / template).read_text()
    block = text[text.index("args:\n") : text.index('include "fairlane.container"')]
    lines = re.findall(r"^ +- (\S.*)$", block, re.MULTILINE)
    return [re.sub(r"\{\{.*?\}\}", "1", line) for line in lines if not line.startswith("{{ . }}")]


def commands() -> dict[str, list[str]]:
    """Every call of `fairlane` in the files, by where it is."""
    found: dict[str, list[str]] = {}
    (found["Dockerfile"],) = (json.loads(line) for line in re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE))
    for name in ("service", "worker"):
        found[f"compose: {name}"] = compose_service(name)["command"]
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    found["chart: service"] = [*chart_arguments("service.yaml"), *values["service"]["arguments"]]
    found["chart: worker"] = chart_arguments("workers.yaml")
    for file, text in TEXTS.items():
        for number, call in enumerate(
            re.findall(r"(?:/opt/fairlane/bin/|-- |^ +|[#:] )fairlane ((?!:)[a-z].*)", text, re.MULTILINE)
        ):
            if re.match(r"\w+ (in |is |for )|with|and|on ", call):
                continue
            found[f"{file} {number}"] = shlex.split(re.split(r"[;\"'|>()]|   |; |\.$|,? says|,? shows", call)[0])
    return found


def options_of(arguments: list[str]) -> tuple[click.Command, list[str]]:
    """The command that is called, and the names of its options that are used."""
    command: click.Command = main
    rest = list(arguments)
    while isinstance(command, click.Group):
        command = command.commands[rest.pop(0)]
    return command, [word.partition("=")[0] for word in rest if word.startswith("--")]


def queries() -> dict[str, str]:
    """Every query of the alerts and of the dashboard, by its title."""
    found = {rule["alert"]: rule["expr"] for rule in ALERTS}
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    return found
