"""Who renews the leases? The keeper: a process of its own with its own connection to the store, told which claims are held.

No handler can stop it, neither by holding the interpreter nor by blocking the worker's loop. So it also looks after the
worker.

Laws:
- Every claim that it was told of is renewed after a third of its lease, and again until it is dropped or lost. It is told
  within a quarter of a second; at once if the loop could be blocked before, or if the claim was long on its way.
- What the worker may rely on counts from the moment before the store was asked, not from its answer.
- Nothing is renewed for a worker that was silent for half a lease; its children are ended, so that no handler outlives its
  lease. The exception: an `async def` handler may block the loop for as long as it may run, unless the worker is frozen.
  After that the worker gets kill -9, because nothing less would stop the handler, and the lease covers the rest.
- When the worker is gone, the keeper goes.
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
from fairlane.procs.ipc import READ_BYTES, Unframed, framed

AT_ONCE = 1000  # claims that one call to the store renews
PAUSE_SECONDS = 0.2  # after the store failed
SLACK_SECONDS = 2.0  # that the loop may be late before its handler counts as hung
RENEWALS = 3  # in a lease
_START = (  # with the path of the worker, so that the same fairlane is found
    "import json, sys; sys.path, *told = json.loads(sys.argv[1]); from fairlane.worker.heartbeat import main; main(*told)"
)


class Patient(Protocol):
    """What can be known and done about a worker that is silent."""

    def is_frozen(self) -> bool:
        """Whether somebody has stopped it, to go on later."""

    def end_handlers(self) -> None:
        """Stop what runs in children."""

    def end_worker(self) -> None:
        """Stop the worker itself."""


class Family:
    """The processes of a worker, seen by the keeper that it forked."""

    def __init__(self, worker: int, template: int | None) -> None:
        self._worker = worker
        self._template = template

    def is_frozen(self) -> bool:
        return syscalls.is_stopped(self._worker)

    def end_handlers(self) -> None:
        if self._template is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._template, signal.SIGUSR2)

    def end_worker(self) -> None:
        os.kill(self._worker, signal.SIGKILL)


class Nobody:
    """A keeper on a thread shares the fate of its worker."""

    def is_frozen(self) -> bool:
        return False

    def end_handlers(self) -> None:
        pass

    def end_worker(self) -> None:
        pass


class Keeper:
    """The keeper's own loop; the same on a thread, where the store lives in the worker's process."""

    def __init__(self, engine: Engine, end: socket.socket, lease_ms: int, patient: Patient) -> None:
        self._engine = engine
        self._end = end
        self._lease_ms = lease_ms
        self._lease = lease_ms / 1000
        self._patient = patient
        self._held: dict[int, Claim] = {}  # by serial
        self._last_serial = 0
        self._unframed = Unframed()
        self._heard = time.monotonic()
        self._blocked = self._heard  # since then the loop may be blocked
        self._hung = float("inf")  # when a loop that is silent until then counts as hung

    def run(self) -> None:
        """Renew until the worker is gone."""
        self._tell(["ready"])
        renew = time.monotonic() + self._lease / RENEWALS
        while self._listen(renew - time.monotonic()):
            now = time.monotonic()
            if self._is_hung(now):
                self._patient.end_worker()
                return
            if now >= renew:
                renew = now + self._look(now)

    def _is_hung(self, now: float) -> bool:
        """Whether the loop has been blocked for longer than any of its handlers may run, while the worker was not frozen."""
        if now - self._heard < SLACK_SECONDS / 2 or self._patient.is_frozen():
            self._blocked = now
        return now >= self._hung and now - self._blocked > SLACK_SECONDS

    def _look(self, now: float) -> float:
        """Renew, if the worker is well; tells in how many seconds to look again."""
        if now - self._heard > self._lease / 2 and (self._hung == float("inf") or self._patient.is_frozen()):
            self._patient.end_handlers()
            return self._lease / RENEWALS
        return self._renew()

    def _renew(self) -> float:
        held = list(self._held.items())
        upto, sent = self._last_serial, time.monotonic()
        lost: list[int] = []
        try:
            for first in range(0, len(held), AT_ONCE):
                part = held[first : first + AT_ONCE]
                refused = {(one.id, one.token) for one in self._engine.extend([claim for _, claim in part], self._lease_ms)}
                lost += [serial for serial, claim in part if (claim.id, claim.token) in refused]
        except StoreError as error:
            self._tell(["failed", f"{type(error).__name__}: {error}"])
            return min(PAUSE_SECONDS, self._lease / 10)
        for serial in lost:
            self._held.pop(serial, None)
        self._tell(["renewed", sent, upto, lost])
        return self._lease / RENEWALS

    def _tell(self, message: list[Any]) -> None:
        with contextlib.suppress(OSError):  # the worker is gone, or does not listen: either shows as silence
            self._end.send(framed(message), socket.MSG_DONTWAIT)

    def _listen(self, seconds: float) -> bool:
        """Hear what the worker says until that time; False when it is gone."""
        wake = min(max(0.0, seconds), SLACK_SECONDS / 2)
        while select.select([self._end], [], [], wake)[0]:
            try:
                received = self._end.recv(READ_BYTES)
            except OSError:
                return False
            if not received:
                return False
            for word, *values in self._unframed.feed(received):
                self._learn(word, values)
            wake = 0.0
        return True

    def _learn(self, word: str, values: list[Any]) -> None:
        self._heard = time.monotonic()
        if word == "beat":
            deadline, held, dropped = values
            for serial, claim in held:
                self._held[serial] = Claim(*claim)
                self._last_serial = serial
            for serial in dropped:
                self._held.pop(serial, None)
            self._hung = float("inf") if deadline is None else deadline + SLACK_SECONDS


def start_process(url: str, lease_ms: int, template: int | None) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A keeper as a fresh process, and the worker's end of its socket.

    Not a fork: a thread of this program may be inside the store's library now, and the copy would wait for it for ever.
    """
    ours, theirs = socket.socketpair()
    told = json.dumps([sys.path, theirs.fileno(), url, lease_ms, os.getpid(), template])
    command = [sys.executable, "-c", _START, told]
    with syscalls.shutdown_signals_blocked():  # the keeper keeps them blocked: leases are needed until the worker has stopped
        process = subprocess.Popen(  # noqa: S603 - it is this very interpreter
            command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
        )
    theirs.close()
    return process, ours


def main(handle: int, url: str, lease_ms: int, worker: int, template: int | None) -> None:
    """What a keeper process does."""
    end = socket.socket(fileno=handle)
    if syscalls.die_with_parent(worker):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the worker was quicker
            engine = _opened(url, end)
            Keeper(engine, end, lease_ms, Family(worker, template)).run()


def _opened(url: str, end: socket.socket) -> Engine:
    """The store, as soon as it can be opened; the worker tells its user when it cannot."""
    while True:
        try:
            return open_engine(url, create=False)
        except FairlaneError as error:
            end.sendall(framed(["failed", f"{type(error).__name__}: {error}"]))
            time.sleep(PAUSE_SECONDS)


def start_thread(engine: Engine, lease_ms: int) -> tuple[threading.Thread, socket.socket]:
    """A keeper on a thread, for a store that lives in this process only."""
    ours, theirs = socket.socketpair()

    def run() -> None:
        with theirs:
            Keeper(engine, theirs, lease_ms, Nobody()).run()

    thread = threading.Thread(target=run, name="fairlane-keeper", daemon=True)
    thread.start()
    return thread, ours
