"""A real RabbitMQ server for tests: Debian's, on free ports, in a temporary folder, with a node name and an epmd of its own.

As root it runs as the user `rabbitmq`. Erlang would start its port mapper, epmd, as a daemon that outlives the run; here it is
a child that is stopped with it.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

import amqp

from fairlane.procs.syscalls import set_parent_death_signal
from tests.conftest import need_program

from .redis import free_port

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # the one on the PATH changes the user and the log files
UP_SECONDS = 60.0
CONFIG = """
listeners.tcp.1 = 127.0.0.1:{port}
log.console = true
log.file = false
vm_memory_high_watermark.absolute = 1GB
disk_free_limit.absolute = 1MB
"""
ERLANG = "-noinput +sbwt none +sbwtdcpu none +sbwtdio none"  # no busy waiting: other tests need the processor


class Server:
    """A server with a port and a folder that outlives a kill; it may be killed and started again."""

    def __init__(self) -> None:
        need_program("rabbitmq-server")
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="fairlane-rabbitmq-"))
        self._user = pwd.getpwnam("rabbitmq").pw_uid if os.geteuid() == 0 else None
        config = self.folder / "rabbitmq.conf"
        config.write_text(CONFIG.format(port=self.port))
        self._epmd_port = free_port()
        self._environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.folder), "LANG": "C.UTF-8", "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_NODENAME": f"fairlane{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(config), "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder), "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_DIST_PORT": str(free_port()), "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG,
            "RABBITMQ_ALLOW_INPUT": "yes",  # no shell between this process and the server
        }  # fmt: skip
        if self._user is not None:
            for path in (self.folder, config):
                os.chown(path, self._user, self._user)
        self._epmd: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.remove)
        self.start()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def _spawn(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command, user=self._user, group=self._user, cwd=self.folder, env=self._environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
                preexec_fn=partial(set_parent_death_signal, signal.SIGKILL),  # also when the run is killed
            )  # fmt: skip

    def start(self, waits: bool = True) -> None:
        """Start it, and wait until it answers."""
        if self._epmd is None:
            self._epmd = self._spawn("epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1")
        self._process = self._spawn(str(PROGRAM))
        if waits:
            self.wait()

    def wait(self) -> None:
        """Wait until it answers."""
        assert self._process is not None
        deadline = time.monotonic() + UP_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"rabbitmq-server did not start: {(self.folder / 'log').read_text(errors='replace')[-1500:]}"
                )
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)

    def _answers(self) -> bool:
        try:
            with self.connect():
                return True
        except (OSError, amqp.exceptions.AMQPError):
            return False

    def connect(self) -> amqp.Connection:
        """Return a plain connection, for a `with`."""
        connection = amqp.Connection(f"127.0.0.1:{self.port}", connect_timeout=5)
        connection.connect()
        return connection

    def kill(self) -> None:
        """kill -9; its helpers end with it."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def remove(self) -> None:
        """Stop it for good."""
        self.kill()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def shared() -> Server:
    """The one server that tests share; each uses queues of its own."""
    return Server()
