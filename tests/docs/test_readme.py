"""The README and the tour as a stranger follows them: commands and programs, in their order, in one empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from fairlane import Queue
from fairlane.demo.formats import FORMATS
from fairlane.demo.texts import letter
from tests.api.running import until
from tests.conftest import need_program
from tests.servers.postgres import free_port

from .snippets import snippet


class Stranger:
    """Somebody with an empty folder, an invoice and an inbox."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.letter = letter(Random(17), 17, 2)
        invoice = FORMATS["pdf"](self.letter)
        (folder / "invoice.pdf").write_bytes(invoice)
        (folder / "inbox" / "acme").mkdir(parents=True)
        (folder / "inbox" / "acme" / "letter.pdf").write_bytes(invoice)
        own = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRLANE_", "OTEL_"))}
        self.environment = own | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def bash(self, script: str) -> str:
        """Run a script as bash does in a terminal, and stop at the first command that fails; returns what it prints."""
        command = ["bash", "-euo", "pipefail", "-c", script]
        ran = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert ran.returncode == 0, f"{script}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def python(self, name: str, program: str) -> str:
        """Put a program into the folder; returns the command that runs it."""
        (self.folder / name).write_text(program)
        return f"python {name}"

    @contextmanager
    def running(self, command: str, port: int) -> Iterator[None]:
        """Run a server in another terminal."""
        with (self.folder / "server.log").open("wb") as log:
            server = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.environment, stdout=log, stderr=log
            )
        try:
            until(lambda: is_up(port) or server.poll() is not None, "the server's start")
            assert server.poll() is None, (self.folder / "server.log").read_text()
            yield
        finally:
            server.terminate()
            server.wait(60)


def is_up(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    return Stranger(tmp_path)


def test_the_readme_runs_from_top_to_bottom_in_one_folder(stranger: Stranger) -> None:
    need_program("curl")
    submits = stranger.python("submit.py", snippet("README.md", "from fairlane import Queue"))
    works = stranger.python("works.py", snippet("docs/tour.md", "from fairlane import Worker"))
    assert "Priority 1, because acme's counter stood at 0" in stranger.bash(submits)
    port = free_port()
    serve = (
        snippet("docs/tour.md", "fairlane serve")
        .replace("fairlane serve ", f"fairlane serve --port {port} ")
        .partition("#")[0]
        .strip()
    )
    client = stranger.python("client.py", snippet("docs/tour.md", "import os").replace("8000", str(port)))
    with stranger.running(serve, port):  # its worker leaves the documents without a file to that of the README
        sent = stranger.bash(snippet("docs/tour.md", "export FAIRLANE_KEY").replace("8000", str(port)) + client)
        stranger.bash(works)
        decoder = json.JSONDecoder()
        first, end = decoder.raw_decode(sent)  # the answers to curl, which ends no line
        second, end = decoder.raw_decode(sent, end)
        with Queue(f"sqlite:///{stranger.folder}/fairlane.db") as queue:
            assert [queue.wait(answer["id"], 60).state for answer in (first, second)] == ["done", "done"]
            states = Counter((document.kind, document.state) for document in queue.documents("acme"))
    assert states == {("default", "done"): 31, ("default", "cancelled"): 1, ("extract", "done"): 2}
    assert sent[end:].startswith("done ")  # what the program printed: the state, and the text
    assert stranger.letter.title in sent[end:]


def test_the_commands_of_the_readme_run(stranger: Stranger, tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    commands = snippet("docs/tour.md", "fairlane process inbox")
    commands = commands.replace("fairlane work ", "fairlane work --until-empty ").replace("/backup/", f"{tmp_path}/backup/")
    printed = stranger.bash(commands)
    assert "acme: priority 1, counter -1" in printed  # as the README says
    with Queue(f"sqlite:///{tmp_path}/fairlane.db") as queue:
        assert {document.state for document in queue.documents()} == {"done"}
    assert (tmp_path / "backup" / "today" / "manifest.json").exists()
