"""How does the service look with customers? A server of its own in a folder, one customer that floods it, several light ones.

Laws:
- Everything goes through the server, with keys, as strangers would use it.
- Whatever ends it, Ctrl-C, SIGTERM or a closed terminal: the server ends before the folder goes. kill -9 ends the server too.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click

from fairlane.api import auth as ring
from fairlane.client import Client
from fairlane.core.errors import FairlaneError, StoreError
from fairlane.demo.make import BIG
from fairlane.procs.syscalls import die_with_parent
from fairlane.queue import Look, Queue

from .common import seconds
from .display import terminal
from .watch import watch

PORTS = range(8000, 8010)
READY_SECONDS, STOP_SECONDS = 60, 60
LIGHT_SECONDS = (20.0, 40.0)  # between two documents of a light customer
INTERVAL_SECONDS = 60.0  # after so long of silence a counter is back at 0; for everybody else it is 1500 seconds
TOPPED_UP_BELOW = 150
FLOOD_AT_ONCE = 16
EAGER_SECONDS, EAGER_PAUSE, LATER_PAUSE = 150.0, 1.0, 90.0  # it floods without end at first, then less: the disk is not ours
LINE_SECONDS = 5.0
COLUMNS = ("customer", "counter", "next\npriority", "waiting", "running", "done", "failed", "oldest\nwait")


class Served(NamedTuple):
    """A server that runs, and the key of its operator."""

    process: subprocess.Popen[str]
    address: str
    key: str
    log: Path


def show(folder: Path, inbox: dict[str, list[str]], port: int | None) -> None:
    """Run the service in this folder and feed it with documents of each customer, until Ctrl-C."""
    try:
        with served(folder, _free_port() if port is None else port) as server:
            with Queue(_url(folder), create=False) as queue:
                queue.configure(reset="gradual", reset_interval=INTERVAL_SECONDS)
                keys = {customer: ring.create(queue.engine, customer=customer, name="sample")[0] for customer in inbox}
            click.echo(_told(server, keys))
            with _fed(server, keys, inbox), Client(server.address, server.key) as operator:
                _watched(lambda: _looks(server, operator))
    except KeyboardInterrupt:
        pass
    click.echo("Stopped; everything was removed.")


# -- the server --------------------------------------------------------------------------------------------------------


@contextmanager
def served(folder: Path, port: int) -> Iterator[Served]:
    """A server on this folder; it has ended when the block is left."""
    log, parent = folder / "log", os.getpid()

    def before_exec() -> None:
        if not die_with_parent(parent, signal.SIGTERM):
            os._exit(1)

    command = [sys.executable, "-m", "fairlane.cli", "serve", "--url", _url(folder), "--blobs", str(folder / "blobs"),
               "--port", str(port), "--slots", "1", "--json"]  # fmt: skip
    with log.open("w") as told:  # a session of its own: Ctrl-C is ours to answer
        process = subprocess.Popen(  # noqa: S603 it is this very program
            command, stdout=subprocess.PIPE, stderr=told, text=True, start_new_session=True, preexec_fn=before_exec
        )
    try:
        yield Served(process, *_address(process, log), log)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _address(process: subprocess.Popen[str], log: Path) -> tuple[str, str]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise StoreError(f"the server did not start: {_last_line(log)}")
    told = json.loads(line)
    return told["address"], told["operator_key"]


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return lines[-1].removeprefix("fairlane: ") if lines else "it said nothing"


def _free_port() -> int:
    """A port people expect, or 0: any that is free."""
    for port in PORTS:
        with socket.socket() as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                line.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    return 0


def _url(folder: Path) -> str:
    return f"sqlite:///{folder}/queue.db"


def _told(server: Served, keys: dict[str, str]) -> str:
    light = next((one for one in keys if one != BIG), BIG)
    program = sys.argv[0] if os.path.basename(sys.argv[0]) == "fairlane" else "fairlane"
    return "\n".join(
        (
            f"Fairlane runs. Open {server.address} in a browser, with one of these keys:",
            f"  {'operator, sees everything':28} {server.key}",
            f"  {f'{light}, sees only its own':28} {keys[light]}",
            "Try it:",
            f"  curl -H 'Authorization: Bearer {keys[light]}' {server.address}/v1/me",
            f"  FAIRLANE_KEY={server.key} {program} status --server {server.address}",
            f"{BIG} floods it; the others send a document now and then, and hardly wait. Counters are back at 0 after "
            f"{INTERVAL_SECONDS:g} s here, so that there is something to watch; elsewhere it is 1500 s.",
            "",
        )
    )


# -- the customers -----------------------------------------------------------------------------------------------------


@contextmanager
def _fed(server: Served, keys: dict[str, str], inbox: dict[str, list[str]]) -> Iterator[None]:
    """Customers that send, until the block is left."""
    over = threading.Event()
    clients = {customer: Client(server.address, key) for customer, key in keys.items()}
    threads = [
        threading.Thread(target=_quietly, args=(_flood if one == BIG else _send_lightly, client, inbox[one], over), daemon=True)
        for one, client in clients.items()
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for client in clients.values():
            client.close()
        for thread in threads:
            thread.join(STOP_SECONDS)


Feed = Callable[[Client, Sequence[str], threading.Event], None]


def _quietly(feed: Feed, client: Client, paths: Sequence[str], over: threading.Event) -> None:
    try:
        feed(client, paths, over)
    except FairlaneError as error:
        if not over.is_set():
            click.echo(f"a sample customer gave up: {error}", err=True)


def _flood(client: Client, paths: Sequence[str], over: threading.Event) -> None:
    """Everything at once, and again when most of it is done."""
    began = time.monotonic()
    while not over.is_set():
        if client.look().waiting < TOPPED_UP_BELOW:
            with ThreadPoolExecutor(FLOOD_AT_ONCE, thread_name_prefix="flood") as pool:
                list(pool.map(lambda path: over.is_set() or client.submit(path=path), paths))
        over.wait(EAGER_PAUSE if time.monotonic() - began < EAGER_SECONDS else LATER_PAUSE)


def _send_lightly(client: Client, paths: Sequence[str], over: threading.Event) -> None:
    """A document now and then."""
    number = 0
    while not over.wait(random.uniform(*LIGHT_SECONDS) * (1 if number else random.random())):
        client.submit(path=paths[number % len(paths)])
        number += 1


# -- what is shown -----------------------------------------------------------------------------------------------------


def _looks(server: Served, operator: Client) -> list[Look]:
    if server.process.poll() is not None:
        raise StoreError(f"the server ended by itself: {_last_line(server.log)}")
    return list(operator.customers())


def _watched(looks: Callable[[], list[Look]]) -> None:
    if terminal() is not None:
        return watch(looks, _row, COLUMNS)
    while True:
        click.echo(_line(looks()))
        time.sleep(LINE_SECONDS)


def _row(one: Look) -> Sequence[object]:
    return (one.customer, one.counter, one.next_priority, one.waiting, one.running, one.done, one.failed,
            seconds(one.oldest_wait))  # fmt: skip


def _line(looks: Sequence[Look]) -> str:
    """Where it stands, on one line."""
    told = []
    for name, is_big in ((BIG, True), ("others", False)):
        some = [one for one in looks if (one.customer == BIG) == is_big]
        waiting, done = sum(one.waiting for one in some), sum(one.done for one in some)
        priority = max((one.next_priority for one in some), default=1)
        told.append(f"{name}: {waiting:,} waiting, {done:,} done, next priority {priority}")
    return f"{time.strftime('%H:%M:%S')}  {'; '.join(told)}"
