"""What the wheel installs: listed exactly in its SBOM, and looked up in an advisory database, or reported as not looked up.

`make sbom` writes the lists before the first test. The database here is a server of the test that speaks the protocol of OSV.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fairlane.version import __version__
from tests.api.test_tls import made as certificate
from tests.conftest import missing

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements"
AUDIT = ROOT / "build/audit/bin/python"
EXTRAS = tuple(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
APART = {"ray"}  # pinned, but not in the environment with all extras: its wheel is hundreds of megabytes


def made(path: Path) -> Path:
    if not path.exists():
        missing(f"there is no {path.relative_to(ROOT)}; run: make sbom")
    return path


def pinned(*names: str) -> dict[str, str]:
    """The packages that these requirements files install on this machine, with their versions."""
    lines = [line for name in names for line in (REQUIREMENTS / f"{name}.txt").read_text().splitlines()]
    requirements = [Requirement(line.removesuffix("\\").strip()) for line in lines if re.match(r"[a-z0-9]", line)]
    return {
        canonicalize_name(requirement.name): str(requirement.specifier).removeprefix("==")
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate()
    }


@pytest.mark.parametrize(
    ("name", "files"), [("sbom-alone.json", ("run",)), ("sbom.json", tuple(name for name in EXTRAS if name not in APART))]
)
def test_the_sbom_lists_exactly_the_pinned_packages(name: str, files: tuple[str, ...]) -> None:
    sbom = json.loads(made(ROOT / "build" / name).read_text())
    assert (sbom["bomFormat"], sbom["metadata"]["component"]["name"]) == ("CycloneDX", "fairlane")
    assert sbom["metadata"]["component"]["version"] == __version__
    listed = {canonicalize_name(component["name"]): component["version"] for component in sbom["components"]}
    assert listed == pinned(*files)
    assert len(listed) >= 9
    assert all(component["purl"].startswith("pkg:pypi/") for component in sbom["components"])


def test_the_sbom_holds_nothing_of_the_machine_that_made_it() -> None:
    for name in ("sbom-alone.json", "sbom.json"):
        text = made(ROOT / "build" / name).read_text()
        assert not re.search(r"file:|/home/|/root/|/opt/|/tmp/", text)
        assert str(ROOT) not in text


class Advisories(ThreadingHTTPServer):
    """An advisory database that knows something of some packages."""

    def __init__(self) -> None:
        self.known: dict[str, list[dict[str, Any]]] = {}
        self.queried: set[str] = set()
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1/query"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Advisories)
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = canonicalize_name(query["package"]["name"])
        self.server.queried.add(name)
        body = json.dumps({"vulns": self.server.known[name]} if name in self.server.known else {}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def advisories() -> Iterator[Advisories]:
    with Advisories() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def audited(*options: str, **variables: str) -> tuple[int, str]:
    """Run the audit of the packages that the wheel needs; returns its exit code and what it printed."""
    command = [str(made(AUDIT)), str(REQUIREMENTS / "audit.py"), *options, str(REQUIREMENTS / "run.txt")]
    environment = os.environ | {"NO_PROXY": "", "no_proxy": ""} | variables
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert ran.stderr == ""
    return ran.returncode, ran.stdout


def osv(advisories: Advisories) -> tuple[str, ...]:
    return "--service", "osv", "--osv-url", advisories.url


def test_packages_without_advisories_pass(advisories: Advisories) -> None:
    packages = pinned("run")
    assert audited(*osv(advisories)) == (
        0,
        f"{len(packages)} packages in 1 files audited, 0 of them with known vulnerabilities\n",
    )
    assert advisories.queried == set(packages)


def test_a_known_vulnerability_is_named_and_fails(advisories: Advisories) -> None:
    affected = [{"package": {"name": "pillow", "ecosystem": "PyPI"},
                 "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "999.1"}]}]}]  # fmt: skip
    advisories.known["pillow"] = [{"id": "PYSEC-2099-1", "summary": "a picture runs code", "affected": affected}]
    code, report = audited(*osv(advisories))
    assert code == 1
    assert f"pillow {pinned('run')['pillow']} (run.txt): PYSEC-2099-1, fixed in 999.1" in report


def test_a_database_out_of_reach_is_said_and_fails(advisories: Advisories) -> None:
    advisories.shutdown()
    advisories.server_close()
    code, report = audited(*osv(advisories))
    assert code == 2
    assert "NOT AUDITED: 1, because the advisory database is out of reach" in report
    assert "0 packages in 1 files audited" in report


class EmptyIndex(BaseRequestHandler):
    """A proxy behind which pypi.org knows no package, as some mirrors do, which have files and no advisories."""

    context: ssl.SSLContext

    def handle(self) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            request += self.request.recv(65536)
        assert request.startswith(b"CONNECT pypi.org:443 ")
        self.request.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        with self.context.wrap_socket(self.request, server_side=True) as line:
            while line.recv(65536):
                line.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")


def test_an_index_without_advisories_is_not_a_clean_audit(tmp_path: Path) -> None:
    """pip-audit calls it a success when it finds no package at all."""
    pair = certificate(tmp_path, "pypi", host="pypi.org")
    EmptyIndex.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    EmptyIndex.context.load_cert_chain(pair.certificate, pair.key)
    with ThreadingTCPServer(("127.0.0.1", 0), EmptyIndex) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{proxy.server_address[1]}"
        trusted = {"REQUESTS_CA_BUNDLE": pair.certificate, "SSL_CERT_FILE": pair.certificate}
        try:
            code, report = audited(HTTPS_PROXY=address, https_proxy=address, **trusted)
        finally:
            proxy.shutdown()
            thread.join()
    assert code == 2
    assert f"NOT AUDITED: {len(pinned('run'))}, because the advisory database is out of reach" in report


def test_a_file_that_is_pinned_for_users_is_audited() -> None:
    """Without names, every file of requirements/ is: those of every extra among them."""
    names = {path.stem for path in REQUIREMENTS.glob("*.txt")}
    assert names >= {"run", "dev", "lowest", "audit", "build", *EXTRAS}
