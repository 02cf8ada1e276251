"""Files with secrets that are open to others: commands and the service say so, once, and mend what is theirs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.settings import load_settings
from tests.api.receivers import serving
from tests.api.running import until
from tests.api.test_tls import made

from .running import run_program


def test_a_command_says_once_that_it_has_closed_a_queues_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    Queue(url).close()
    (tmp_path / "queue.db").chmod(0o644)
    expected = f"{tmp_path}/queue.db was open to other users of this machine (mode 644); it has mode 600 now\n"
    assert run_program("status", "--url", url) == (0, "No customers yet: nothing was submitted or checked.\n", expected)
    assert run_program("status", "--url", url)[2] == ""
    (tmp_path / "queue.db").chmod(0o644)
    code, stdout, stderr = run_program("status", "--json", "--url", url)
    assert (code, json.loads(stdout), stderr) == (0, [], expected)


def test_the_service_and_its_worker_log_it_as_json(tmp_path: Path) -> None:
    Queue(f"sqlite:///{tmp_path}/queue.db").close()
    with serving(tmp_path) as server:
        server.stop()
        (tmp_path / "queue.db").chmod(0o644)
        server.start()
        lines = until(lambda: [line for line in server.logged() if line["event"] == "warned"])
        assert "was open to other users of this machine (mode 644); it has mode 600 now" in lines[0]["told"]


def test_what_the_service_says_of_its_settings_is_json_too(tmp_path: Path) -> None:
    (tmp_path / "fairlane.toml").write_text('url = "postgresql://user:word@host/queue"')
    (tmp_path / "fairlane.toml").chmod(0o644)
    with serving(tmp_path) as server:
        lines = until(lambda: [line for line in server.logged() if line["event"] == "warned"])
        assert "fairlane.toml holds a password and can be read by every user of this machine (mode 644)" in lines[0]["told"]


@pytest.mark.parametrize(
    ("content", "mode", "is_reported"),
    [
        ('url = "postgresql://user:word@host/queue"', 0o644, True),
        ('url = "redis://:word@host/1"', 0o604, True),
        ('url = "postgresql://user:word@host/queue"', 0o600, False),
        ('url = "postgresql://user:word@host/queue"', 0o640, False),
        ('url = "postgresql://user@host/queue"', 0o644, False),
        ('url = "sqlite:///queue.db"\nblobs = "s3://bucket/files"', 0o644, False),
    ],
)
def test_a_password_in_a_settings_file_that_others_can_read_is_reported(
    tmp_path: Path, content: str, mode: int, is_reported: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "fairlane.toml"
    path.write_text(content)
    path.chmod(mode)
    for _ in range(2):
        load_settings(None, {}, tmp_path)
    messages = [record.getMessage() for record in caplog.records]
    expected = f"{path} holds a password and can be read by every user of this machine (mode {mode:o}); chmod 600 it"
    assert messages == ([expected] if is_reported else [])
    assert "word@" not in str(messages)


def test_a_key_of_a_certificate_that_others_can_read_is_reported(tmp_path: Path) -> None:
    pair = made(tmp_path, "localhost")
    Path(pair.key).chmod(0o644)
    options = ("--tls-certificate", pair.certificate, "--tls-key", pair.key)
    with serving(tmp_path, *options) as server:
        (line,) = until(lambda: [line for line in server.logged() if line["event"] == "warned"])
    assert line["told"].startswith(f"{pair.key} holds the key of the certificate and can be read by every user of this machine")
    assert Path(pair.key).stat().st_mode & 0o777 == 0o644  # it is not ours
