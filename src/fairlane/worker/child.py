"""The process that runs `def` handlers: one document after the other, until it is ended.

Laws:
- It is its own session, it dies with the fork server that forked it, and orphans of what a handler started come to it.
- It has no more memory than it may; what is printed and logged goes to the worker, never to the terminal.
- The response for a document is sent before the next one is taken; so a dead child was at its first document without one.
- Documents wait in its inbox, a socket from which the worker can take back what the child has not taken.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, NamedTuple

from fairlane.blobs.files import Files
from fairlane.core.document import Claim, Continued, Done, Failed, Outcome, Retried, Submission
from fairlane.core.retry import Backoff
from fairlane.procs import syscalls
from fairlane.procs.ipc import Message

from .child_output import OutputSender, capture_output
from .document import ClaimedDocument, ProgressReport
from .handlers import run_handler

INBOX_BYTES_MAX = 64 * 1024  # a larger document is sent as the handle of a file in memory

_HANDLE = Struct("i")
_ANCILLARY_BYTES = socket.CMSG_LEN(_HANDLE.size)
_buffer = memoryview(bytearray(INBOX_BYTES_MAX))
_OUTCOMES: dict[str, Callable[..., Outcome]] = {"done": Done, "continued": Continued, "retry": Retried, "failed": Failed}
_WORDS = {Done: "done", Continued: "continued", Retried: "retry", Failed: "failed"}

KEEP, REPLACE_MEMORY, REPLACE_PROCESSES = "", "it used much memory", "it left processes behind"


class ChildConfig(NamedTuple):
    """What a child works with."""

    functions: Mapping[str, Callable[[ClaimedDocument], Any]]
    backoff: Backoff
    memory_bytes: int
    files: Callable[[], Files]


def encode_outcome(outcome: Outcome) -> Message:
    """Encode an outcome as part of a frame."""
    return [_WORDS[type(outcome)], *outcome]


def decode_outcome(message: Message) -> Outcome:
    """Decode an outcome that was part of a frame."""
    word, *values = message
    outcome = _OUTCOMES[word](*values)
    if isinstance(outcome, Continued):
        return outcome._replace(parts=tuple(Submission(*part) for part in outcome.parts))
    return outcome


def send_document(inbox: socket.socket, serial: int, claim: Claim) -> bool:
    """Send a document to an inbox; False if there is no room now."""
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
    """Receive the next document of an inbox; None if the other end is gone."""
    # not socket.recv_fds: it ignores the flags
    size, ancillary, _, _ = inbox.recvmsg_into([_buffer], _ANCILLARY_BYTES, flags | socket.MSG_CMSG_CLOEXEC)
    message = bytes(_buffer[:size])
    if ancillary:
        (handle,) = _HANDLE.unpack(ancillary[0][2])
        with open(handle, "rb") as file:
            file.seek(0)
            message = file.read()
    if not message:
        return None
    serial, *values = json.loads(message)
    return serial, Claim(*values)


def run(config: ChildConfig, handles: list[int]) -> None:
    """Run document after document, in a fork of the fork server, until the worker closes the inbox."""
    inbox_handle, responses_handle, pipe = handles
    inbox, sender = socket.socket(fileno=inbox_handle), OutputSender(socket.socket(fileno=responses_handle))
    _catch_shutdown_signals()
    capture_output(sender, pipe)
    random.seed()  # a fork has its parent's random state: all children would draw the same numbers
    syscalls.limit_address_space(config.memory_bytes)
    resident_max = syscalls.resident_bytes_max() + config.memory_bytes // 2
    while (received := receive_document(inbox)) is not None:
        serial, claim = received
        began_at = time.monotonic()
        sender.begin(serial)
        outcome, traceback = _handle(serial, claim, sender, config)
        seconds = time.monotonic() - began_at
        state = KEEP
        if syscalls.resident_bytes_max() > resident_max:
            state = REPLACE_MEMORY
        elif _has_living_children():
            state = REPLACE_PROCESSES
        sender.end(seconds, encode_outcome(outcome), state, traceback)
        if state:  # the fork server ends what is left of it, and the worker takes back what is in the inbox
            return
        del received, claim, outcome, traceback


def _catch_shutdown_signals() -> None:
    """Leave signals to the whole process group to the worker; this process is ended by kill -9.

    They are caught, not ignored, so that programs which a handler starts have the default actions; so do its forks.
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


def _handle(serial: int, claim: Claim, sender: OutputSender, config: ChildConfig) -> tuple[Outcome, str | None]:
    """Run the handler of one document; its reports go to the worker."""

    def send(report: ProgressReport) -> None:
        sender.report(serial, *report)

    return run_handler(config.functions[claim.kind], ClaimedDocument(claim, send, config.files), config.backoff)


def _has_living_children() -> bool:
    """Whether a handler left processes behind; those that have ended are reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
