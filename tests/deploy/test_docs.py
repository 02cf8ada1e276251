"""The blocks of docs/deploy.md run, with what needs a cluster, Docker or systemd's own process put away."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from fairlane import Queue
from fairlane.api import auth
from tests.api.running import until
from tests.conftest import need_program
from tests.docs.snippets import snippet
from tests.servers.postgres import free_port
from tests.terminal import bash, beside

from .deploy_files import DEPLOY, ROOT, TEXTS, compose_service, program


def roles(url: str) -> dict[str, str]:
    """Return the role of each key of a queue, by the public part of the key."""
    with Queue(url) as queue:
        return {key.id: key.role for key in auth.list_keys(queue.engine)}


def test_compose_makes_each_key_once(tmp_path: Path) -> None:
    need_program("openssl")
    for name in ("deploy", "keys"):
        (tmp_path / name).mkdir()
    setup = compose_service("setup")["command"][0].replace("$$", "$").replace("/keys/", f"{tmp_path}/keys/")
    commands = snippet("docs/deploy.md", "cd deploy").replace("/keys/", f"{tmp_path}/keys/")
    commands = commands.replace("docker compose up --build --detach", 'sh -euc "$SETUP"')
    commands = commands.replace("docker compose exec service ", "")
    url = f"sqlite:///{tmp_path}/queue.db"
    first, again = (bash(commands, tmp_path, FAIRLANE_URL=url, SETUP=setup).splitlines()[-1] for _ in range(2))
    assert first == again
    assert (tmp_path / "deploy/.env").stat().st_mode & 0o777 == 0o600
    written = re.fullmatch(r"(\w+)=[0-9a-f]{48}\n", (tmp_path / "deploy/.env").read_text())
    assert written is not None
    assert {written[1]} == set(re.findall(r"(?<!\$)\$\{(\w+)", TEXTS["compose.yaml"]))
    metrics = (tmp_path / "keys/metrics").read_text().strip()
    assert roles(url) == {auth.public_part(first): "admin", auth.public_part(metrics): "viewer"}
    assert [oct((tmp_path / "keys" / name).stat().st_mode & 0o777) for name in ("admin", "metrics")] == ["0o600", "0o644"]
    with Queue(url) as queue:
        assert {key.name: key.expires_ms is None for key in auth.list_keys(queue.engine)} == {
            "compose: admin": False, "compose: metrics": True,
        }  # fmt: skip


def referenced_secrets(value: Any) -> Iterator[tuple[str, str | None]]:
    """Find the Secrets that a document of Kubernetes or KEDA refers to, each with its key; None is all of them."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("secretKeyRef", "secretRef"):
                yield inner["name"], inner.get("key")
            elif name == "secretTargetRef":
                yield from ((target["name"], target["key"]) for target in inner)
            else:
                yield from referenced_secrets(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from referenced_secrets(inner)


def test_the_commands_for_kubernetes_make_every_secret_that_the_chart_asks_for(tmp_path: Path) -> None:
    program("helm")
    (tmp_path / "deploy").symlink_to(DEPLOY)
    (tmp_path / "my-values.yaml").write_text(snippet("docs/deploy.md", "image:"))
    commands = snippet("docs/deploy.md", "kubectl create secret generic fairlane-queue")
    commands += snippet("docs/deploy.md", "kubectl create secret generic fairlane-viewer-key")
    in_pod = set(re.findall(r"kubectl exec (deploy/\S+) -- fairlane", (ROOT / "docs/deploy.md").read_text(encoding="utf-8")))
    commands = commands.replace("kubectl create secret generic", "echo secret").replace("kubectl exec deploy/fairlane -- ", "")
    commands = commands.replace("helm install", "> chart.yaml helm template")
    url = f"sqlite:///{tmp_path}/queue.db"
    printed = bash(f"fairlane migrate\n{commands}", tmp_path, FAIRLANE_URL=url)

    made: dict[str, dict[str, str]] = {}
    for line in re.findall(r"^secret (.*)", printed, re.MULTILINE):
        name, *values = shlex.split(line)
        made[name] = dict(value.removeprefix("--from-literal=").split("=", 1) for value in values)
    documents = [document for document in yaml.safe_load_all((tmp_path / "chart.yaml").read_text()) if document]
    referred = set(referenced_secrets(documents))
    assert {name for name, _ in referred} == set(made)
    assert all(key is None or key in made[name] for name, key in referred)
    assert in_pod <= {f"deploy/{document['metadata']['name']}" for document in documents if document["kind"] == "Deployment"}
    admin = re.findall(r"^fl_\S+$", printed, re.MULTILINE)[0]
    assert roles(url) == {
        auth.public_part(admin): "admin",
        auth.public_part(made["fairlane-viewer-key"]["key"]): "viewer",
    }


def test_the_units_run_what_the_docs_install(tmp_path: Path) -> None:
    """What makes a user, an environment and units for a whole system is put away: the commands of the units run instead."""
    away = ("useradd ", "python3 -m venv ", "/opt/fairlane/bin/pip ", "systemctl ")
    lines = snippet("docs/deploy.md", "useradd --system").splitlines()
    folders = {"-g fairlane ": "", "/etc/": f"{tmp_path}/etc/", "/var/lib/fairlane": f"{tmp_path}/state"}

    def here(text: str) -> str:
        for name, value in folders.items():
            text = text.replace(name, value)
        return text

    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    (tmp_path / "deploy").symlink_to(DEPLOY)
    *install, show = [here(line) for line in lines if not line.startswith(away)]
    bash("\n".join(install), tmp_path)
    assert (tmp_path / "etc/fairlane/environment").stat().st_mode & 0o777 == 0o640
    (enable,) = (line.split() for line in lines if line.startswith("systemctl enable"))
    for unit in enable[3:]:
        name, at, _ = unit.partition("@")
        assert "[Install]" in (units / f"{name}{at}.service").read_text()

    def command(unit: str) -> str:
        (found,) = re.findall(r"^ExecStart=/opt/fairlane/bin/(fairlane .*)$", (units / unit).read_text(), re.MULTILINE)
        return str(found)

    (tmp_path / "state").mkdir()
    url = here(re.findall(r"^FAIRLANE_URL=(.*)$", (tmp_path / "etc/fairlane/environment").read_text(), re.MULTILINE)[0])
    port, metrics = free_port(), free_port()
    work = command("fairlane-worker@.service").replace("910%i", str(metrics))
    with (
        beside(f"{command('fairlane.service')} --port {port}", tmp_path, port, FAIRLANE_URL=url),
        beside(work, tmp_path, metrics, FAIRLANE_URL=url),
    ):
        assert roles(url) == {auth.public_part(bash(show, tmp_path).strip()): "admin"}
        with Queue(url) as queue:
            (tmp_path / "letter.txt").write_text("Dear Sir or Madam")
            receipt = queue.submit("acme", path=tmp_path / "letter.txt", kind="extract")
            until(lambda: queue.document(receipt.id).state == "done", "the end of the document")


def test_handlers_of_ones_own_find_the_queue_by_its_variable(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(snippet("docs/deploy.md", "import os"))
    url = f"sqlite:///{tmp_path}/elsewhere.db"
    with Queue(url) as queue:
        receipt = queue.submit("acme", {"pages": 2}, kind="invoices")
        bash("fairlane work --until-empty tasks:worker", tmp_path, FAIRLANE_URL=url)
        assert queue.result(receipt.id) == {"pages": 2}
