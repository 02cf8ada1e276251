"""How does an attempt begin without a Python start, and without a look into the caller's memory? As a fork of a template.

The template is a fresh Python that has loaded one module and nothing of the caller's: no address, no password, no other
document. For each caller it forks a guard, which serves that caller's attempts one after the other: one fork an attempt. The
module has `prepare()`, called once in the template, and `work(*arguments)`, called in the guard: it returns what the confined
process is to call.

Laws:
- What guards have in common with each other is what the template has loaded; what attempts of one guard have in common is the
  guard, and its namespaces of users, network, messages, names and mounts, in which they can change nothing. Each has its own
  process namespace, scratch folder, user and limits, and begins when nothing of the one before lives.
- A guard ends with its caller, the template with the last process that can ask it; by kill -9 too.
- A template that was killed is there again, as a fork of one that has loaded the same and does nothing but wait for that.
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
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple

from fairlane.procs import syscalls

from . import memory
from .attempt import ENDING_SECONDS_MAX, Ending, handles, listen
from .confine import KEPT_VARIABLES, Refused, leave_namespaces, prepare
from .limits import Bounds
from .response import answering
from .supervisor import Attempt, see_to, stand_apart

START_SECONDS_MAX = 60.0
MESSAGE_BYTES_MAX = 65_536
_HANDLE = 3
_START = (
    "import json, sys; sys.path[:], module = json.loads(sys.argv[1]);"
    f" from fairlane.sandbox.fork_server import main; main({_HANDLE}, module)"
)


Work = Callable[..., Callable[[], object]]


class Gone(Exception):
    """The template has ended: it was killed, or it could not begin."""


# -- the caller's side


class _Line(NamedTuple):
    """To one guard: the socket that it is asked through, and a handle to its process."""

    socket: socket.socket
    process: int

    def end(self) -> None:
        """The guard ends when its socket is closed; if it cannot, it is ended, and everything below it."""
        self.socket.close()
        poll = select.poll()
        poll.register(self.process, select.POLLIN)
        if not poll.poll(ENDING_SECONDS_MAX * 1000):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.process, signal.SIGKILL)
            poll.poll()
        os.close(self.process)


class Template:
    """A template, for the process that made it and for all forks of that."""

    def __init__(self, asking: socket.socket) -> None:
        """To a template that has `main` for its code, at the other end of this socket: waits until it has loaded everything."""
        asking.settimeout(START_SECONDS_MAX)
        try:
            is_ready = bool(asking.recv(MESSAGE_BYTES_MAX))
        except OSError:
            is_ready = False
        if not is_ready:
            asking.close()
            raise Gone("the template of the sandbox could not begin; what it printed tells why")
        self._asking = asking
        self._idle: dict[frozenset[str], list[_Line]] = {}
        self._owner = os.getpid()

    @classmethod
    def started(cls, module: str) -> Template:
        """A fresh Python that loads this module; `Gone` if this user cannot start one."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        variables = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        variables["GLIBC_TUNABLES"] = memory.settings()
        with theirs:
            try:
                os.posix_spawn(
                    sys.executable,
                    [sys.executable, "-I", "-c", _START, json.dumps([sys.path, module])],
                    variables,
                    file_actions=[
                        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                        (os.POSIX_SPAWN_DUP2, theirs.fileno(), _HANDLE),
                    ],
                    setsid=True,
                    setsigmask=(),
                )
            except OSError as error:
                ours.close()
                raise Gone(f"{sys.executable} cannot be started: {error}") from error
        return cls(ours)

    def perform(
        self, layers: frozenset[str], arguments: Sequence[object], scratch: str, readable: Sequence[str], bounds: Bounds
    ) -> Ending:
        """Have the work of these arguments, which are JSON, done in a confined process; `Gone` if nobody can."""
        asked = [arguments, scratch, readable, [*vars(bounds).values()]]
        message = json.dumps(asked, ensure_ascii=False).encode(errors="surrogatepass")  # so the longest paths fit
        with handles(bounds) as (ours, theirs):
            try:
                line = self._asked(layers, message, theirs)
            except Refused as refused:
                return Ending({"layer": refused.layer, "why": refused.why}, b"", (), None)
            try:
                ending = listen(scratch, bounds, ours, theirs)
            except BaseException:
                line.end()
                raise
        if "status" in ending.told:  # nothing of the attempt lives, and the guard waits for the next
            self._idle[layers].append(line)
        else:
            line.end()
        return ending

    def close(self) -> None:
        """Let go of the template; it ends when no fork of this process can ask it any more."""
        self._leave_the_parents()
        for line in (line for lines in self._idle.values() for line in lines):
            line.end()
        self._idle.clear()
        self._asking.close()

    def _asked(self, layers: frozenset[str], message: bytes, handles: list[int]) -> _Line:
        """A guard that was asked, and has been given the handles; one that was ended meanwhile is passed over."""
        self._leave_the_parents()
        idle = self._idle.setdefault(layers, [])
        while idle:
            line = idle.pop()
            try:
                socket.send_fds(line.socket, [message], handles)
                return line
            except OSError:
                line.end()
        line = self._new_line(layers)
        socket.send_fds(line.socket, [message], handles)
        return line

    def _leave_the_parents(self) -> None:
        """In a fork: guards that were idle are the parent's, and end with it."""
        if self._owner != os.getpid():
            for line in (line for lines in self._idle.values() for line in lines):
                line.socket.close()
                os.close(line.process)
            self._idle, self._owner = {}, os.getpid()

    def _new_line(self, layers: frozenset[str]) -> _Line:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                socket.send_fds(self._asking, [json.dumps(sorted(layers)).encode()], [theirs.fileno()])
            ours.settimeout(START_SECONDS_MAX)
            told = json.loads(ours.recv(MESSAGE_BYTES_MAX) or "{}")
            ours.settimeout(None)
        except OSError as error:
            ours.close()
            raise Gone(f"the template of the sandbox does not answer: {error}") from error
        if "pid" not in told:
            ours.close()
            if "layer" in told:
                raise Refused(told["layer"], told["why"])
            raise Gone("the template of the sandbox has ended; was it killed?")
        return _Line(ours, os.pidfd_open(told["pid"]))


