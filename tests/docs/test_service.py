"""Commands and programs of docs/service.md, and of the page on upgrades, with a service that is started as the page says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import httpx
import pytest

from fairlane import Queue
from fairlane.api import auth
from fairlane.demo.formats import FORMATS
from fairlane.demo.texts import letter
from tests.api.running import SECONDS_MAX, until
from tests.conftest import need_program
from tests.servers.postgres import free_port
from tests.terminal import bash, beside

from .snippets import ROOT, snippet

ON_PORT, ON_THE_INTERNET = "http://127.0.0.1:8000", "https://fairlane.example.com"
KEY_ID = "3f9c2a7b51e08d46"  # of the page's examples


class Service(NamedTuple):
    """The service of the page, in a folder with an invoice."""

    folder: Path
    address: str
    queue: Queue
    admin_key: str

    def follow(self, block: str, **variables: str) -> str:
        """Run a block in the service's folder; return what it prints."""
        return bash(self.addressed(block), self.folder, **variables)

    def addressed(self, block: str) -> str:
        return block.replace(ON_PORT, self.address).replace(ON_THE_INTERNET, self.address)

    def get(self, key: str, path: str) -> Any:
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.get(self.address + path, headers=headers, timeout=SECONDS_MAX, trust_env=False).raise_for_status().json()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    need_program("curl")
    folder, port = tmp_path_factory.mktemp("service"), free_port()
    (folder / "invoice.pdf").write_bytes(FORMATS["pdf"](letter(Random(17), 17, 2)))
    install, serve = snippet("docs/service.md", "pip install --require-hashes").splitlines()
    (pins,) = re.findall(r"-r (\S+)", install)
    assert "--hash=sha256:" in (ROOT / pins).read_text()
    with beside(f"{serve} --port {port}", folder, port):
        first_key = folder / "fairlane.db.admin-key"
        until(first_key.exists, "the first admin's key")
        with Queue(f"sqlite:///{folder}/fairlane.db") as queue:
            yield Service(folder, f"http://127.0.0.1:{port}", queue, first_key.read_text().strip())


def test_an_admin_takes_customers_on_with_curl(service: Service) -> None:
    block = snippet("docs/service.md", 'curl -X POST -H "Authorization: Bearer $ADMIN_KEY"')
    acme, bolt = json.loads(service.follow(block, ADMIN_KEY=service.admin_key))["keys"]
    assert service.get(acme["key"], "/v1/me")["customer"] == "acme"
    assert service.get(bolt["key"], "/v1/me")["permissions"] == ["self", "submit"]
    assert bolt["expires_at"] - bolt["made_at"] == pytest.approx(7 * 86400)


def test_a_customers_server_makes_an_upload_token(service: Service) -> None:
    block = snippet("docs/service.md", 'curl -X POST -H "Authorization: Bearer $KEY"')
    key = auth.create(service.queue.engine, customer="acme")[0]
    made = json.loads(service.follow(block, KEY=key))
    assert made["token"].startswith("flu_")
    token = service.get(key, f"/v1/upload-tokens/{made['id']}")
    assert (token["state"], token["bytes_max"], token["payload"]) == ("unused", 10_000_000, {"user": 17})


def test_the_audit_log_is_searched_followed_and_fetched(service: Service) -> None:
    of_acme, of_the_key, follow, fetch = snippet("docs/service.md", "fairlane audit").splitlines(keepends=True)
    follow = follow.partition("#")[0].strip()
    operator, key = auth.create(service.queue.engine, role="operator", name="night shift")

    def pause(customer: str) -> None:
        with httpx.Client(headers={"Authorization": f"Bearer {operator}"}, timeout=SECONDS_MAX, trust_env=False) as client:
            client.patch(f"{service.address}/v1/customers/{customer}", json={"paused": True}).raise_for_status()

    pause("paused")
    commands = (of_acme.replace("acme", "paused") + of_the_key + fetch).replace(KEY_ID, key.id)
    printed = service.follow(commands, ADMIN_KEY=service.admin_key).splitlines()
    assert [f"operator {key.id} 'night shift' from 127.0.0.1  customer.pause  paused" in line for line in printed[:2]] == [
        True, True,
    ]  # fmt: skip
    assert "key.create" in {entry["action"] for entry in json.loads(printed[2])["entries"]}

    def followed() -> list[Any]:
        pause("followed")  # again, until the command is there to see it
        return [json.loads(line) for line in log.read_text().splitlines()]

    with beside(follow, service.folder):
        (log,) = service.folder.glob("fairlane-audit-*.log")
        (entry, *_) = until(followed, "an entry of the log that is followed")
    assert (entry["action"], entry["target"], entry["who"]["id"]) == ("customer.pause", "followed", key.id)


def test_a_program_submits_a_file_waits_and_watches(service: Service) -> None:
    program = snippet("docs/service.md", "from fairlane import Client")
    (service.folder / "client.py").write_text(service.addressed(program))
    (service.folder / "acme.key").write_text(auth.create(service.queue.engine, customer="watched")[0])
    size = (service.folder / "invoice.pdf").stat().st_size

    def printed() -> str:
        return (service.folder / "python-u-client-py.log").read_text()

    def is_seen() -> list[str]:
        service.queue.submit("watched")  # again, until the program watches
        return re.findall(r"^\d+ submitted [0-9a-f-]{36}$", printed(), re.MULTILINE)

    with beside("python -u client.py", service.folder):
        until(lambda: letter(Random(17), 17, 2).title in printed(), "the text of the invoice")
        until(is_seen, "an event")
    assert f"{size:,} of {size:,} bytes" in printed()
    (submitted,) = service.queue.documents("watched", kind="extract")
    assert f"submitted {submitted.id}" not in printed()  # that was before it watched


def test_commands_work_through_the_server(service: Service) -> None:
    key = auth.create(service.queue.engine, role="operator")[0]
    printed = service.follow(snippet("docs/service.md", "export FAIRLANE_SERVER").replace("fl_…", key))
    (document,) = service.queue.documents("acme", kind="extract")
    submitted, *status = printed.splitlines()
    assert re.fullmatch(rf"{document.id} +priority {document.priority} +counter 0 +invoice\.pdf", submitted)
    assert any(line.strip().startswith("acme ") for line in status)


def test_a_worker_is_drained_before_it_is_replaced(service: Service) -> None:
    (worker,) = until(service.queue.workers, "the worker")
    printed = service.follow(snippet("docs/how-to/upgrades.md", "fairlane workers").replace("NAME", worker.name))
    assert re.search(r"\bworking\b", printed)
    assert printed.endswith(f"{worker.name} has drained.\n")
    assert [worker.state for worker in service.queue.workers()] == ["drained"]
    service.queue.undrain_worker(worker.name)
