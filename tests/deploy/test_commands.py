"""Every command, option, variable, port and address in deploy/ is one of the program's own."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from fairlane.api.limits import ServiceLimits
from fairlane.api.permissions import ROUTES, permissions_of
from fairlane.cli import main
from fairlane.worker import Worker

from .deploy_files import CHART, COMPOSE, DEPLOY, DOCKERFILE, ROOT, TEXTS, commands, compose_service, options_of

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
TEMPLATES = {path.name: path.read_text() for path in (CHART / "templates").iterdir()}


@pytest.mark.parametrize("where", commands())
def test_every_command_exists_with_its_options(where: str) -> None:
    command, used = options_of(commands()[where])
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert set(used) <= known | {"--help"}, where


def test_the_commands_are_found() -> None:
    names = [words[0] for words in commands().values()]
    assert {"serve", "work", "keys", "backup", "doctor"} <= set(names)
    assert len(names) > 12


@pytest.mark.parametrize("name", ["service", "worker"])
def test_the_commands_of_compose_are_understood(name: str) -> None:
    command, *arguments = compose_service(name)["command"]
    context = main.commands[command].make_context(command, [*arguments], resilient_parsing=False)
    assert isinstance(context, click.Context)
    assert context.params["metrics_port" if name == "worker" else "port"] in (9100, 8000)


def test_every_variable_is_one_of_ours() -> None:
    reference = (ROOT / "docs/reference.md").read_text() + (ROOT / "docs/privacy.md").read_text()
    for file, text in TEXTS.items():
        for name in re.findall(r"\bFAIRLANE_[A-Z_]+", text):
            assert name in reference, (file, name)


def test_every_address_is_a_route() -> None:
    public = {route for _, route in ROUTES} | {"/healthz", "/readyz", "/metrics"}
    for file, text in TEXTS.items():
        for path in re.findall(r"(?:path: |:8000|:9100|port \}\}|8000)(/(?:v1|[a-z]+z|metrics)[\w/{}]*)", text):
            assert path in public, (file, path)
    assert "path: /readyz" in TEMPLATES["service.yaml"]
    assert "/v1/capacity?kind=" in TEMPLATES["workers.yaml"]


def test_the_autoscalers_key_may_read_the_capacity() -> None:
    assert ROUTES["GET", "/v1/capacity"] in permissions_of("viewer", ())
    assert ROUTES["GET", "/metrics"] in permissions_of("viewer", ("metrics",))


def test_what_is_copied_into_the_image_is_not_ignored_and_exists() -> None:
    allowed = [line[1:] for line in TEXTS["Dockerfile.dockerignore"].splitlines() if line.startswith("!")]
    copied = " ".join(re.findall(r"^COPY ((?!--from).*)$", DOCKERFILE.replace("\\\n", " "), re.MULTILINE)).split()
    files = {name for name in copied if name not in ("./", "requirements/", "src")} | {"src"}
    assert len(files) > 8
    for name in files:
        assert (ROOT / name).exists(), name
        assert any(Path(name).match(pattern) for pattern in allowed), name
    extras = re.findall(r"^EXTRAS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split()
    in_image = set(re.findall(r"for extra in ([a-z0-9 ]+);", DOCKERFILE)[0].split())
    assert set(extras) - in_image <= NOT_IN_IMAGE
    assert {f"requirements/{extra}.txt" for extra in in_image} <= files
    assert "--require-hashes" in DOCKERFILE


NOT_IN_IMAGE = {"heic", "mcp"}  # LGPL, so it is yours to add; and what an assistant starts where people sit


def test_containers_have_no_more_rights_than_they_need() -> None:
    assert re.search(r"^USER 10001:10001$", DOCKERFILE, re.MULTILINE)
    for name in ("setup", "service", "worker"):
        service = compose_service(name)
        assert (service["read_only"], service["cap_drop"], service["security_opt"]) == (
            True,
            ["ALL"],
            ["no-new-privileges:true"],
        )
    assert VALUES["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert VALUES["podSecurityContext"]["runAsUser"] == 10001
    for service in COMPOSE["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_whatever_is_stopped_has_the_time_that_it_takes() -> None:
    grace, stop = Worker()._grace, ServiceLimits().stop_seconds
    worker = VALUES["workerDefaults"]
    assert int(compose_service("worker")["stop_grace_period"].rstrip("s")) > grace
    assert worker["terminationGracePeriodSeconds"] > grace
    assert int(re.findall(r"TimeoutStopSec=(\d+)", TEXTS["systemd/fairlane-worker@.service"])[0]) > grace
    assert int(compose_service("service")["stop_grace_period"].rstrip("s")) > stop
    assert VALUES["service"]["terminationGracePeriodSeconds"] > stop + VALUES["service"]["preStopSeconds"]
    assert int(re.findall(r"TimeoutStopSec=(\d+)", TEXTS["systemd/fairlane.service"])[0]) > stop


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_value_that_a_template_uses_is_in_values_yaml(template: str) -> None:
    for path in re.findall(r"(?<![\w])\$?\.Values\.([\w.]+)", TEMPLATES[template]):
        value = VALUES
        for name in path.split("."):
            assert name in value, f"{template}: {path}"
            value = value[name]
    for path in (
        re.findall(r"\{\{-? ?(?:if not |if |with )?\.([a-z]\w*(?:\.\w+)*)", TEMPLATES[template])
        if template == "workers.yaml"
        else ()
    ):
        value = VALUES["workerDefaults"]
        for name in path.split("."):
            assert name in value, f"{template}: {path}"
            value = value[name]


def test_the_units_of_systemd_are_well_formed() -> None:
    analyze = shutil.which("systemd-analyze")
    for path in (DEPLOY / "systemd").iterdir():
        if path.suffix not in (".service", ".timer"):
            continue
        if analyze is not None:
            done = subprocess.run([analyze, "verify", str(path)], capture_output=True, text=True, check=False)
            others = [line for line in done.stderr.splitlines() if path.name in line and "is not executable" not in line]
            assert others == [], path.name
        assert re.search(r"^\[Unit\]\n", path.read_text(), re.MULTILINE)
