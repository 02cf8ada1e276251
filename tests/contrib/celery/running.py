"""How tests run Celery: brokers, workers as processes of their own, and what the workers write down."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any, Self

import amqp

from fairlane.procs.syscalls import set_parent_death_signal
from tests.api.running import until
from tests.servers import rabbitmq, redis

ROOT = Path(__file__).parents[3]
PROJECT = "tests.contrib.celery.proj"
KEEPS = ("--appendonly", "yes", "--appendfsync", "everysec")  # options of a Redis that is killed
PATIENT = 60  # seconds for a check: a busy machine is not a store that is away
PUBLISHER = """
import contextlib, io, json, traceback
for line in sys.stdin:
    text, *sys.argv[1:] = json.loads(line)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(text, {**globals()})
        printed = output.getvalue()
    except Exception:
        traceback.print_exc()
        printed = None
    print(json.dumps(printed), flush=True)
"""
_queues = count(1)


class RabbitMQ:
    """RabbitMQ as a broker of Celery's, and what is in its queues, seen without Celery."""

    name = "rabbitmq"
    numbers = (9, 8, 7, 6, 5, 4, 3, 2, 1)  # of our priorities, 1 first

    def __init__(self, server: rabbitmq.Server) -> None:
        self.server = server
        self.url = server.url

    def take(self, queue: str) -> list[dict[str, Any]]:
        """Take all messages out, in the broker's order: the priority as the broker has it, and the headers."""
        with self.server.connect() as connection:
            channel, taken = connection.channel(), []
            with contextlib.suppress(amqp.NotFound):  # nothing was ever published to it
                while (message := channel.basic_get(queue, no_ack=True)) is not None:
                    taken.append({"number": message.properties.get("priority"), "headers": message.headers})
            return taken


class RedisBroker:
    """Redis as a broker of Celery's, and what is in its queues, seen without Celery."""

    name = "redis"
    numbers = (0, 1, 2, 3, 4, 5, 6, 7, 8)
    SEPARATOR = "\x06\x16"  # of the name of a queue and a step of priority, in the key of its list

    def __init__(self, server: redis.Server) -> None:
        self.server = server
        self.url = f"redis://127.0.0.1:{server.port}/0"

    def take(self, queue: str) -> list[dict[str, Any]]:
        taken: list[dict[str, Any]] = []
        with self.server.client() as client:
            for number in range(10):
                key = f"{queue}{self.SEPARATOR}{number}" if number else queue
                while (message := client.rpop(key)) is not None:
                    taken.append({"number": number, "headers": json.loads(str(message))["headers"]})
        return taken


