"""Fork server: a fresh Python that has loaded the work's module and forks supervisors, so that attempts begin quickly.

It knows nothing of the caller: no URL, no password, no other document is in its memory. For every caller it forks a
supervisor, which runs that caller's attempts one after the other: one fork per attempt. The module has `prepare(*arguments)`,
called once in the fork server, and `work(*arguments)`, called in the supervisor; it returns what the confined process is to
call.

Laws:
- Supervisors share only what the fork server has loaded. Attempts of one supervisor share only the supervisor and its
  namespaces for users, network, messages and names, in which they can change nothing. Every attempt has its own
  process namespace, root folder, user and limits, and begins when no process of the one before is left.
- A supervisor ends with its caller, and the fork server with the last process that holds its socket; by kill -9 too.
- A fork server that was killed is replaced: its parent, the standby process, has loaded the same and forks another one.
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
from importlib import import_module
from typing import NamedTuple, NoReturn

from fairlane.procs import syscalls
from fairlane.procs.python import module_path

from .attempt import ENDING_SECONDS_MAX, Channels
from .confine import AttemptSpec
from .errors import ForkServerGone, LayerRefused
from .limits import ResourceLimits
from .namespaces import enter_new_namespaces
from .response import Response
from .supervisor import KEPT_VARIABLES, detach, supervise

START_SECONDS_MAX = 60.0
MESSAGE_BYTES_MAX = 65_536
DESCRIPTORS_MAX = 4  # of an attempt: lifeline, control, response, output
_SOCKET = 3
_START = (
    "import json, sys; sys.path[:], module, arguments = json.loads(sys.argv[1]);"
    f" from fairlane.sandbox.fork_server import main; main({_SOCKET}, module, arguments)"
)
Work = Callable[..., Callable[[], object]]


# -- in the caller


class _Supervisor(NamedTuple):
    """A supervisor: the socket for its requests, and a pidfd."""

    socket: socket.socket
    pidfd: int

    def end(self) -> None:
        """Close its socket, which ends it; kill it if that takes too long, and everything below it dies with it."""
        self.socket.close()
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        if not poll.poll(ENDING_SECONDS_MAX * 1000):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            poll.poll()
        os.close(self.pidfd)


class SandboxForkServer:
    """A connection to a fork server, for the process that started it and for all forks of that."""

    def __init__(self, connection: socket.socket) -> None:
        """Wait until the fork server, which runs `main` at the other end, has loaded everything."""
        connection.settimeout(START_SECONDS_MAX)
        try:
            is_ready = bool(connection.recv(MESSAGE_BYTES_MAX))
        except OSError:
            is_ready = False
        if not is_ready:
            connection.close()
            raise ForkServerGone("the fork server of the sandbox could not start; it printed the reason")
        self._connection = connection
        self._idle: dict[frozenset[str], list[_Supervisor]] = {}  # by the layers that they are confined by
        self._owner = os.getpid()

    @classmethod
    def start(cls, module: str, *arguments: object, imports: Sequence[str] = ()) -> SandboxForkServer:
        """Start a fresh Python that loads this module, and prepares it with these JSON arguments.

        `imports` are modules that it may import then, from the working directory too.
        """
        start = [module_path(__name__, module, *imports), module, arguments]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                os.posix_spawn(
                    sys.executable,
                    [sys.executable, "-I", "-c", _START, json.dumps(start)],
                    {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ},
                    file_actions=[
                        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                        (os.POSIX_SPAWN_DUP2, theirs.fileno(), _SOCKET),
                    ],
                    setsid=True,
                    setsigmask=(),
                )
            except OSError as error:
                ours.close()
                raise ForkServerGone(f"{sys.executable} cannot be started: {error}") from error
        return cls(ours)

    def run_attempt(
        self,
        layers: frozenset[str],
        arguments: Sequence[object],
        readable: Sequence[str],
        libraries: Sequence[str],
        limits: ResourceLimits,
        output: int | None,
    ) -> Response:
        """Run the work with these JSON arguments, and this output file, in a confined process."""
        request = [arguments, readable, libraries, vars(limits)]
        message = json.dumps(request, ensure_ascii=False).encode(errors="surrogatepass")  # shorter: the longest paths fit
        with Channels(limits, output) as channels:
            supervisor = self._send(layers, message, channels.supervisor_ends)
            try:
                outcome = channels.monitor()
            except BaseException:
                supervisor.end()
                raise
            if outcome.is_reported:
                self._idle[layers].append(supervisor)
            else:
                supervisor.end()
            return channels.conclude(outcome)

    def close(self) -> None:
        """End this process's supervisors; the fork server ends when no fork of this process is connected any more."""
        self._drop_inherited()
        for supervisor in (supervisor for idle in self._idle.values() for supervisor in idle):
            supervisor.end()
        self._idle.clear()
        self._connection.close()

    def _send(self, layers: frozenset[str], message: bytes, descriptors: Sequence[int]) -> _Supervisor:
        """Send a request to an idle supervisor that still lives, else to a new one."""
        self._drop_inherited()
        idle = self._idle.setdefault(layers, [])
        while idle:
            try:
                supervisor = idle.pop()
            except IndexError:  # another thread has taken it
                break
            try:
                socket.send_fds(supervisor.socket, [message], descriptors)
                return supervisor
            except OSError:
                supervisor.end()
        supervisor = self._new_supervisor(layers)
        socket.send_fds(supervisor.socket, [message], descriptors)
        return supervisor

    def _drop_inherited(self) -> None:
        """In a fork of the caller: forget the parent's supervisors, which end with the parent."""
        if self._owner != os.getpid():
            for supervisor in (supervisor for idle in self._idle.values() for supervisor in idle):
                supervisor.socket.close()
                os.close(supervisor.pidfd)
            self._idle, self._owner = {}, os.getpid()

    def _new_supervisor(self, layers: frozenset[str]) -> _Supervisor:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                socket.send_fds(self._connection, [json.dumps(sorted(layers)).encode()], [theirs.fileno()])
            ours.settimeout(START_SECONDS_MAX)
            reply = json.loads(ours.recv(MESSAGE_BYTES_MAX) or "{}")
            ours.settimeout(None)
        except OSError as error:
            ours.close()
            raise ForkServerGone(f"the fork server of the sandbox does not respond: {error}") from error
        if "pid" not in reply:
            ours.close()
            if "layer" in reply:
                raise LayerRefused(reply["layer"], reply["why"])
            raise ForkServerGone("the fork server of the sandbox has ended; was it killed?")
        return _Supervisor(ours, os.pidfd_open(reply["pid"]))


