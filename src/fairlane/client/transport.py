"""How are bytes sent to a server and read back? Connections of the standard library, kept open and used again.

Laws:
- Every wait has an end: for connecting, for each piece sent or read, and for an answer as a whole.
- An answer has a size that it may not exceed.
- Redirects are not followed: the key goes to the server that was named and to no other.
- A connection is used again only after its answer was read to the end, and never in another process.
"""

from __future__ import annotations

import http.client
import io
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple
from urllib.parse import quote, urlsplit

from fairlane.core.errors import BadValue, Mistake

KEPT_MAX = 64
KEPT_SECONDS = 20.0  # a server lets go of idle connections after 30
PIECE_BYTES = 256 * 1024
ANSWER_BYTES_MAX = 1024**3
ANSWER_SECONDS = 3600.0
RUNS = "see that it runs there, and try again"
OR_TLS = "see that it runs there, and try again; if it has TLS, its address begins with https://"
TRUST = "use the name that the certificate is for, and let SSL_CERT_FILE name a file of certificates that you trust"
NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")  # it answers with something else

Advance = Callable[[int, int], object]  # is told bytes sent and bytes in all


class Lost(Exception):
    """The connection failed; `is_sent` if the server may have seen the request, `is_final` if it would fail again."""

    def __init__(self, why: str, advice: str, is_sent: bool, is_final: bool) -> None:
        super().__init__(why)
        self.advice = advice
        self.is_sent = is_sent
        self.is_final = is_final


class Body(NamedTuple):
    """What is sent: a file that can be read again from its beginning, its size and its media type."""

    content: BinaryIO
    size: int
    media_type: str
    advance: Advance | None = None


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Asked(NamedTuple):
    """A request that was sent, and the answer as far as its headers."""

    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse
    is_whole: bool  # everything was sent


def json_body(told: bytes) -> Body:
    return Body(io.BytesIO(told), len(told), "application/json")


class Line:
    """The way to one server; may be used by many threads at once."""

    def __init__(self, url: str, key: str | None, seconds: float) -> None:
        parts = urlsplit(url) if isinstance(url, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise BadValue("url", url if parts is None or "@" not in parts.netloc else "…", "as in http://127.0.0.1:8000")
        if parts.query or parts.fragment:
            raise BadValue("url", url, "the address of the server alone, as in https://fairlane.example.com")
        if key is not None and not (isinstance(key, str) and key.isascii() and key.isprintable() and key and " " not in key):
            raise Mistake("the key is not one of Fairlane's: it must be the text that `fairlane keys create` showed")
        try:
            self._port = parts.port
        except ValueError:
            raise BadValue("url", url, "an address with a port from 0 to 65535") from None
        self._host = parts.hostname
        self._before = quote(parts.path.rstrip("/"), safe="/%")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._key = key
        self._seconds = seconds
        self._kept: list[tuple[float, http.client.HTTPConnection]] = []
        self._lock = threading.Lock()
        self._process = os.getpid()
        self.address = f"{parts.scheme}://{parts.netloc}{self._before}"

    def close(self) -> None:
        """Let go of every connection."""
        with self._lock:
            kept, self._kept = self._kept, []
        for _, one in kept:
            one.close()

    def exchange(
        self, method: str, path: str, body: Body | None, headers: Mapping[str, str], seconds: float, fresh: bool
    ) -> Answer:
        """One request and its whole answer; `fresh` on a new connection, which cannot be one that the server has given up."""
        with self.asked(method, path, body, headers, seconds, fresh) as (connection, response, is_whole):
            answer = Answer(response.status, response.headers, _whole(response))
        if is_whole and connection.sock is not None:
            self._keep(connection)
        else:
            connection.close()
        return answer

    @contextmanager
    def asked(
        self, method: str, path: str, body: Body | None, headers: Mapping[str, str], seconds: float, fresh: bool
    ) -> Iterator[Asked]:
        """Send a request; the answer is there to be read. The connection is closed if anything goes wrong."""
        connection = self._connected(fresh)
        try:
            assert connection.sock is not None
            connection.sock.settimeout(seconds)
            is_whole = _sent(connection, method, f"{self._before}{path}", body, self._headers(headers, body))
            yield Asked(connection, connection.getresponse(), is_whole)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _lost(error, is_sent=True, has_tls=self._tls is not None) from None
        except BaseException:
            connection.close()
            raise

    def _headers(self, headers: Mapping[str, str], body: Body | None) -> dict[str, bytes]:
        told = {"Accept": b"*/*", "User-Agent": b"fairlane-client"}
        if self._key is not None:
            told["Authorization"] = f"Bearer {self._key}".encode()
        if body is not None:
            told |= {"Content-Type": body.media_type.encode(), "Content-Length": b"%d" % body.size}
        return told | {name: value.encode() for name, value in headers.items()}

    def _connected(self, fresh: bool) -> http.client.HTTPConnection:
        with self._lock:
            if self._process != os.getpid():  # these belong to the process that we were forked from
                self._process, self._kept = os.getpid(), []
            while self._kept and not fresh:
                at, connection = self._kept.pop()
                if time.monotonic() - at < KEPT_SECONDS and not _is_readable(connection):
                    return connection
                connection.close()
        made = self._new()
        try:
            made.connect()
        except (OSError, http.client.HTTPException) as error:
            made.close()
            raise _lost(error, is_sent=False, has_tls=self._tls is not None) from None
        return made

    def _new(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._seconds, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._seconds)

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._kept) < KEPT_MAX:
                self._kept.append((time.monotonic(), connection))
                return
        connection.close()


