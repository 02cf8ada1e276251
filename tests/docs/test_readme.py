"""The README and the tour as a stranger follows them: commands and programs, in their order, in one empty folder."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairlane import Queue
from fairlane.core.document import Done
from fairlane.demo.formats import FORMATS
from fairlane.demo.texts import Letter, letter
from tests.conftest import need_program
from tests.servers.postgres import free_port
from tests.terminal import bash, beside

from .snippets import snippet

ON_PORT = "http://127.0.0.1:8000"


@pytest.fixture
def sent() -> Letter:
    return letter(Random(17), 17, 2)


@pytest.fixture
def folder(tmp_path: Path, sent: Letter) -> Path:
    """A folder with an invoice and an inbox."""
    invoice = FORMATS["pdf"](sent)
    (tmp_path / "invoice.pdf").write_bytes(invoice)
    (tmp_path / "inbox" / "acme").mkdir(parents=True)
    (tmp_path / "inbox" / "acme" / "letter.pdf").write_bytes(invoice)
    return tmp_path


def test_the_readme_runs_from_top_to_bottom_in_one_folder(folder: Path, sent: Letter) -> None:
    need_program("curl")
    port = free_port()
    (folder / "submit.py").write_text(snippet("README.md", "from fairlane import Queue"))
    (folder / "works.py").write_text(snippet("docs/tour.md", "from fairlane import Worker"))
    (folder / "client.py").write_text(snippet("docs/tour.md", "import os").replace(ON_PORT, f"http://127.0.0.1:{port}"))
    serve = snippet("docs/tour.md", "fairlane serve").partition("#")[0].strip()
    upload = snippet("docs/tour.md", "export FAIRLANE_KEY").replace(ON_PORT, f"http://127.0.0.1:{port}")
    assert "Priority 1, because acme's counter stood at 0" in bash("python submit.py", folder)
    with beside(f"{serve} --port {port}", folder, port):  # its worker leaves the documents without a file to that of the README
        printed = bash(f"{upload}python client.py", folder)
        bash("python works.py", folder)
        decoder = json.JSONDecoder()
        first, end = decoder.raw_decode(printed)  # the answers to curl, which ends no line
        second, end = decoder.raw_decode(printed, end)
        with Queue(f"sqlite:///{folder}/fairlane.db") as queue:
            assert [queue.wait(answer["id"], 60).state for answer in (first, second)] == ["done", "done"]
            states = Counter((document.kind, document.state) for document in queue.documents("acme"))
    assert states == {("default", "done"): 31, ("default", "cancelled"): 1, ("extract", "done"): 2}
    assert printed[end:].startswith("done ")  # what the program printed: the state, and the text
    assert sent.title in printed[end:]


def test_the_ten_lines_are_ten() -> None:
    assert len(snippet("README.md", "from fairlane import Queue").strip().splitlines()) <= 10


def test_a_check_alone_gives_a_priority(tmp_path: Path) -> None:
    with Queue(f"sqlite:///{tmp_path}/fairlane.db") as queue:
        names: dict[str, Any] = {"queue": queue}
        exec(snippet("docs/tour.md", "priority = queue.check"), names)
        assert (names["priority"], queue.look("acme").waiting) == (1, 0)


def test_the_commands_of_the_tour_run(folder: Path) -> None:
    (folder / "backup").mkdir()
    commands = snippet("docs/tour.md", "fairlane process inbox")
    commands = commands.replace("fairlane work ", "fairlane work --until-empty ").replace("/backup/", f"{folder}/backup/")
    printed = bash(commands, folder)
    assert "acme: priority 1, counter -1" in printed  # as the tour says
    with Queue(f"sqlite:///{folder}/fairlane.db") as queue:
        assert {document.state for document in queue.documents()} == {"done"}
    assert (folder / "backup" / "today" / "manifest.json").exists()


def test_yesterdays_workload_is_simulated_as_the_tour_says(folder: Path) -> None:
    lines = [f"{second},customer {second % 7},{1 + second % 3}" for second in range(0, 1200, 8)]
    (folder / "yesterday.csv").write_text("submitted_at,customer,service_s\n" + "\n".join(lines))
    with Queue(f"sqlite:///{folder}/fairlane.db") as queue:
        queue.submit_many("acme", [{"page": number} for number in range(30)])
        claims = queue.engine.claim("worker", 30, 60_000)
        queue.engine.settle([(claim, Done()) for claim in claims])
    printed = bash(snippet("docs/tour.md", "fairlane simulate flood"), folder)
    assert (folder / "report.html").exists()
    assert "light wait, p99" in printed
    assert "30 checks" in printed
