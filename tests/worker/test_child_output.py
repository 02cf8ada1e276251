"""The child's end of the connection to the worker."""

from __future__ import annotations

import socket
import threading

from fairlane.procs.ipc import READ_BYTES, FrameDecoder, Message
from fairlane.worker.child_output import OutputSender

LINES = 4000


def test_a_worker_that_does_not_read_holds_up_no_handler() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = OutputSender(ours)
        sender.begin(7)
        handler = threading.Thread(target=print_lines, args=(sender,), daemon=True)
        handler.start()
        handler.join(timeout=30)
        assert not handler.is_alive()
        received: list[Message] = []
        reader = threading.Thread(target=lambda: received.extend(frames(theirs)))
        reader.start()
        sender.end(0.5, "outcome")
        reader.join(timeout=60)
    printed = [int(line) for word, _, line in received[:-2]]
    assert printed == list(range(len(printed)))
    assert received[-2:] == [["dropped", 7, LINES - len(printed)], ["ended", 7, 0.5, "outcome"]]


def print_lines(sender: OutputSender) -> None:
    for n in range(LINES):
        assert sender.output(500, "printed", f"{n:0500}")


def frames(connection: socket.socket) -> list[Message]:
    """Read frames until a document has ended."""
    decoder, messages = FrameDecoder(), list[Message]()
    while not messages or messages[-1][0] != "ended":
        messages += decoder.feed(connection.recv(READ_BYTES))
    return messages


def test_nothing_is_sent_about_a_document_that_does_not_run() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = OutputSender(ours)
        assert not sender.output(1, "printed", "before")
        sender.begin(1)
        sender.report(1, 0.5, None)
        sender.report(2, 0.9, None)
        sender.end("outcome")
        assert not sender.output(1, "printed", "after")
        sender.report(1, 1.0, None)
        assert frames(theirs) == [["report", 1, 0.5, None], ["ended", 1, "outcome"]]
