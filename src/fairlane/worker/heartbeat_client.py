"""How does the worker tell its keeper what it holds, and hear what became of it?

Laws:
- What is held and what is dropped is told with the next beat, so that what is soon done is never told: no lease ends so soon.
- The payload stays here: a lease needs none.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any, Protocol

from fairlane.procs.ipc import Stream

from .claims import Held


class Listener(Protocol):
    """What the worker wants to hear from its keeper."""

    def keeper_ready(self) -> None:
        """From now on leases are renewed."""

    def renewed(self, asked: float, upto: int, lost: Sequence[int]) -> None:
        """What was told up to that serial was renewed, and these were lost."""

    def renewal_failed(self, reason: str) -> None:
        """The store could not be asked."""

    def helper_ended(self, reason: str) -> None:
        """The keeper is gone: nothing is renewed any more."""


class Keeping:
    """The worker's end of the line to its keeper."""

    def __init__(self, loop: asyncio.AbstractEventLoop, end: socket.socket, listener: Listener) -> None:
        self._listener = listener
        self._untold: dict[int, Held] = {}  # by serial: held since the last beat
        self._dropped: list[int] = []  # of those that were told before
        gone = "the keeper process ended; it was killed from outside, or memory ran out"
        self._stream = Stream(loop, end, self._heard, lambda _: listener.helper_ended(gone))

    def hold(self, taken: Sequence[Held]) -> None:
        """These are held."""
        self._untold.update((one.serial, one) for one in taken)

    def drop(self, gone: Sequence[Held]) -> None:
        """These are not held any more."""
        self._dropped += [one.serial for one in gone if self._untold.pop(one.serial, None) is None]

    def beat(self, deadline: float | None) -> None:
        """The loop is well; if it is silent beyond the deadline, a handler hangs on it."""
        held = [[serial, one.claim._replace(payload="")] for serial, one in self._untold.items()]
        self._stream.send(["beat", deadline, held, self._dropped])
        self._untold, self._dropped = {}, []

    def _heard(self, message: list[Any]) -> None:
        word, *values = message
        match word:
            case "ready":
                self._listener.keeper_ready()
            case "renewed":
                self._listener.renewed(*values)
            case "failed":
                self._listener.renewal_failed(*values)

    def close(self) -> None:
        """The keeper goes when the line is closed."""
        self._stream.close()
