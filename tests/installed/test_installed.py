"""The wheel, installed as strangers do: alone, with every extra as pinned, and with the lowest versions that it allows.

`make wheel` makes the environments before the first test.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fairlane.encryption.keyring import KEYS_VARIABLE, new_key
from tests.conftest import missing
from tests.servers import postgres, redis
from tests.servers.otlp import Receiver
from tests.servers.s3 import BUCKET, s3_server

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / "build/installed"
STRANGER = Path(__file__).with_name("stranger.py")
READABLE = {".csv", ".docx", ".eml", ".html", ".json", ".md", ".pdf", ".txt"}


def python(environment: str) -> str:
    path = ENVIRONMENTS / environment / "bin/python"
    if not path.exists():
        missing(f"there is no environment {path.relative_to(ROOT)}; run: make wheel")
    return str(path)


def ran(environment: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRLANE_", "OTEL_", "PYTHON"))}
    command = [python(environment), "-P", *arguments]
    return subprocess.run(command, env=kept | variables, cwd="/", capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def url(engine: str, tmp_path: Path) -> Iterator[str]:
    if engine == "postgres":
        yield f"{postgres.shared().url}?schema=installed_{os.urandom(4).hex()}"
    elif engine == "redis":
        yield (found := redis.shared("redis").url())
        redis.drop_url(found)
    else:
        yield f"sqlite:///{tmp_path}/queue.db"


@pytest.mark.parametrize(
    ("environment", "engine"), [("extras", "sqlite"), ("lowest", "sqlite"), ("lowest", "postgres"), ("lowest", "redis")]
)  # all other tests run with the pinned versions
def test_a_stranger_submits_works_off_and_serves(environment: str, url: str) -> None:
    with ExitStack() as stack:
        receiver = Receiver()
        stack.callback(receiver.close)
        variables = stack.enter_context(s3_server()) | receiver.variables
        if environment == "lowest":
            variables[KEYS_VARIABLE] = new_key()
        done = ran(environment, str(STRANGER), url, f"s3://{BUCKET}/installed", **variables)
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        assert result["formats"] == {suffix: ["done", True] for suffix in READABLE}
        assert set(result["pictures"]) == READABLE - {".eml"}
        assert result["differences"] == []
        assert result["served"] == {"state": "done", "text": True, "page": True, "metrics": True, "exit": 0}
        assert receiver.spans, "traces are sent where the environment says so"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--version",), 0, "fairlane, version"),
        (("serve",), 2, "pip install '.[serve]'"),
        (("status", "--url", "postgresql://127.0.0.1:1/none"), 3, 'pip install ".[postgres]"'),
        (("status", "--url", "redis://127.0.0.1:1/0"), 3, 'pip install ".[redis]"'),
    ],
)
def test_without_extras_the_command_says_what_to_install(arguments: tuple[str, ...], code: int, message: str) -> None:
    done = ran("alone", "-m", "fairlane", *arguments)
    assert (done.returncode, message in done.stdout + done.stderr, "Traceback" in done.stderr) == (code, True, False), (
        done.stderr
    )


def test_without_the_extra_encryption_says_what_to_install(tmp_path: Path) -> None:
    done = ran("alone", "-m", "fairlane", "status", "--url", f"sqlite:///{tmp_path}/queue.db", **{KEYS_VARIABLE: new_key()})
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)
    assert 'pip install ".[encryption]"' in done.stderr


def test_alone_it_works_files_off(tmp_path: Path) -> None:
    for arguments in (["demo", "inbox", "--big", "12"], ["process", "inbox", "--json", "--out", "out"]):
        done = ran(
            "alone", "-m", "fairlane", *(str(tmp_path / part) if part in ("inbox", "out") else part for part in arguments)
        )
        assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["documents"] >= 32, summary["failed"]) == (True, [])
    assert len(list((tmp_path / "out").rglob("*.md"))) == summary["documents"]


def test_the_licence_of_the_font_is_in_the_wheel() -> None:
    assert [path.name for path in (ENVIRONMENTS / "alone").rglob("*.dist-info/licenses/**/LICENSE-DejaVu.txt")]
