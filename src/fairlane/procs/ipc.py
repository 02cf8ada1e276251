"""How do the worker's processes talk to each other? In frames: four bytes of length, then that much JSON.

Laws:
- No frame is larger than FRAME_BYTES_MAX; whoever sends a larger one, or no JSON, is treated as broken.
- The worker never waits for another process: what a socket does not take yet is kept and sent when there is room, up to
  UNSENT_BYTES_MAX.
- Nothing is unpacked but JSON.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

FRAME_BYTES_MAX = 4 * 1024 * 1024  # a payload or result of 256 KiB may take six bytes for one when it is escaped, twice
READ_BYTES = 256 * 1024
UNSENT_BYTES_MAX = 16 * 1024 * 1024  # more than that is kept for nobody who does not listen

_LENGTH = Struct("!I")
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class BadFrame(Exception):
    """What came is no frame."""


def framed(message: list[Any]) -> bytes:
    """A message as one frame."""
    body = _encode(message).encode()
    if len(body) > FRAME_BYTES_MAX:
        raise BadFrame(f"a message of {len(body):,} bytes; at most {FRAME_BYTES_MAX:,} fit in a frame")
    return _LENGTH.pack(len(body)) + body


class Unframed:
    """Bytes as they come in, cut into messages."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, received: bytes) -> Iterator[list[Any]]:
        """The messages that are whole now, one by one: those before a bad frame still count."""
        kept = self._kept
        kept += received
        at = 0
        while len(kept) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(kept, at)
            if size > FRAME_BYTES_MAX:
                raise BadFrame(f"a frame that claims {size:,} bytes")
            end = at + _LENGTH.size + size
            if len(kept) < end:
                break
            yield _message(bytes(kept[at + _LENGTH.size : end]))
            at = end
        del kept[:at]


def _message(body: bytes) -> list[Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"a frame that is not JSON ({error})") from error
    if not isinstance(message, list) or not message:
        raise BadFrame("a frame that is not a list with a word in front")
    return message


class Stream:
    """The worker's end of a socket: frames go out when there is room, and messages are handed over as they come in."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        end: socket.socket,
        heard: Callable[[list[Any]], None],
        ended: Callable[[str], None],
    ) -> None:
        end.setblocking(False)
        self._loop = loop
        self._end = end
        self._heard = heard
        self._ended = ended
        self._unframed = Unframed()
        self._unsent = bytearray()
        self._is_open = True
        loop.add_reader(end, self.receive)

    def send(self, message: list[Any]) -> None:
        """Send a message, now or as soon as there is room."""
        if not self._is_open:
            return
        is_waiting = bool(self._unsent)
        self._unsent += framed(message)
        if len(self._unsent) > UNSENT_BYTES_MAX:
            self._loop.call_soon(self._broken, "it does not listen")
        elif not is_waiting:
            self._flush()

    def _flush(self) -> None:
        try:
            del self._unsent[: self._end.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError as error:
            self._broken(str(error))
            return
        if self._unsent:
            self._loop.add_writer(self._end, self._flush)
        else:
            self._loop.remove_writer(self._end)

    def receive(self) -> None:
        """Hand over whatever is there."""
        while self._is_open:
            try:
                received = self._end.recv(READ_BYTES)
                for message in self._unframed.feed(received):
                    self._heard(message)
            except BlockingIOError:
                return
            except (OSError, BadFrame) as error:
                self._broken(str(error))
                return
            if not received:
                self._broken("it closed the connection")
            if len(received) < READ_BYTES:
                return

    def _broken(self, why: str) -> None:
        if self._is_open:
            self.close()
            self._ended(why)

    def close(self) -> None:
        """Let go of the socket."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._end)
            self._loop.remove_writer(self._end)
            self._end.close()
