"""Programs are started in a folder where somebody has put modules with the names of libraries: none of them is run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.procs.python import drop_working_directory, module_path, python_command
from tests.api.running import Server, until
from tests.console.page_client import signed_in

PLANTED = ("apsw", "json", "socket", "typing", "subprocess", "click", "PIL", "pypdfium2", "charset_normalizer", "fastapi")
TASKS = """
import os
from fairlane import Worker
worker = Worker({url!r}, slots=1)

@worker.handler("default")
def handle(document):
    import helper  # not before
    return helper.NAME
"""


class Trap:
    """A working directory with planted modules, each of which leaves a trace when it is run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.traces = folder / "here", folder / "traces"
        for path in (self.folder, self.traces):
            path.mkdir()
        for name in PLANTED:
            (self.folder / f"{name}.py").write_text(f"open({str(self.traces / name)!r}, 'w').close()\n")

    def sprung(self) -> list[str]:
        """The planted modules that have been run."""
        return sorted(os.listdir(self.traces))

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a Python in this folder."""
        command = [sys.executable, *arguments]
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRLANE_", "PYTHON"))}
        return subprocess.run(
            command, cwd=self.folder, env=variables | environment, capture_output=True, text=True, check=True, timeout=120
        )


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with Queue(f"sqlite:///{tmp_path}/queue.db") as queue:
        yield queue.url


def test_the_trap_works(trap: Trap) -> None:
    trap.run("-c", "import apsw, json")
    assert trap.sprung() == ["apsw", "json"]


@pytest.mark.parametrize("start", [("-P", "-m", "fairlane"), (str(Path(sys.executable).parent / "fairlane"),)])
def test_the_built_in_worker_runs_none(trap: Trap, url: str, start: tuple[str, ...], tmp_path: Path) -> None:
    """Nor do its heartbeat and the fork server of its sandbox."""
    (tmp_path / "a.txt").write_text("text")
    with Queue(url) as queue:
        id = queue.submit("acme", path=tmp_path / "a.txt").id
        trap.run(*start, "work", "--until-empty", "--url", url)
        assert (queue.document(id).state, trap.sprung()) == ("done", [])


def test_the_service_its_worker_and_its_simulation_run_none(trap: Trap) -> None:
    server = Server(trap.folder, work=True)
    try:
        with server.client(server.key("acme")) as client, signed_in(server, server.operator) as page:
            id = client.post("/v1/documents", files={"file": ("a.txt", b"text")}).json()["id"]
            until(lambda: server.queue.document(id).state == "done", "the document")
            assert page.post("/page/what-if", json={}).json()["documents"] == 1
    finally:
        server.close()
    assert trap.sprung() == []


def test_a_worker_of_an_installed_module_runs_none(trap: Trap, url: str, tmp_path: Path) -> None:
    """Though `fairlane work` takes modules of the working directory too."""
    library = tmp_path / "library"
    library.mkdir()
    (library / "tasks.py").write_text(TASKS.format(url=url))
    (library / "helper.py").write_text("NAME = 'of the library'")
    with Queue(url) as queue:
        id = queue.submit("acme", 1).id
        trap.run("-P", "-m", "fairlane", "work", "--until-empty", "tasks:worker", PYTHONPATH=str(library))
        assert (queue.result(id), trap.sprung()) == ("of the library", [])


@pytest.mark.parametrize("arguments", [("-P", "-m", "fairlane", "work", "--until-empty", "tasks:worker"), ("tasks.py",)])
def test_a_worker_of_the_working_directory_finds_its_own_modules(url: str, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "tasks.py").write_text(TASKS.format(url=url) + "if __name__ == '__main__': worker.run(until_empty=True)\n")
    (tmp_path / "helper.py").write_text("NAME = 'beside it'")
    with Queue(url) as queue:
        id = queue.submit("acme", 1).id
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRLANE_", "PYTHON"))}
        subprocess.run([sys.executable, *arguments], cwd=tmp_path, env=variables, check=True, capture_output=True, timeout=120)
        assert queue.result(id) == "beside it"


# -- the path of modules


def test_the_working_directory_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    monkeypatch.setattr(sys, "path", ["", ".", str(tmp_path), str(link), "/usr/lib/python", "relative"])
    assert module_path("fairlane") == ["/usr/lib/python"]


def test_a_working_directory_that_the_modules_come_from_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted_package").mkdir()
    (tmp_path / "planted_package" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert module_path("fairlane", "planted_package.module")[0] == str(tmp_path)
    assert str(tmp_path) not in module_path("fairlane")
    assert python_command("planted_package") == (sys.executable, "-m", "planted_package")
    assert python_command("fairlane.cli") == (sys.executable, "-P", "-m", "fairlane.cli")


def test_a_working_directory_that_is_gone_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert python_command("fairlane.cli")[1] == "-P"
    assert [folder for folder in module_path("fairlane") if not os.path.isabs(folder)] == []


def test_python_m_puts_the_working_directory_first_and_it_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), "/usr/lib/python"])
    drop_working_directory()
    assert sys.path == ["/usr/lib/python"]
    drop_working_directory()
    assert sys.path == ["/usr/lib/python"]
