"""Who forks the children? The template: a copy of the script as it was when `run()` was called, and nothing else since.

It was forked before the worker opened a store, a thread or a loop, so its own forks are safe, and handlers written in a
plain script are there without being packed or imported again.

Laws:
- It runs no handler, opens no store and starts no thread; it forks, ends and reaps.
- When a child ends, whatever it left behind is ended too, before the worker is told.
- When the worker is gone, by kill -9 too, everything is ended, and then itself.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from fairlane.procs import reaper, syscalls

from .child import Means, work

COMMAND_BYTES_MAX = 4096
ENDING_SECONDS_MAX = 10.0
POLL_SECONDS = 0.005


def forked(call: Callable[[], None]) -> int:
    """Run a call in a forked process that ends with it, whatever happens there; returns its pid."""
    for printed in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            printed.flush()  # or the copy would print it once more
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        call()
        code = 0
    except BaseException:  # noqa: BLE001 - it is told, and then the copy ends
        traceback.print_exc()
    finally:
        os._exit(code)  # nothing of the script may go on in the copy


class Template:
    """The template's own loop."""

    def __init__(self, control: socket.socket, means: Means, worker: int) -> None:
        self._control = control
        self._means = means
        self._worker = worker
        self._serials: dict[int, int] = {}  # by pid: the number by which the worker knows a child

    def run(self) -> None:
        """Fork, end and reap until the worker is gone."""
        os.setsid()
        self._wakes, self._signalled = socket.socketpair()
        for end in (self._wakes, self._signalled):
            end.setblocking(False)
        signal.set_wakeup_fd(self._signalled.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *syscalls.SHUTDOWN_SIGNALS):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGUSR2, lambda *_: self._end_all())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, syscalls.SHUTDOWN_SIGNALS)
        syscalls.become_subreaper()
        gc.collect()
        gc.freeze()  # what the script has loaded stays shared with the children
        if syscalls.die_with_parent(self._worker, signal.SIGTERM):
            self._serve()
        self._leave()

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wakes, select.POLLIN)
        while os.getppid() == self._worker:
            heard = [handle for handle, _ in poll.poll()]
            if self._wakes.fileno() in heard:
                with contextlib.suppress(BlockingIOError):
                    self._wakes.recv(COMMAND_BYTES_MAX)
                self._reap()
            if self._control.fileno() in heard:
                try:
                    message, handles, _, _ = socket.recv_fds(self._control, COMMAND_BYTES_MAX, 3)
                except ConnectionResetError:  # the worker left before it had read what we told it last
                    return
                if not message:
                    return
                self._obey(json.loads(message), handles)

    def _obey(self, message: list[Any], handles: list[int]) -> None:
        word, serial = message
        if word == "fork":
            try:
                self._fork(serial, handles)
            except OSError as error:
                self._tell("refused", serial, str(error))
            finally:
                for handle in handles:
                    os.close(handle)
        elif word == "end":
            for pid, known in list(self._serials.items()):
                if known == serial:
                    reaper.kill_group(pid)

    def _fork(self, serial: int, handles: list[int]) -> None:
        for handle in handles:
            os.set_inheritable(handle, False)
        inbox, answers, output = handles
        template = os.getpid()

        def child() -> None:
            for unneeded in (self._control, self._wakes):
                unneeded.close()
            work(socket.socket(fileno=inbox), socket.socket(fileno=answers), output, self._means, template)

        pid = forked(child)
        self._serials[pid] = serial
        self._tell("forked", serial, pid)

    def _reap(self) -> None:
        """Clear away what has ended; with a child goes everything that it had started."""
        while (pid := self._next_ended()) is not None:
            if pid in self._serials:
                reaper.kill_group(pid)  # while the dead leader still holds the number of its group
            _, status = os.waitpid(pid, 0)
            if pid in self._serials:
                reaper.end_strays(ENDING_SECONDS_MAX, keep=self._serials)
                self._tell("ended", self._serials.pop(pid), os.waitstatus_to_exitcode(status))

    @staticmethod
    def _next_ended() -> int | None:
        """A child that has ended and was not cleared away yet."""
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return None
        return None if found is None else found.si_pid

    def _end_all(self) -> None:
        for pid in list(self._serials):
            reaper.kill_group(pid)

    def _leave(self) -> None:
        """End everything that is left."""
        self._end_all()
        deadline = time.monotonic() + ENDING_SECONDS_MAX
        while self._serials and time.monotonic() < deadline:
            self._reap()
            time.sleep(POLL_SECONDS)
        reaper.end_strays(ENDING_SECONDS_MAX, keep=self._serials)

    def _tell(self, *message: object) -> None:
        with contextlib.suppress(OSError):  # the worker is gone: the loop will see it
            self._control.send(json.dumps(message).encode())


def start(means: Means) -> tuple[int, socket.socket]:
    """Fork the template; returns its pid and the worker's end of the control socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worker = os.getpid()

    def run() -> None:
        ours.close()
        Template(theirs, means, worker).run()

    with syscalls.shutdown_signals_blocked():
        pid = forked(run)
    theirs.close()
    return pid, ours
