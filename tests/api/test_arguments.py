"""No secret in the arguments of any process: everybody on the machine can read them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fairlane import Queue
from tests.cli.running import start
from tests.servers import postgres
from tests.worker.conftest import process_tree

from .running import Server, until

PASSWORD = "hunter2"


def arguments(pid: int) -> dict[int, str]:
    """Return the arguments of a process and of everything below it."""
    found = {}
    for each in process_tree(pid):
        try:
            found[each] = Path(f"/proc/{each}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
        except OSError:  # it has just ended
            continue
    return found


@pytest.fixture
def url() -> str:
    """A queue whose URL holds a password; the server of the tests trusts everybody and ignores it."""
    return postgres.empty_queue(postgres.shared()).replace("fairlane@", f"fairlane:{PASSWORD}@")


def test_no_process_of_a_worker_shows_the_password(tmp_path: Path, url: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one two\n")
    with Queue(url, blobs=str(tmp_path / "blobs")) as queue:
        environment = {"FAIRLANE_URL": url, "FAIRLANE_BLOBS": str(tmp_path / "blobs")}
        with start("work", environment=environment, cwd=tmp_path) as worker:
            id = queue.submit("acme", path=path).id
            until(lambda: queue.document(id).state == "done")
            shown = arguments(worker.pid)  # worker, heartbeat, fork servers of handlers and of the sandbox, children
            worker.terminate()
    assert len(shown) >= 5
    assert [text for text in shown.values() if PASSWORD in text] == []


def test_no_process_of_a_server_shows_the_password(tmp_path: Path, url: str) -> None:
    server = Server(tmp_path, "--blobs", str(tmp_path / "blobs"), work=True, url=url)
    try:
        with server.client(server.operator) as client:
            receipt = client.post(
                "/v1/documents", params={"customer": "acme"}, content=b"one", headers={"Content-Type": "text/plain"}
            )
            assert client.get(receipt.json()["links"]["self"], params={"wait": 60}).json()["state"] == "done"
            request = threading.Thread(target=client.post, args=["/page/what-if"], kwargs={"json": {}})
            request.start()
            shown = until(lambda: _with_what_if(server.process.pid), "the process of what-if")
            request.join()
        assert len(shown) >= 7
        assert [text for text in shown.values() if PASSWORD in text] == []
    finally:
        server.close()


def _with_what_if(pid: int) -> dict[int, str]:
    """Return all arguments once the process of what-if is among them."""
    shown = arguments(pid)
    return shown if any("what_if" in text for text in shown.values()) else {}
