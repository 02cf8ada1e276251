"""A demo service: a server in a folder, one customer that floods it and several that send a document now and then.

Laws:
- All traffic goes through the server, with keys, as it does for real customers.
- However the demo ends (Ctrl-C, SIGTERM, a closed terminal), the server ends before its folder is removed. After kill -9 the
  kernel ends the server too.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from fairlane.api import auth as ring
from fairlane.client import Client
from fairlane.core.errors import FairlaneError, StoreError
from fairlane.procs.python import python_command
from fairlane.procs.syscalls import die_with_parent
from fairlane.queue import Queue

from .make import BIG

PORTS = range(8000, 8010)
STOP_SECONDS = 60
LIGHT_SECONDS = (20.0, 40.0)  # between two documents of a light customer
INTERVAL_SECONDS = 60.0  # the demo's reset interval; the default is 1500 seconds
REFILL_BELOW = 150
FLOOD_THREADS = 16
EAGER_SECONDS, EAGER_PAUSE, LATER_PAUSE = 150.0, 1.0, 90.0  # flood less after a while, so that the disk does not fill up


class DemoServer:
    """A running server process, its address and its admin's key."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise StoreError(f"the server did not start: {self._last_log_line()}")
        started = json.loads(line)
        self.address: str = started["address"]
        self.key: str = Path(started["admin_key_file"]).read_text().strip()

    def check_running(self) -> None:
        """Raise a StoreError if the server has exited."""
        if self._process.poll() is not None:
            raise StoreError(f"the server exited unexpectedly: {self._last_log_line()}")

    def _last_log_line(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return lines[-1].removeprefix("fairlane: ") if lines else "its log is empty"


@contextmanager
def run_server(folder: Path, port: int) -> Iterator[DemoServer]:
    """Run a server in this folder; it has exited when the block is left."""
    log, parent = folder / "log", os.getpid()

    def before_exec() -> None:
        if not die_with_parent(parent, signal.SIGTERM):
            os._exit(1)

    command = [*python_command("fairlane.cli"), "serve", "--url", _url(folder), "--blobs", str(folder / "blobs"),
               "--port", str(port), "--slots", "1", "--json"]  # fmt: skip
    with log.open("w") as log_file:  # a session of its own, so that Ctrl-C reaches only the demo, which then stops the server
        process = subprocess.Popen(  # noqa: S603 it is this very program
            command, stdout=subprocess.PIPE, stderr=log_file, text=True, start_new_session=True, preexec_fn=before_exec
        )
    try:
        yield DemoServer(process, log)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def free_port() -> int:
    """Return the first free port of PORTS; 0 (any free port) if all are taken."""
    for port in PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    return 0


def create_keys(folder: Path, customers: Sequence[str]) -> dict[str, str]:
    """Shorten the reset interval and create a key for each customer."""
    with Queue(_url(folder), create=False) as queue:
        queue.configure(reset="sliding", reset_interval=INTERVAL_SECONDS)
        return {customer: ring.create(queue.engine, customer=customer, name="sample")[0] for customer in customers}


def _url(folder: Path) -> str:
    return f"sqlite:///{folder}/queue.db"


# -- the customers -----------------------------------------------------------------------------------------------------


@contextmanager
def send_documents(
    address: str, keys: dict[str, str], inbox: dict[str, list[str]], report: Callable[[str], None]
) -> Iterator[None]:
    """Let the customers send documents until the block is left; `report` gets a sentence about one that fails."""
    stop = threading.Event()
    clients = {customer: Client(address, key) for customer, key in keys.items()}

    def run(customer: str) -> None:
        send = _flood if customer == BIG else _send_now_and_then
        try:
            send(clients[customer], inbox[customer], stop)
        except FairlaneError as error:
            if not stop.is_set():
                report(f"a sample customer stopped: {error}")

    threads = [threading.Thread(target=run, args=(customer,), daemon=True) for customer in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for client in clients.values():
            client.close()
        for thread in threads:
            thread.join(STOP_SECONDS)


def _flood(client: Client, paths: Sequence[str], stop: threading.Event) -> None:
    """Send all documents at once, and again when most of them are done."""
    began = time.monotonic()
    while not stop.is_set():
        if client.look().waiting < REFILL_BELOW:
            with ThreadPoolExecutor(FLOOD_THREADS, thread_name_prefix="flood") as pool:
                list(pool.map(lambda path: stop.is_set() or client.submit(path=path), paths))
        stop.wait(EAGER_PAUSE if time.monotonic() - began < EAGER_SECONDS else LATER_PAUSE)


def _send_now_and_then(client: Client, paths: Sequence[str], stop: threading.Event) -> None:
    number = 0
    while not stop.wait(random.uniform(*LIGHT_SECONDS) * (1 if number else random.random())):
        client.submit(path=paths[number % len(paths)])
        number += 1
