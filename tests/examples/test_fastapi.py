"""The example of FastAPI, as its README shows it."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg

from fairlane import Queue
from tests.api.running import until
from tests.conftest import need_program
from tests.house.test_readme import is_up
from tests.servers import postgres

from .running import bash, beside, blocks, copy_example


def new_database(name: str) -> str:
    """Make an empty database on the shared server and return its URL."""
    server = postgres.shared()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name}")
    return server.url.removesuffix("postgres") + name


def test_the_readme_runs(tmp_path: Path) -> None:
    need_program("curl")
    folder, url, port = copy_example("fastapi-postgresql", tmp_path), new_database("orders"), postgres.free_port()
    _, programs, order, _, again = (block.replace("8080", str(port)) for block in blocks(folder))
    serve, work = programs.splitlines()
    ask, look = order.splitlines()

    def call(command: str) -> dict[str, object]:
        answer = json.loads(bash(command, folder, DATABASE_URL=url))
        assert isinstance(answer, dict)
        return answer

    with beside(serve, folder, lambda: is_up(port, "/docs"), DATABASE_URL=url):
        ordered = call(ask)
        with Queue(url) as queue:
            document = queue.document(str(ordered["document"]))
            assert (document.state, document.customer, ordered["priority"]) == ("ready", "acme", 1)
        with beside(work, folder, DATABASE_URL=url):
            until(lambda: call(look)["state"] == "done", "the end of the order")
        assert call(look) == {"customer": "acme", "number": "A-1", "state": "done", "pages": 1}
        printed = bash(again, folder, DATABASE_URL=url)
    assert "acme has ordered A-1 before" in printed
    with Queue(url) as queue:
        assert (len(list(queue.documents())), queue.look("acme").counter) == (1, 0)
