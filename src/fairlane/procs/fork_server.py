"""The fork server: a copy of a program from before it opened a store, a thread or a loop, which forks children on request.

Forks of the program itself would not be safe once it has threads. Forks of the fork server are, and functions of a plain
script are there without being serialised or imported again.

Laws:
- It runs none of the children's code, opens no store and starts no thread; it forks, kills and reaps.
- When a child ends, whatever it left behind is ended too, before its parent hears of it.
- When the parent dies, by kill -9 too, everything is ended, and then the fork server itself.
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

from . import reaper, syscalls

COMMAND_BYTES_MAX = 4096
HANDLES_MAX = 8  # that go with one command
ENDING_SECONDS_MAX = 10.0
POLL_SECONDS = 0.005

ChildMain = Callable[[list[int]], None]  # takes the handles that came with the command


def fork(call: Callable[[], None]) -> int:
    """Run a call in a forked process that ends with it, whatever happens there; returns its pid."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()  # or the copy would print it once more
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        call()
        code = 0
    except BaseException:  # noqa: BLE001 - it is printed, and then the copy ends
        traceback.print_exc()
    finally:
        os._exit(code)  # nothing of the program may go on in the copy


class ForkServerLoop:
    """What the fork server does: fork, kill and reap children for its parent."""

    def __init__(self, control: socket.socket, child_main: ChildMain, parent: int) -> None:
        self._control = control
        self._child_main = child_main
        self._parent = parent
        self._numbers: dict[int, int] = {}  # by pid: the number by which the parent knows a child

    def run(self) -> None:
        """Fork, kill and reap until the parent is gone."""
        os.setsid()
        self._wakeup, self._signalled = socket.socketpair()
        for end in (self._wakeup, self._signalled):
            end.setblocking(False)
        signal.set_wakeup_fd(self._signalled.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *syscalls.SHUTDOWN_SIGNALS):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGUSR2, lambda *_: self._kill_all())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, syscalls.SHUTDOWN_SIGNALS)
        syscalls.become_subreaper()
        gc.collect()
        gc.freeze()  # what the program has loaded stays shared with the children
        if syscalls.die_with_parent(self._parent, signal.SIGTERM):
            self._serve()
        self._end()

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wakeup, select.POLLIN)
        while os.getppid() == self._parent:
            readable = [handle for handle, _ in poll.poll()]
            if self._wakeup.fileno() in readable:
                with contextlib.suppress(BlockingIOError):
                    self._wakeup.recv(COMMAND_BYTES_MAX)
                self._reap()
            if self._control.fileno() in readable:
                try:
                    message, handles, _, _ = socket.recv_fds(self._control, COMMAND_BYTES_MAX, HANDLES_MAX)
                except ConnectionResetError:  # the parent left before it had read our last message
                    return
                if not message:
                    return
                self._execute(json.loads(message), handles)

    def _execute(self, command: list[Any], handles: list[int]) -> None:
        word, number = command
        if word == "fork":
            try:
                self._fork(number, handles)
            except OSError as error:
                self._send("refused", number, str(error))
            finally:
                for handle in handles:
                    os.close(handle)
        elif word == "end":
            for pid, known in list(self._numbers.items()):
                if known == number:
                    reaper.kill_group(pid)

    def _fork(self, number: int, handles: list[int]) -> None:
        for handle in handles:
            os.set_inheritable(handle, False)
        fork_server = os.getpid()

        def child() -> None:
            self._control.close()
            self._wakeup.close()
            if syscalls.die_with_parent(fork_server):
                os.setsid()
                syscalls.become_subreaper()
                self._child_main(handles)

        pid = fork(child)
        self._numbers[pid] = number
        self._send("forked", number, pid)

    def _reap(self) -> None:
        """Reap what has ended; everything that a child had started ends with it."""
        while (pid := self._next_ended()) is not None:
            if pid in self._numbers:
                reaper.kill_group(pid)  # while the dead leader still holds the number of its group
            _, status = os.waitpid(pid, 0)
            if pid in self._numbers:
                reaper.end_strays(ENDING_SECONDS_MAX, keep=self._numbers)
                self._send("ended", self._numbers.pop(pid), os.waitstatus_to_exitcode(status))

    @staticmethod
    def _next_ended() -> int | None:
        """Return a child that has ended and is not reaped yet."""
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return None
        return None if ended is None else ended.si_pid

    def _kill_all(self) -> None:
        for pid in list(self._numbers):
            reaper.kill_group(pid)

    def _end(self) -> None:
        """End everything that is left."""
        self._kill_all()
        deadline = time.monotonic() + ENDING_SECONDS_MAX
        while self._numbers and time.monotonic() < deadline:
            self._reap()
            time.sleep(POLL_SECONDS)
        reaper.end_strays(ENDING_SECONDS_MAX, keep=self._numbers)

    def _send(self, *message: object) -> None:
        with contextlib.suppress(OSError):  # the parent is gone: the loop will see it
            self._control.send(json.dumps(message).encode())


def start(child_main: ChildMain) -> tuple[int, socket.socket]:
    """Fork the fork server; returns its pid and the caller's end of the control socket.

    Commands are ["fork", number] with the child's handles, and ["end", number]; the answers are ["forked", number, pid],
    ["refused", number, reason] and ["ended", number, exit code].
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()

    def run() -> None:
        ours.close()
        ForkServerLoop(theirs, child_main, parent).run()

    with syscalls.shutdown_signals_blocked():
        pid = fork(run)
    theirs.close()
    return pid, ours