# -- in the fork server


def main(connection_fd: int, module: str, arguments: Sequence[object] = ()) -> None:
    """Load the module, then fork supervisors until no process is left that could ask for one."""
    connection = socket.socket(fileno=connection_fd)
    syscalls.become_subreaper()  # of supervisors whose fork server was killed
    loaded = import_module(module)
    loaded.prepare(*arguments)
    gc.collect()
    gc.freeze()  # keep the collector off the loaded objects: it would write to, and so copy, their pages in every fork
    with contextlib.suppress(ConnectionError):  # the caller has gone meanwhile, which ends the loop below
        connection.send(b"ready")
    _become_standby()
    while True:
        message, descriptors = _receive(connection)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG if message else 0)[0]:  # at the end wait for all: their callers have gone too
                pass
        if not message:
            return
        if os.fork() == 0:
            _run_supervisor(socket.socket(fileno=descriptors[0]), frozenset(json.loads(message)), loaded.work)
        os.close(descriptors[0])


def _become_standby() -> None:
    """Return in a fork, which serves; the parent waits for its end, and forks another one whenever it was killed."""
    while pid := os.fork():
        ended, status = 0, 0
        while ended != pid:
            ended, status = os.wait()  # or a supervisor, if its fork server was killed
        if os.WIFEXITED(status):
            os._exit(os.WEXITSTATUS(status))
    syscalls.become_subreaper()


def _receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next request; an empty one when no process is left that could send one."""
    try:
        message, descriptors, _, _ = socket.recv_fds(connection, MESSAGE_BYTES_MAX, 1)
    except ConnectionError:  # the caller has gone before it read what was sent
        return b"", []
    return message, descriptors


# -- in a supervisor


def _run_supervisor(connection: socket.socket, layers: frozenset[str], work: Work) -> NoReturn:
    code = 1
    try:
        detach((connection.fileno(),))
        with contextlib.suppress(OSError):  # the caller has gone
            _serve(connection, layers, work)
        code = 0
    finally:
        os._exit(code)


def _serve(connection: socket.socket, layers: frozenset[str], work: Work) -> None:
    """Run attempt after attempt, as long as the caller lives."""
    has_process_namespace = "process namespace" in layers
    try:
        enter_new_namespaces(layers)
    except LayerRefused as refused:
        connection.send(json.dumps({"layer": refused.layer, "why": refused.why}).encode())
        return
    if has_process_namespace and os.fork() != 0:
        return  # the fork goes on, as first process of the new namespace: only there can it create one for every attempt
    own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    connection.send(json.dumps({"pid": int(os.readlink("/proc/self"))}).encode())
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, MESSAGE_BYTES_MAX, DESCRIPTORS_MAX)
        if not message:
            return
        arguments, readable, libraries, limits = json.loads(message)
        spec = AttemptSpec(layers, work(*arguments), readable, libraries, ResourceLimits(**limits))
        if has_process_namespace:
            syscalls.unshare(syscalls.CLONE_NEWPID)
        supervise(spec, descriptors, (connection.fileno(), own_namespace))
        if has_process_namespace:
            syscalls.setns(own_namespace, syscalls.CLONE_NEWPID)