class Project:
    """One use of the project: a broker, a queue of its own, a store of counters, and a file that workers write to."""

    def __init__(
        self,
        folder: Path,
        broker: RabbitMQ | RedisBroker,
        store: str,
        *,
        backend: str | None = None,
        settings: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        customer: str = "customer",
        is_bridge: bool = False,
    ) -> None:
        self.store, self.is_bridge = store, is_bridge
        self.broker = broker
        self.queue = f"queue-{os.getpid()}-{next(_queues)}"
        self.record = folder / f"{self.queue}.jsonl"
        self.record.touch()
        self._records: list[dict[str, Any]] = []
        self._read_bytes = 0
        self.folder = folder
        self._publisher: subprocess.Popen[str] | None = None
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("FAIRLANE_", "CELERY_", "TEST_"))},
            "TEST_BROKER": broker.url, "TEST_STORE": store, "TEST_QUEUE": self.queue, "TEST_RECORD": str(self.record),
            "TEST_SETTINGS": json.dumps(settings or {}), "TEST_OPTIONS": json.dumps({"timeout": PATIENT, **(options or {})}),
            "TEST_WAY": "bridge" if is_bridge else "light", "TEST_CUSTOMER": json.dumps(customer),
            "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
            "PYTHONWARNINGS": "ignore",
            **({"TEST_BACKEND": backend} if backend else {}),
        }  # fmt: skip

    def celery(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Celery's to its end."""
        return subprocess.run(
            [sys.executable, "-m", "celery", "-A", PROJECT, *arguments], env=self.environment | variables, cwd=self.folder,
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    def script(self, text: str, *arguments: str) -> subprocess.Popen[str]:
        """Run a program that publishes, in a process of its own; what it prints can be read."""
        command = [sys.executable, "-c", f"import sys\nfrom {PROJECT} import *\n{text}", *arguments]
        return subprocess.Popen(
            command, env=self.environment, cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @contextlib.contextmanager
    def publisher(self) -> Iterator[None]:
        """Have one process run the programs of `publish` until the block ends, instead of one each."""
        with self.script(PUBLISHER) as self._publisher:
            yield
            assert self._publisher.stdin is not None
            self._publisher.stdin.close()

    def publish(self, text: str, *arguments: str) -> str:
        """Run a program that publishes to its end; return what it prints."""
        if self._publisher is not None:
            assert self._publisher.stdin is not None
            assert self._publisher.stdout is not None
            print(json.dumps([text, *arguments]), file=self._publisher.stdin, flush=True)
            printed: str | None = json.loads(self._publisher.stdout.readline())
            assert printed is not None, text
            return printed
        with self.script(text, *arguments) as process:
            printed, _ = process.communicate(timeout=60)
        assert process.returncode == 0, text
        return printed

    def records(self) -> list[dict[str, Any]]:
        """What tasks wrote down, in the order in which they began; only what is new is read."""
        with self.record.open("rb") as file:
            file.seek(self._read_bytes)
            lines = file.read().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        self._read_bytes += sum(map(len, lines))
        self._records += map(json.loads, lines)
        return self._records

    def wait_for(self, number: int) -> list[dict[str, Any]]:
        """Wait until so many tasks have begun, for as long as some do; return what they wrote down."""
        while (begun := len(self.records())) < number:
            until(partial(self._has_more_than, begun), f"task {begun + 1} of {number}")
        return self.records()

    def _has_more_than(self, begun: int) -> bool:
        return len(self.records()) > begun


class Feeder:
    """A feeder of the bridge as a process of its own."""

    def __init__(self, project: Project) -> None:
        self.log = project.folder / f"feeder-{project.queue}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", PROJECT, "fairlane", "feed"], env=project.environment,
                cwd=project.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=partial(set_parent_death_signal, signal.SIGKILL),
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """End it as a service manager does; return its exit code."""
        self.process.terminate()
        return self.process.wait(30)


class Worker:
    """A worker of Celery's as a process of its own, with its pool."""

    def __init__(self, project: Project, concurrency: int = 2, *options: str) -> None:
        self.log = project.folder / f"worker-{project.queue}.log"
        command = [
            sys.executable, "-m", "celery", "-A", PROJECT, "worker", "--concurrency", str(concurrency), "--loglevel", "INFO",
            "--without-mingle", "--without-gossip", "--without-heartbeat", "--hostname", f"{project.queue}@localhost", *options,
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=project.environment, cwd=project.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=partial(set_parent_death_signal, signal.SIGKILL),
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait_until_ready(self) -> None:
        until(lambda: " ready." in self.log.read_text() or self.process.poll() is not None, "the worker's start")
        assert self.process.poll() is None, self.log.read_text()[-3000:]

    def kill(self) -> None:
        """End the worker and its pool at once."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@cache
def redis_with_port() -> redis.Server:
    """A Redis with a port, whose every write is in its file before the reply, so that a kill loses nothing."""
    return redis.Server("redis", *KEEPS, port=redis.free_port())


def open_broker(name: str) -> RabbitMQ | RedisBroker:
    """The broker of this name that tests share."""
    return RabbitMQ(rabbitmq.shared()) if name == "rabbitmq" else RedisBroker(redis_with_port())