# -- the template's side


def main(handle: int, module: str) -> None:
    """What a template does: load, and fork guards until nobody is left who could ask for one."""
    asking = socket.socket(fileno=handle)
    syscalls.become_subreaper()  # guards, whose parent has gone
    loaded = import_module(module)
    loaded.prepare()
    prepare()
    gc.collect()
    gc.freeze()
    gc.disable()  # it would touch, and so copy, every page in every fork
    memory.leave_in_order()
    with contextlib.suppress(ConnectionError):  # the caller has gone meanwhile, and so ends the loop below
        asking.send(b"ready")
    _stand_behind()
    while True:
        message, handles = _heard(asking)
        with contextlib.suppress(ChildProcessError):  # those that have ended; in the end all do, as their callers have
            while os.waitpid(-1, os.WNOHANG if message else 0)[0]:
                pass
        if not message:
            return
        if os.fork() == 0:
            _guard(socket.socket(fileno=handles[0]), frozenset(json.loads(message)), loaded.work)
        os.close(handles[0])


def _stand_behind() -> None:
    """Go on in a fork. Here, wait for its end, and fork another one as long as somebody kills them."""
    while pid := os.fork():
        ended, status = 0, 0
        while ended != pid:
            ended, status = os.wait()  # or a guard, whose parent was killed
        if os.WIFEXITED(status):
            os._exit(os.WEXITSTATUS(status))
    syscalls.become_subreaper()


def _heard(asking: socket.socket) -> tuple[bytes, list[int]]:
    """What was asked for; nothing once nobody is left who could ask."""
    try:
        message, handles, _, _ = socket.recv_fds(asking, MESSAGE_BYTES_MAX, 1)
    except ConnectionError:  # gone before it has read what we sent
        return b"", []
    return message, handles


def _guard(asking: socket.socket, layers: frozenset[str], work: Work) -> None:
    """In a fork of the template; never returns."""
    code = 1
    try:
        stand_apart((asking.fileno(),))
        with contextlib.suppress(OSError):  # the caller was quicker
            _serve(asking, layers, work)
        code = 0
    finally:
        os._exit(code)


def _serve(asking: socket.socket, layers: frozenset[str], work: Work) -> None:
    """Attempt after attempt, as long as the caller lives."""
    has_own = "process namespace" in layers
    try:
        leave_namespaces(layers)
    except Refused as refused:
        asking.send(json.dumps({"layer": refused.layer, "why": refused.why}).encode())
        return
    if has_own and os.fork() != 0:
        return  # the fork is the first of its own process namespace: only from there can it make one for each attempt
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    asking.send(json.dumps({"pid": int(os.readlink("/proc/self"))}).encode())
    while True:
        message, handles, _, _ = socket.recv_fds(asking, MESSAGE_BYTES_MAX, 3)
        if not message:
            return
        life, control, answer = handles
        if has_own:
            syscalls.unshare(syscalls.CLONE_NEWPID)
        see_to(_attempt(message, layers, work), life, control, answer, (asking.fileno(), own))
        if has_own:
            syscalls.setns(own, syscalls.CLONE_NEWPID)


def _attempt(asked: bytes, layers: frozenset[str], work: Work) -> Attempt:
    arguments, scratch, readable, bounds = json.loads(asked)
    return Attempt(layers, answering(work(*arguments)), scratch, readable, _bounds(*bounds))


_bounds = lru_cache(16)(Bounds)  # they are the same for most attempts
