"""The heartbeat: a process with its own connection to the store that renews the leases of a worker's claims.

No handler can stop it, neither by holding the interpreter nor by blocking the worker's loop. So it also watches the worker.

Laws:
- Every claim that it knows is renewed after a third of its lease, and again until it is dropped or lost. It learns of a claim
  within a quarter of a second; at once if the loop could be blocked before, or if the claim was long on its way.
- What the worker may rely on counts from the moment before the store was asked, not from its answer.
- Nothing is renewed for a worker that was silent for half a lease; its children are ended, so that no handler outlives its
  lease. The exception: an `async def` handler may block the loop for as long as it may run, unless the worker is stopped by
  a signal. After that the worker gets kill -9, because nothing less would end the handler, and the lease covers the rest.
- When the worker is gone, the heartbeat ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Protocol

from fairlane.core.document import Claim
from fairlane.core.errors import FairlaneError, StoreError
from fairlane.engine import Engine, open_engine
from fairlane.procs import syscalls
from fairlane.procs.ipc import READ_BYTES, FrameDecoder, Message, encode_frame
from fairlane.procs.python import SAFE_PATH, module_path

RENEW_AT_ONCE = 1000  # claims that one call to the store renews
PAUSE_SECONDS = 0.2  # after the store failed
SLACK_SECONDS = 2.0  # that the loop may be late before its handler counts as hung
RENEWALS = 3  # in a lease
NEVER = float("inf")
_START = (  # with the worker's folders of modules, so that the same fairlane is imported
    "import json, sys; sys.path[:], *arguments = json.load(sys.stdin);"
    " from fairlane.worker.heartbeat import main; main(*arguments)"
)


class WatchedWorker(Protocol):
    """What the heartbeat can see of a silent worker and do about it."""

    def is_stopped(self) -> bool:
        """Whether a signal has stopped it; it may go on later."""

    def end_handlers(self) -> None:
        """End what runs in children."""

    def end(self) -> None:
        """End the worker itself."""


class ParentWorker:
    """The worker that has started this process."""

    def __init__(self, pid: int, fork_server_pid: int | None) -> None:
        self._pid = pid
        self._fork_server_pid = fork_server_pid

    def is_stopped(self) -> bool:
        return syscalls.is_stopped(self._pid)

    def end_handlers(self) -> None:
        if self._fork_server_pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._fork_server_pid, signal.SIGUSR2)

    def end(self) -> None:
        os.kill(self._pid, signal.SIGKILL)


class SameProcessWorker:
    """The worker of a heartbeat on a thread, which stops and ends with it."""

    def is_stopped(self) -> bool:
        return False

    def end_handlers(self) -> None:
        pass

    def end(self) -> None:
        pass


class Heartbeat:
    """The heartbeat's own loop; the same on a thread, where the store lives in the worker's process."""

    def __init__(self, engine: Engine, connection: socket.socket, lease_ms: int, worker: WatchedWorker) -> None:
        self._engine = engine
        self._connection = connection
        self._lease_ms = lease_ms
        self._lease = lease_ms / 1000
        self._worker = worker
        self._claims: dict[int, Claim] = {}  # by serial number
        self._last_serial = 0
        self._decoder = FrameDecoder()
        self._last_beat = time.monotonic()
        self._blocked_since = self._last_beat  # the loop may be blocked since then
        self._hung_from = NEVER  # a loop that is silent until then counts as hung

    def run(self) -> None:
        """Renew until the worker is gone."""
        self._send(["ready"])
        next_renewal = time.monotonic() + self._lease / RENEWALS
        while self._receive(next_renewal - time.monotonic()):
            now = time.monotonic()
            if self._is_hung(now):
                self._worker.end()
                return
            if now >= next_renewal:
                next_renewal = now + self._check(now)

    def _is_hung(self, now: float) -> bool:
        """Whether the loop has been blocked for longer than any of its handlers may run, while no signal stopped the worker."""
        if now - self._last_beat < SLACK_SECONDS / 2 or self._worker.is_stopped():
            self._blocked_since = now
        return now >= self._hung_from and now - self._blocked_since > SLACK_SECONDS

    def _check(self, now: float) -> float:
        """Renew if the worker is well, else end its handlers; returns the seconds until the next check."""
        if now - self._last_beat > self._lease / 2 and (self._hung_from == NEVER or self._worker.is_stopped()):
            self._worker.end_handlers()
            return self._lease / RENEWALS
        return self._renew()

    def _renew(self) -> float:
        claims = list(self._claims.items())
        last_serial, requested_at = self._last_serial, time.monotonic()
        lost: list[int] = []
        try:
            for first in range(0, len(claims), RENEW_AT_ONCE):
                batch = claims[first : first + RENEW_AT_ONCE]
                refused = self._engine.extend([claim for _, claim in batch], self._lease_ms)
                attempts = {(claim.id, claim.token) for claim in refused}
                lost += [serial for serial, claim in batch if (claim.id, claim.token) in attempts]
        except StoreError as error:
            self._send(["failed", f"{type(error).__name__}: {error}"])
            return min(PAUSE_SECONDS, self._lease / 10)
        for serial in lost:
            self._claims.pop(serial, None)
        self._send(["renewed", requested_at, last_serial, lost])
        return self._lease / RENEWALS

    def _send(self, message: Message) -> None:
        with contextlib.suppress(OSError):  # the worker is gone, or does not read: either shows as silence
            self._connection.send(encode_frame(message), socket.MSG_DONTWAIT)

    def _receive(self, seconds: float) -> bool:
        """Receive beats for so long; False when the worker is gone."""
        timeout = min(max(0.0, seconds), SLACK_SECONDS / 2)
        while select.select([self._connection], [], [], timeout)[0]:
            try:
                received = self._connection.recv(READ_BYTES)
            except OSError:
                return False
            if not received:
                return False
            for word, *values in self._decoder.feed(received):
                self._beat(word, values)
            timeout = 0.0
        return True

    def _beat(self, word: str, values: list[Any]) -> None:
        self._last_beat = time.monotonic()
        if word == "beat":
            deadline, added, dropped = values
            for serial, claim in added:
                self._claims[serial] = Claim(*claim)
                self._last_serial = serial
            for serial in dropped:
                self._claims.pop(serial, None)
            self._hung_from = NEVER if deadline is None else deadline + SLACK_SECONDS


def start_process(url: str, lease_ms: int, fork_server_pid: int | None) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the heartbeat as a fresh process; returns it and the worker's end of its socket.

    Not a fork: a thread of this program may be inside the store's library now, and the copy would wait for it for ever.
    The URL may hold a password, and everybody on the machine can read arguments: it goes through standard input.
    """
    ours, theirs = socket.socketpair()
    arguments = json.dumps([module_path(__name__), theirs.fileno(), url, lease_ms, os.getpid(), fork_server_pid])
    command = [sys.executable, SAFE_PATH, "-c", _START]
    with syscalls.shutdown_signals_blocked():  # and they stay blocked in it: leases are needed until the worker has stopped
        process = subprocess.Popen(  # noqa: S603 - it is this very interpreter
            command, stdin=subprocess.PIPE, pass_fds=[theirs.fileno()], start_new_session=True
        )
    theirs.close()
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:  # if it has ended, the socket shows it
        process.stdin.write(arguments.encode())
    return process, ours


def main(handle: int, url: str, lease_ms: int, worker_pid: int, fork_server_pid: int | None) -> None:
    """Run the heartbeat in a process of its own."""
    connection = socket.socket(fileno=handle)
    if syscalls.die_with_parent(worker_pid):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the worker was quicker
            engine = _open_engine(url, connection)
            Heartbeat(engine, connection, lease_ms, ParentWorker(worker_pid, fork_server_pid)).run()


def _open_engine(url: str, connection: socket.socket) -> Engine:
    """Open the store as soon as that is possible; the worker reports every failure."""
    while True:
        try:
            return open_engine(url, create=False)
        except FairlaneError as error:
            connection.sendall(encode_frame(["failed", f"{type(error).__name__}: {error}"]))
            time.sleep(PAUSE_SECONDS)


def start_thread(engine: Engine, lease_ms: int) -> tuple[threading.Thread, socket.socket]:
    """Start the heartbeat on a thread, for a store that lives in this process only."""
    ours, theirs = socket.socketpair()

    def run() -> None:
        with theirs:
            Heartbeat(engine, theirs, lease_ms, SameProcessWorker()).run()

    thread = threading.Thread(target=run, name="fairlane-heartbeat", daemon=True)
    thread.start()
    return thread, ours
