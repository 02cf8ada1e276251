"""Messages between a worker's processes: frames of a four-byte length and that much JSON.

Laws:
- No frame is larger than FRAME_BYTES_MAX; a process that sends a larger one, or one that is not JSON, counts as broken.
- Sending never blocks: what a socket does not accept yet is buffered, up to UNSENT_BYTES_MAX.
- Nothing but JSON is ever decoded.
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
UNSENT_BYTES_MAX = 16 * 1024 * 1024  # a process that leaves more unread counts as broken

_LENGTH = Struct("!I")
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode

Message = list[Any]


class BadFrame(Exception):
    """The received bytes are not a frame, or a message does not fit into one."""


def encode_frame(message: Message) -> bytes:
    """Encode a message as one frame."""
    body = _encode(message).encode()
    if len(body) > FRAME_BYTES_MAX:
        raise BadFrame(f"a message of {len(body):,} bytes; at most {FRAME_BYTES_MAX:,} fit in a frame")
    return _LENGTH.pack(len(body)) + body


class FrameDecoder:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, received: bytes) -> Iterator[Message]:
        """Yield the messages that are complete now, also those before a bad frame."""
        buffer = self._buffer
        buffer += received
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(buffer, start)
            if size > FRAME_BYTES_MAX:
                raise BadFrame(f"a frame that claims {size:,} bytes")
            end = start + _LENGTH.size + size
            if len(buffer) < end:
                break
            yield _decode(bytes(buffer[start + _LENGTH.size : end]))
            start = end
        del buffer[:start]


def _decode(body: bytes) -> Message:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"a frame that is not JSON ({error})") from error
    if not isinstance(message, list) or not message:
        raise BadFrame("a frame that is not a list with a word in front")
    return message


class FrameStream:
    """One end of a socket on an event loop: sends frames when there is room, passes received messages to a callback."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: socket.socket,
        on_message: Callable[[Message], None],
        on_end: Callable[[str], None],
    ) -> None:
        connection.setblocking(False)
        self._loop = loop
        self._connection = connection
        self._on_message = on_message
        self._on_end = on_end
        self._decoder = FrameDecoder()
        self._unsent = bytearray()
        self._is_open = True
        loop.add_reader(connection, self.receive)

    def send(self, message: Message) -> None:
        """Send a message, now or as soon as there is room."""
        if not self._is_open:
            return
        is_waiting = bool(self._unsent)
        self._unsent += encode_frame(message)
        if len(self._unsent) > UNSENT_BYTES_MAX:
            self._loop.call_soon(self._end, "it does not read its messages")
        elif not is_waiting:
            self._flush()

    def _flush(self) -> None:
        try:
            del self._unsent[: self._connection.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError as error:
            self._end(str(error))
            return
        if self._unsent:
            self._loop.add_writer(self._connection, self._flush)
        else:
            self._loop.remove_writer(self._connection)

    def receive(self) -> None:
        """Pass on every message that has arrived."""
        while self._is_open:
            try:
                received = self._connection.recv(READ_BYTES)
                for message in self._decoder.feed(received):
                    self._on_message(message)
            except BlockingIOError:
                return
            except (OSError, BadFrame) as error:
                self._end(str(error))
                return
            if not received:
                self._end("it closed the connection")
            if len(received) < READ_BYTES:
                return

    def _end(self, reason: str) -> None:
        if self._is_open:
            self.close()
            self._on_end(reason)

    def close(self) -> None:
        """Close the socket."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._connection)
            self._loop.remove_writer(self._connection)
            self._connection.close()
