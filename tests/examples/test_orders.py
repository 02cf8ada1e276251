"""The examples of FastAPI and Django, as their READMEs show them: a service that takes orders, and a worker."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from fairlane import Queue
from tests.api.running import until
from tests.conftest import need_program
from tests.docs.snippets import snippet
from tests.servers import postgres
from tests.terminal import bash, beside

from .running import after_pip, copy_example


def new_database(name: str) -> str:
    """Make an empty database on the shared server and return its URL."""
    server = postgres.shared()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name}")
    return server.url.removesuffix("postgres") + name


WRITTEN_URL = "postgresql://user:password@localhost:5432/database"
FASTAPI = (
    snippet("examples/fastapi-postgresql/README.md", 'pip install ".[postgres]"'),
    snippet("examples/fastapi-postgresql/README.md", "uvicorn app:app"),
    snippet("examples/fastapi-postgresql/README.md", "curl -sS", 0),
    snippet("examples/fastapi-postgresql/README.md", "curl -sS", 1),
)
DJANGO = (
    snippet("examples/django/README.md", 'pip install ".[postgres]"'),
    snippet("examples/django/README.md", "python manage.py runserver"),
    snippet("examples/django/README.md", "curl -sS", 0),
    snippet("examples/django/README.md", "curl -sS", 1),
)


@pytest.mark.parametrize(("name", "readme"), [("fastapi-postgresql", FASTAPI), ("django", DJANGO)])
def test_an_order_is_processed_and_one_that_is_refused_at_the_commit_leaves_nothing(
    name: str, readme: tuple[str, ...], tmp_path: Path
) -> None:
    need_program("curl")
    folder, url, port = copy_example(name, tmp_path), new_database(name.partition("-")[0]), postgres.free_port()
    install, programs, order, again = (block.replace("8080", str(port)) for block in readme)
    serve, work = programs.splitlines()
    ask, look = order.splitlines()

    def call(command: str) -> dict[str, object]:
        answer = json.loads(bash(command, folder, DATABASE_URL=url))
        assert isinstance(answer, dict)
        return answer

    bash(after_pip(install).replace(WRITTEN_URL, url), tmp_path)
    with beside(serve, folder, port, DATABASE_URL=url):
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
