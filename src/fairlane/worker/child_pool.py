"""The worker's child processes: one for a slot when there is a document for it, each with a few documents in its inbox.

Documents are sent a little ahead of time, so that a child never waits for the worker.

Laws:
- A child responds to its documents in order, so the first one without a response is the one that it runs.
- A document in a child's inbox can be taken back: when another child is idle, when a document of a better priority overtakes
  it, when the worker stops, and when the child has ended.
- A child that crashed, hung, used much memory or left processes behind is ended with everything it started, and replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from fairlane.core.document import Outcome
from fairlane.procs.ipc import FrameStream, Message

from .child import decode_outcome, receive_document, send_document
from .claims import ActiveClaim, insertion_index
from .document import clean_text
from .handlers import HandlerEvents
from .output import split_crash
from .raw_output import RawOutput

INBOX_MAX = 32  # documents that a child is sent ahead
CLOSED = "it closed the connection"  # most often because it has ended: the fork server reports in a moment how
REFUSED_SECONDS = 0.5  # to wait after a fork failed
REPORTS = {"report": 2, "printed": 1, "logged": 1, "dropped": 1}  # what a running handler sends, and its number of values


class PoolEvents(HandlerEvents, Protocol):
    """Receiver of what children report, and of what becomes of them."""

    def returned(self, claims: list[ActiveClaim]) -> None:
        """These were sent to a child and never begun."""

    def child_ended(self, number: int, reason: str) -> None:
        """A child is gone; its slot is free."""


class _Response(NamedTuple):
    outcome: Outcome
    seconds: float
    replace_reason: str
    traceback: str | None


class Child:
    """One child process, as the worker sees it."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop, control: socket.socket, events: PoolEvents) -> None:
        self.number = number
        self.documents: deque[ActiveClaim] = deque()  # without a response; the first of them runs
        self.end_reason: str | None = None  # why it is being ended
        self._loop = loop
        self._control = control
        self._events = events
        self._pass_on: dict[str, Callable[..., None]] = {
            "report": events.reported, "printed": events.printed, "logged": events.logged, "dropped": events.dropped
        }  # fmt: skip
        self._inbox, self._inbox_child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._inbox.setblocking(False)
        responses, self._responses_child_end = socket.socketpair()
        self._responses = FrameStream(loop, responses, self._received, lambda _: self.end(CLOSED))
        self._output = RawOutput(loop, self._printed, self._dropped)

    def start(self) -> None:
        """Have the fork server fork the process."""
        handles = [self._inbox_child_end.fileno(), self._responses_child_end.fileno(), self._output.write_end]
        try:
            socket.send_fds(self._control, [json.dumps(["fork", self.number]).encode()], handles)
        finally:  # our copies would keep its pipes open; the inbox stays, as we may take back what is in it
            self._responses_child_end.close()
            os.close(self._output.write_end)

    def send(self, active: ActiveClaim) -> bool:
        """Send a document to the inbox; False if there is no room."""
        try:
            is_sent = send_document(self._inbox, active.serial, active.claim)
        except OSError as error:
            self.end(str(error))
            return False
        if is_sent:
            self.documents.append(active)
            self._begin()
        return is_sent

    def _begin(self) -> None:
        """Note that the first document is the one that runs."""
        if self.documents and self.documents[0].began_at is None:
            self.documents[0].began_at = self._loop.time()
            self._events.began(self.documents[0])

    def _received(self, message: Message) -> None:
        try:
            word, serial, *values = message
            if not self.documents or self.documents[0].serial != serial:
                raise ValueError(f"{word} about a document it does not run")
            response = _parse(word, values)
        except (LookupError, TypeError, ValueError) as error:
            self.end(f"it sent a message that cannot be understood ({error})")
            return
        if isinstance(response, list):
            self._pass_on[word](self.documents[0], *response)
            return
        self._output.end_document()
        active = self.documents.popleft()
        self._begin()
        if response.replace_reason:
            self.end(response.replace_reason)
        self._events.finished(active, response.outcome, response.seconds, response.traceback)

    def _printed(self, line: str) -> None:
        """Pass on a line of raw output; between two documents there is nobody to whom it belongs."""
        if self.documents:
            self._events.printed(self.documents[0], line)

    def _dropped(self, lines: int) -> None:
        if self.documents:
            self._events.dropped(self.documents[0], lines)

    def index_of(self, active: ActiveClaim) -> int:
        """Return how many documents would begin before this one, the running one included."""
        return max(1, insertion_index(self.documents, active))

    def take_back(self) -> ActiveClaim | None:
        """Take back the next document of the inbox that the child has not taken."""
        try:  # by a flag for this call: a setting of the socket would be the child's too, which blocks in it
            received = receive_document(self._inbox_child_end, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        serial = None if received is None else received[0]
        active = next((active for active in self.documents if active.serial == serial), None)
        if active is not None:
            self.documents.remove(active)
            active.began_at = None
            self._begin()
        return active

    def take_back_all(self) -> list[ActiveClaim]:
        """Empty the inbox."""
        claims = []
        while (active := self.take_back()) is not None:
            claims.append(active)
        return claims

    def end(self, reason: str) -> None:
        """Have the fork server end the process and all it started; its document is reported when it is really gone."""
        if self.end_reason is None:
            self.end_reason = reason
            with contextlib.suppress(OSError):
                self._control.send(json.dumps(["end", self.number]).encode())

    def ended(self, reason: str) -> None:
        """The process is gone: its last responses still count, its running document died, the others were not begun."""
        self.end_reason = self.end_reason or reason
        self._responses.receive()
        unbegun = self.take_back_all()
        printed = self._output.end_document()
        died = list(self.documents)
        self.documents.clear()
        self.close()
        self._events.child_ended(self.number, reason)
        self._events.returned(unbegun)
        for active in died:
            active.printed += printed
            last_line = split_crash(active.printed)[0].rpartition("\n")[2]
            self._events.died(active, clean_text(f"{reason}; last printed: {last_line}" if last_line else reason))

    def close(self) -> None:
        """Close all connections."""
        self._responses.close()
        self._output.close()
        self._inbox.close()
        self._inbox_child_end.close()


def _parse(word: str, values: list[Any]) -> list[Any] | _Response:
    """Parse what a child sent about the document it runs: values for one of REPORTS, or a response."""
    if word in REPORTS:
        if len(values) != REPORTS[word]:
            raise ValueError(f"{word} with {len(values)} values")
        return values
    seconds, outcome, replace_reason, traceback = values
    return _Response(decode_outcome(outcome), seconds, replace_reason, traceback)


class ChildPool:
    """All children of a worker, at most one a slot."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        control: socket.socket | None,  # to the fork server; None if no handler runs in a child
        slots: int,
        events: PoolEvents,
        on_fork_server_end: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._control = control
        self._slots = slots
        self._events = events
        self._on_fork_server_end = on_fork_server_end
        self._children: dict[int, Child] = {}
        self._last_number = 0
        self._no_fork_until = 0.0
        if control is not None:
            control.setblocking(False)
            loop.add_reader(control, self._receive)

    @property
    def running(self) -> int:
        """How many documents run in children."""
        return sum(bool(child.documents) for child in self._children.values())

    def send(self, active: ActiveClaim, may_begin: bool) -> bool:
        """Send a document to an idle child if it may begin now, else to the inbox of a busy one; False if none has room."""
        usable = self._usable()
        idle = next((child for child in usable if not child.documents), None)
        if may_begin and idle is None and len(self._children) < self._slots:
            idle = self._fork()
        if may_begin and idle is not None:
            return idle.send(active)
        places = [
            (child.index_of(active), child.documents[0].began_at or 0.0, child.number) for child in usable if child.documents
        ]
        index, _, number = min(places, default=(INBOX_MAX + 1, 0.0, 0))
        return index <= INBOX_MAX and self._enqueue(self._children[number], active)

    def _usable(self) -> list[Child]:
        return [child for child in self._children.values() if child.end_reason is None]

    def _enqueue(self, child: Child, active: ActiveClaim) -> bool:
        """Send a document to the inbox of a busy child, before those that it overtakes."""
        unsent = child.take_back_all() if child.index_of(active) < len(child.documents) else []
        unsent.insert(insertion_index(unsent, active), active)
        while unsent and len(child.documents) <= INBOX_MAX and child.send(unsent[0]):
            unsent.pop(0)
        if others := [other for other in unsent if other is not active]:
            self._events.returned(others)
        return active not in unsent

    def _fork(self) -> Child | None:
        if self._control is None or self._loop.time() < self._no_fork_until:
            return None
        self._last_number += 1
        child = Child(self._last_number, self._loop, self._control, self._events)
        self._children[child.number] = child
        try:
            child.start()
        except OSError as error:
            self._remove(child, f"the fork server could not be reached: {error}")
            return None
        return child

    def rebalance(self) -> None:
        """Return a document out of a busy child's inbox if another child could begin it."""
        usable = self._usable()
        has_idle = any(not child.documents for child in usable) or len(self._children) < self._slots
        fullest = max(usable, key=lambda child: len(child.documents), default=None)
        if has_idle and fullest is not None and len(fullest.documents) > 1 and (active := fullest.take_back()) is not None:
            self._events.returned([active])

    def take_back_all(self) -> list[ActiveClaim]:
        """Take back everything that children have not begun."""
        claims = [active for child in self._children.values() for active in child.take_back_all()]
        return sorted(claims, key=lambda active: active.serial)

    def end_handler(self, active: ActiveClaim, reason: str) -> bool:
        """End the child that runs a document; False if none does. Those behind it in the inbox come to no harm."""
        child = next((child for child in self._children.values() if active in child.documents), None)
        if child is None:
            return False
        if active is not child.documents[0]:
            self._events.returned([other for other in child.take_back_all() if other is not active])
        if active in child.documents:
            child.end(reason)
        return True

    def end_overdue(self, now: float, seconds_of: Callable[[ActiveClaim], float]) -> None:
        """End children whose document took longer than it may."""
        for child in list(self._children.values()):
            active = child.documents[0] if child.documents else None
            if active is not None and active.began_at is not None and now - active.began_at > seconds_of(active):
                child.end(f"it ran for more than its {seconds_of(active):g} seconds and was stopped")

    def end_all(self, reason: str) -> None:
        """End every child."""
        for child in list(self._children.values()):
            child.end(reason)

    def _receive(self) -> None:
        """Receive what the fork server reports."""
        assert self._control is not None
        while True:
            try:
                message = self._control.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self._fork_server_ended()
                return
            word, number, value = json.loads(message)
            child = self._children.get(number)
            if child is not None and word == "ended":
                is_known = child.end_reason not in (None, CLOSED)
                self._remove(child, str(child.end_reason) if is_known else _describe_exit(value))
            elif child is not None and word == "refused":
                self._no_fork_until = self._loop.time() + REFUSED_SECONDS
                self._remove(child, f"it could not be started: {value}")

    def _fork_server_ended(self) -> None:
        assert self._control is not None
        self._loop.remove_reader(self._control)
        self._on_fork_server_end("the fork server process ended; it was killed from outside, or memory ran out")
        for child in list(self._children.values()):
            self._remove(child, "the fork server ended, and every child with it")

    def _remove(self, child: Child, reason: str) -> None:
        self._children.pop(child.number, None)
        child.ended(reason)

    def close(self) -> None:
        """Close all connections; the fork server ends what is left."""
        if self._control is not None:
            self._loop.remove_reader(self._control)
            self._control.close()
        for child in self._children.values():
            child.close()
        self._children.clear()


def _describe_exit(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"the handler's process was killed by {signal.Signals(-code).name}"
    return f"the handler's process exited with code {code} before the handler returned"