def _sent(
    connection: http.client.HTTPConnection, method: str, path: str, body: Body | None, headers: Mapping[str, bytes]
) -> bool:
    """Send a request; False if the server answered, or closed, before it had everything."""
    connection.putrequest(method, path, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    try:
        connection.endheaders()
        return body is None or _pieces_sent(connection, body)
    except (BrokenPipeError, ConnectionResetError):
        return False  # it may have said why before it closed: the answer is read next


def _pieces_sent(connection: http.client.HTTPConnection, body: Body) -> bool:
    body.content.seek(0)
    sent = 0
    while sent < body.size:
        piece = _read(body, min(PIECE_BYTES, body.size - sent))
        if not piece:
            raise Mistake(f"the file became shorter while it was sent: {sent:,} bytes instead of {body.size:,}")
        if sent and _is_readable(connection):
            return False
        connection.send(piece)
        sent += len(piece)
        if body.advance is not None:
            body.advance(sent, body.size)
    return True


def _read(body: Body, size: int) -> bytes:
    try:
        return body.content.read(size)
    except OSError as error:  # not to be taken for a failure of the connection
        raise Mistake(f"the file cannot be read to its end: {error.strerror or error}") from error


def _is_readable(connection: http.client.HTTPConnection) -> bool:
    """Whether the other side has said something, or closed."""
    line = connection.sock
    if line is None:
        return True
    if isinstance(line, ssl.SSLSocket):  # there, something to read need not be part of an answer
        return False
    waiting = select.poll()
    waiting.register(line, select.POLLIN)
    return bool(waiting.poll(0))


def _whole(response: http.client.HTTPResponse) -> bytes:
    pieces, size, deadline = [], 0, time.monotonic() + ANSWER_SECONDS
    while piece := response.read1(PIECE_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > ANSWER_BYTES_MAX or time.monotonic() > deadline:
            raise http.client.HTTPException(f"the answer does not end: {size:,} bytes so far")
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    response.close()
    return b"".join(pieces)


def _lost(error: OSError | http.client.HTTPException, is_sent: bool, has_tls: bool) -> Lost:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Lost(_why(error), TRUST, is_sent, is_final=True)
    if isinstance(error, ssl.SSLError) and error.reason in NO_TLS:
        return Lost("it does not speak TLS", "its address may begin with http:// instead", is_sent, is_final=True)
    is_unknown = isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME
    may_have_tls = not has_tls and isinstance(error, ConnectionResetError)  # closed without a word
    return Lost(_why(error), OR_TLS if may_have_tls else RUNS, is_sent, is_unknown)


def _why(error: OSError | http.client.HTTPException) -> str:
    """What went wrong, in a few words and without anything that was sent."""
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, http.client.RemoteDisconnected | http.client.IncompleteRead | ConnectionError):
        return "connection refused" if isinstance(error, ConnectionRefusedError) else "the connection was lost"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return "it does not speak HTTP" if isinstance(error, http.client.HTTPException) else "the connection failed"
