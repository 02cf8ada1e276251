"""What happens in the process that runs `def` handlers? One document after the other, until it is ended.

Laws:
- It is its own session, it dies with the template that forked it, and orphans of what a handler started come to it.
- It has no more memory than it may; what is printed goes into a pipe that the worker drains, never to the terminal.
- The answer to a document is sent before the next one is taken; so whoever finds it dead knows which document it was at.
- Documents wait in its inbox, a socket whose messages the worker can take back as long as they were not taken.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, NamedTuple

from fairlane.blobs.files import Files
from fairlane.core.document import Claim, Done, Failed, Outcome, Retried
from fairlane.core.retry import Backoff
from fairlane.procs import syscalls
from fairlane.procs.ipc import framed

from .document import Document, Fail, Report, Retry, raised, returned

INBOX_BYTES_MAX = 64 * 1024  # a larger document travels in a file in memory, of which only the handle is sent

_HANDLE = Struct("i")
_ENCLOSED_BYTES = socket.CMSG_LEN(_HANDLE.size)
_received = memoryview(bytearray(INBOX_BYTES_MAX))
OUTCOMES: dict[str, Callable[..., Outcome]] = {"done": Done, "retry": Retried, "failed": Failed}
_WORDS = {Done: "done", Retried: "retry", Failed: "failed"}

PRINTED_END = b"\x1e\x04\x1e\n"
_replaced: list[object] = []  # streams of the script: collected, they would close the handles that are ours now

KEEP, REPLACE_MEMORY, REPLACE_PROCESSES = "", "it used much memory", "it left processes behind"


class Means(NamedTuple):
    """What a child is given to work with."""

    functions: Mapping[str, Callable[[Document], Any]]
    backoff: Backoff
    memory_bytes: int
    files: Callable[[], Files]


def outcome_message(outcome: Outcome) -> list[Any]:
    """An outcome as part of a frame."""
    return [_WORDS[type(outcome)], *outcome]


def outcome_of(message: list[Any]) -> Outcome:
    """An outcome that was part of a frame."""
    word, *values = message
    return OUTCOMES[word](*values)


def send_document(inbox: socket.socket, serial: int, claim: Claim) -> bool:
    """Put a document into an inbox; False if there is no room now."""
    message = json.dumps([serial, *claim]).encode()
    try:
        if len(message) <= INBOX_BYTES_MAX:
            inbox.send(message)
            return True
        handle = os.memfd_create("fairlane")
        with open(handle, "w+b") as file:
            file.write(message)
            file.flush()
            socket.send_fds(inbox, [b"+"], [handle])
        return True
    except BlockingIOError:
        return False


def receive_document(inbox: socket.socket, flags: int = 0) -> tuple[int, Claim] | None:
    """Take the next document out of an inbox; None if the other end is gone."""
    # socket.recv_fds would do, if it did not forget the flags
    size, enclosed, _, _ = inbox.recvmsg_into([_received], _ENCLOSED_BYTES, flags | socket.MSG_CMSG_CLOEXEC)
    message = bytes(_received[:size])
    if enclosed:
        (handle,) = _HANDLE.unpack(enclosed[0][2])
        with open(handle, "rb") as file:
            file.seek(0)
            message = file.read()
    if not message:
        return None
    serial, *values = json.loads(message)
    return serial, Claim(*values)


def work(inbox: socket.socket, answers: socket.socket, output: int, means: Means, template: int) -> None:
    """Run document after document; never returns before there are no more."""
    if not syscalls.die_with_parent(template):
        return
    os.setsid()
    syscalls.become_subreaper()
    _take_signals()
    _redirect(output)
    random.seed()  # a fork has its parent's dice, and all children would throw the same
    syscalls.limit_address_space(means.memory_bytes)
    resident_max = syscalls.resident_bytes_max() + means.memory_bytes // 2
    while (taken := receive_document(inbox)) is not None:
        serial, claim = taken
        began = time.monotonic()
        outcome = _outcome(serial, claim, answers, means)
        seconds = time.monotonic() - began
        state = KEEP
        if syscalls.resident_bytes_max() > resident_max:
            state = REPLACE_MEMORY
        elif _has_living_children():
            state = REPLACE_PROCESSES
        answers.sendall(framed(["ended", serial, seconds, outcome_message(outcome), state, _has_printed()]))
        if state:  # the template ends what is left of it, and the worker takes back what is in the inbox
            return
        del taken, claim, outcome


def _take_signals() -> None:
    """Signals to the whole group of processes are for the worker to answer; ending this one is kill -9.

    They are caught and not ignored, so that programs a handler starts have them as usual; forks get them back, too.
    """
    ours = syscalls.SHUTDOWN_SIGNALS
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    for number in ours:
        signal.signal(number, lambda *_: None)

    masks: dict[int, set[int]] = {}  # by thread: a handler may have blocked them itself

    def block() -> None:  # so that none is swallowed that was meant for the fork
        masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, ours)

    def restore() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.pop(threading.get_ident()))

    def reset_and_restore() -> None:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
        restore()

    os.register_at_fork(before=block, after_in_parent=restore, after_in_child=reset_and_restore)


def _redirect(output: int) -> None:
    """Nothing to read, and everything printed goes to the worker."""
    _replaced.extend((sys.stdin, sys.stdout, sys.stderr))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for handle in (nothing, output):
        if handle > 2:
            os.close(handle)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout, sys.stderr = _printing_to(1), _printing_to(2)


class _Printing(io.FileIO):
    """Standard output or error, which knows whether something was printed since the last document."""

    is_used = False

    def write(self, printed: Any) -> int:
        _Printing.is_used = True
        return super().write(printed) or 0


def _printing_to(handle: int) -> io.TextIOWrapper:
    raw = io.BufferedWriter(_Printing(handle, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="replace", line_buffering=handle == 2)


def _outcome(serial: int, claim: Claim, answers: socket.socket, means: Means) -> Outcome:
    """What one document came to, whatever its handler does short of ending the process."""

    def report(told: Report) -> None:
        answers.sendall(framed(["report", serial, *told]))

    document = Document(claim, report, means.files)
    try:
        outcome = returned(document, means.functions[claim.kind](document))
    except BaseException as error:  # noqa: BLE001 - sys.exit() too costs one attempt and nothing else
        if not isinstance(error, Retry | Fail):
            with contextlib.suppress(Exception):
                traceback.print_exc()
        outcome = raised(document, error, means.backoff, random.random())
    document.tell_last()
    return outcome


def _has_printed() -> bool:
    """Whether the handler printed; if so, a mark tells the worker where that ends."""
    for printed in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            printed.flush()
    if _Printing.is_used:
        _Printing.is_used = False
        os.write(2, PRINTED_END)
        return True
    return False


def _has_living_children() -> bool:
    """Whether a handler left processes behind; those that have ended are cleared away."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
