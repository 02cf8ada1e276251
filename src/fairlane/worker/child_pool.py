"""How does the worker use its children? It forks one for a slot when there is a document for it, and gives it the next
documents a little ahead of time, so that a child never waits for the worker.

Laws:
- A child answers its documents in order, so the first that it was given and has not answered is the one it runs.
- A document waiting in a child's inbox can be taken back: when another child is idle, when one of a better priority
  passes it, when the worker stops, and when the child has ended.
- A child that crashed, hung, was used up or left processes behind is ended with everything it started, and replaced.
- What children print is drained at once and forgotten, but for the end.
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
from typing import Any, Protocol

from fairlane.core.document import Outcome
from fairlane.procs.ipc import BadFrame, Stream

from .child import PRINTED_END, outcome_of, receive_document, send_document
from .claims import Held, place_among
from .document import cleaned

INBOX_MAX = 32  # documents that a child is given ahead
PRINTED_BYTES_MAX = 4096
READ_BYTES = 64 * 1024
CLOSED = "it closed the connection"  # most often because it has ended, and the template tells in a moment how
REFUSED_SECONDS = 0.5  # to wait after a fork failed


class Listener(Protocol):
    """What the worker wants to hear about its children."""

    def began(self, held: Held) -> None:
        """A handler has its document."""

    def answered(self, held: Held, outcome: Outcome, seconds: float) -> None:
        """A handler has finished."""

    def reported(self, held: Held, progress: float | str | None, partial: str | None) -> None:
        """A handler told something on its way."""

    def died(self, held: Held, reason: str) -> None:
        """The child that ran this document has ended, and its handler with it."""

    def came_back(self, held: list[Held]) -> None:
        """These were never begun."""

    def child_ended(self, number: int, reason: str) -> None:
        """A child is gone."""

    def helper_ended(self, reason: str) -> None:
        """The template is gone: nothing can be forked any more."""


class Child:
    """One child, as the worker sees it."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop, pool: Children) -> None:
        self.number = number
        self.given: deque[Held] = deque()  # the first of them runs
        self.ending: str | None = None  # why it is being ended
        self.inbox, self.inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.inbox.setblocking(False)
        answers, self._theirs = socket.socketpair()
        self.output, self._printing = os.pipe()
        os.set_blocking(self.output, False)
        self._printed = bytearray()
        self._whole: deque[bytearray] = deque(maxlen=2 * INBOX_MAX)  # of documents whose answer is under way
        self._loop = loop
        self._pool = pool
        self.answers = Stream(loop, answers, self._heard, lambda _: pool.end(self, CLOSED))
        loop.add_reader(self.output, self.drain)

    def handles(self) -> list[int]:
        """What the child itself gets."""
        return [self.inside.fileno(), self._theirs.fileno(), self._printing]

    def handed_over(self) -> None:
        """The child has its handles; ours would keep its pipes open. The inbox stays: we may take back what is in it."""
        self._theirs.close()
        os.close(self._printing)

    def _heard(self, message: list[Any]) -> None:
        try:
            self._pool.heard(self, message)
        except (BadFrame, LookupError, TypeError, ValueError) as error:
            self._pool.end(self, f"it sent what nobody understands ({error})")

    def drain(self) -> None:
        """Read what was printed, and keep the end of it."""
        try:
            printed = os.read(self.output, READ_BYTES)
        except BlockingIOError:
            return
        if not printed:
            self._loop.remove_reader(self.output)
        self._printed += printed
        *whole, self._printed = self._printed.split(PRINTED_END)
        self._whole.extend(one[-PRINTED_BYTES_MAX:] for one in whole)
        del self._printed[:-PRINTED_BYTES_MAX]

    def printed(self) -> str:
        """The end of what the document it was at has printed, and is not taken yet."""
        self.drain()
        told = self._whole.popleft() if self._whole else self._printed
        return told.decode("utf-8", "replace").strip()

    def take_back(self) -> Held | None:
        """A document that the child has not taken yet."""
        try:  # by a flag for this call: a setting of the socket would be the child's too, which waits in it
            taken = receive_document(self.inside, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        held = next((one for one in self.given if taken is not None and one.serial == taken[0]), None)
        if held is not None:
            self.given.remove(held)
            held.began = None
            self.begin()
        return held

    def place_of(self, held: Held) -> int:
        """How many that it was given would begin before this one, that which runs included."""
        return max(1, place_among(self.given, held))

    def emptied(self) -> list[Held]:
        """What was in its inbox, taken back."""
        back = []
        while (held := self.take_back()) is not None:
            back.append(held)
        return back

    def begin(self) -> None:
        """The first that it was given is the one it runs."""
        if self.given and self.given[0].began is None:
            self.given[0].began = self._loop.time()
            self._pool.began(self.given[0])

    def close(self) -> None:
        """Let go of everything."""
        self.answers.close()
        self._loop.remove_reader(self.output)
        os.close(self.output)
        self.inbox.close()
        self.inside.close()


class Children:
    """All children of a worker, at most one a slot."""

    def __init__(self, loop: asyncio.AbstractEventLoop, control: socket.socket | None, slots: int, listener: Listener) -> None:
        self._nobody: socket.socket | None = None
        if control is None:  # no handler runs in a child: nobody answers, and nobody is asked
            control, self._nobody = socket.socketpair()
        control.setblocking(False)
        self._loop = loop
        self._control = control
        self._slots = slots
        self._listener = listener
        self._all: dict[int, Child] = {}
        self._numbers = 0
        self._refused_until = 0.0
        loop.add_reader(control, self._template_tells)

    @property
    def running(self) -> int:
        """How many documents run in children."""
        return sum(bool(child.given) for child in self._all.values())

    @property
    def is_empty(self) -> bool:
        return not self._all

    def give(self, held: Held, may_begin: bool) -> bool:
        """Give a document to an idle child if it may begin now, else to the inbox of a busy one; False if none has room."""
        usable = [child for child in self._all.values() if child.ending is None]
        idle = next((child for child in usable if not child.given), None)
        if may_begin and idle is None and len(self._all) < self._slots:
            idle = self._fork()
        if may_begin and idle is not None:
            return self._send(idle, held)
        places = [(child.place_of(held), child.given[0].began or 0.0, child.number) for child in usable if child.given]
        place, _, number = min(places, default=(INBOX_MAX + 1, 0.0, 0))
        return place <= INBOX_MAX and self._put(self._all[number], held)

    def _put(self, child: Child, held: Held) -> bool:
        """Into the inbox of a busy child, before those that it passes."""
        passed = child.emptied() if child.place_of(held) < len(child.given) else []
        passed.insert(place_among(passed, held), held)
        while passed and len(child.given) <= INBOX_MAX and self._send(child, passed[0]):
            passed.pop(0)
        if back := [one for one in passed if one is not held]:
            self._listener.came_back(back)
        return held not in passed

    def _send(self, child: Child, held: Held) -> bool:
        try:
            is_sent = send_document(child.inbox, held.serial, held.claim)
        except OSError as error:
            self.end(child, str(error))
            return False
        if is_sent:
            child.given.append(held)
            child.begin()
        return is_sent

    def _fork(self) -> Child | None:
        if self._loop.time() < self._refused_until:
            return None
        self._numbers += 1
        child = Child(self._numbers, self._loop, self)
        self._all[child.number] = child
        try:
            socket.send_fds(self._control, [json.dumps(["fork", child.number]).encode()], child.handles())
        except OSError as error:
            self._gone(child, f"the template could not be asked: {error}")
            return None
        finally:
            child.handed_over()
        return child

    def began(self, held: Held) -> None:
        """A child has a document to run."""
        self._listener.began(held)

    def heard(self, child: Child, message: list[Any]) -> None:
        """A child said something."""
        word, serial, *values = message
        held = child.given[0] if child.given else None
        if held is None or held.serial != serial:
            raise ValueError(f"{word} about a document it does not run")
        if word == "report":
            self._listener.reported(held, *values)
            return
        seconds, outcome, why_replace, has_printed = values
        told = outcome_of(outcome)
        child.given.popleft()
        held.printed = child.printed() if has_printed else ""
        child.begin()
        if why_replace:
            self.end(child, why_replace)
        self._listener.answered(held, told, seconds)

    def share_out(self) -> bool:
        """An idle child gets what waits in a busy one's inbox; False if there was nothing to move."""
        usable = [child for child in self._all.values() if child.ending is None]
        idle = next((child for child in usable if not child.given), None)
        full = max((child for child in usable if len(child.given) > 1), key=lambda child: len(child.given), default=None)
        if full is None or (idle is None and len(self._all) >= self._slots):
            return False
        held = full.take_back()
        if held is None:
            return False
        self._listener.came_back([held])
        return True

    def take_back_all(self) -> list[Held]:
        """Everything that children have not begun."""
        back = [held for child in self._all.values() for held in child.emptied()]
        return sorted(back, key=lambda held: held.serial)

    def end_handler(self, held: Held, why: str) -> bool:
        """End the child that runs a document; False if none does. Those behind it in the inbox come to no harm."""
        for child in list(self._all.values()):
            if held in child.given:
                if held is not child.given[0]:
                    back = child.emptied()
                    self._listener.came_back([one for one in back if one is not held])
                if held in child.given:
                    self.end(child, why)
                return True
        return False

    def end_hung(self, now: float, seconds_of: Callable[[Held], float]) -> None:
        """End children whose document took longer than it may."""
        for child in list(self._all.values()):
            head = child.given[0] if child.given else None
            if head is not None and head.began is not None and now - head.began > seconds_of(head):
                self.end(child, f"it ran for more than its {seconds_of(head):g} seconds and was stopped")

    def end_all(self, why: str) -> None:
        """End every child."""
        for child in list(self._all.values()):
            self.end(child, why)

    def end(self, child: Child, why: str) -> None:
        """Have the template end a child and all it started; what it ran is told when it is really gone."""
        if child.ending is None:
            child.ending = why
            with contextlib.suppress(OSError):
                self._control.send(json.dumps(["end", child.number]).encode())

    def _template_tells(self) -> None:
        while True:
            try:
                message = self._control.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self._loop.remove_reader(self._control)
                self._listener.helper_ended("the template process ended; it was killed from outside, or memory ran out")
                for child in list(self._all.values()):
                    self._gone(child, "the template ended, and every child with it")
                return
            word, number, told = json.loads(message)
            child_or_none = self._all.get(number)
            if child_or_none is not None and word == "ended":
                ending = child_or_none.ending
                self._gone(child_or_none, _told_of_exit(told) if ending in (None, CLOSED) else str(ending))
            elif child_or_none is not None and word == "refused":
                self._refused_until = self._loop.time() + REFUSED_SECONDS
                self._gone(child_or_none, f"it could not be started: {told}")

    def _gone(self, child: Child, why: str) -> None:
        """A child has ended: its last answers still count, the document it ran has died, the others were not begun."""
        child.ending = child.ending or why
        child.answers.receive()
        back = child.emptied()
        died = list(child.given)
        child.given.clear()
        printed = child.printed()
        child.close()
        self._all.pop(child.number, None)
        self._listener.child_ended(child.number, why)
        self._listener.came_back(back)
        for held in died:
            held.printed = printed
            last = printed.rpartition("\n")[2]
            self._listener.died(held, cleaned(f"{why}; last printed: {last}" if last else why))

    def close(self) -> None:
        """Let go of everything; the template ends what is left."""
        self._loop.remove_reader(self._control)
        self._control.close()
        if self._nobody is not None:
            self._nobody.close()
        for child in self._all.values():
            child.close()
        self._all.clear()


def _told_of_exit(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"the handler's process was killed by {signal.Signals(-code).name}"
    return f"the handler's process exited with code {code} before the handler returned"
