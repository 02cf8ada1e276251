"""HTTP transport: a pool of keep-alive connections to one server, on `http.client`.

Laws:
- Every wait has a timeout: for connecting, for each piece sent or read, and for a response as a whole.
- A response has a maximum size.
- Redirects are not followed: the key is sent to the configured server and to no other.
- A connection is reused only after its response was read to the end, and never in another process.
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
from fairlane.masking import mask_url

IDLE_MAX = 64
IDLE_SECONDS = 20.0  # the server closes idle connections after 30
PIECE_BYTES = 256 * 1024
RESPONSE_BYTES_MAX = 1024**3
RESPONSE_SECONDS = 3600.0
CHECK_SERVER = "check that it is running, and try again"
CHECK_SERVER_OR_TLS = "check that it is running, and try again; if it uses TLS, its address begins with https://"
CHECK_CERTIFICATE = "use the host name in the certificate, and set SSL_CERT_FILE to a file of certificates that you trust"
NOT_TLS_REASONS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")

UploadCallback = Callable[[int, int], object]  # called with bytes sent and bytes in total


class ConnectionLost(Exception):
    """The connection failed; `is_sent` if the server may have seen the request, `is_final` if it would fail again."""

    def __init__(self, reason: str, advice: str, is_sent: bool, is_final: bool) -> None:
        super().__init__(reason)
        self.advice = advice
        self.is_sent = is_sent
        self.is_final = is_final


class BodySource(NamedTuple):
    """A file that can be read again from its beginning, its size and its media type."""

    content: BinaryIO
    size: int
    media_type: str
    on_progress: UploadCallback | None = None


class HttpResponse(NamedTuple):
    """A whole response."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class OpenResponse(NamedTuple):
    """A response whose body is still to be read."""

    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse
    is_sent: bool  # the whole request was sent


def json_body(content: bytes) -> BodySource:
    return BodySource(io.BytesIO(content), len(content), "application/json")


class Transport:
    """Connections to one server; may be used by many threads at once."""

    def __init__(self, url: str, key: str | None, seconds: float) -> None:
        parts = urlsplit(url) if isinstance(url, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise BadValue("url", url if parts is None or "@" not in parts.netloc else "…", "as in http://127.0.0.1:8000")
        if parts.query or parts.fragment:
            raise BadValue("url", mask_url(url), "the address of the server alone, as in https://fairlane.example.com")
        if key is not None and not (isinstance(key, str) and key.isascii() and key.isprintable() and key and " " not in key):
            raise Mistake("the key is not one of Fairlane's: it must be the text that `fairlane keys create` showed")
        try:
            self._port = parts.port
        except ValueError:
            raise BadValue("url", mask_url(url), "an address with a port from 0 to 65535") from None
        self._host = parts.hostname
        self._path_prefix = quote(parts.path.rstrip("/"), safe="/%")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._key = key
        self._connect_seconds = seconds
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self.address = f"{parts.scheme}://{parts.netloc}{self._path_prefix}"

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def request(
        self, method: str, path: str, body: BodySource | None, headers: Mapping[str, str], seconds: float, fresh: bool
    ) -> HttpResponse:
        """Send a request and read its whole response; `fresh` on a new connection, which the server cannot have closed."""
        with self.stream(method, path, body, headers, seconds, fresh) as (connection, response, is_sent):
            whole = HttpResponse(response.status, response.headers, _read_body(response))
        if is_sent and connection.sock is not None:
            self._release(connection)
        else:
            connection.close()
        return whole

    @contextmanager
    def stream(
        self, method: str, path: str, body: BodySource | None, headers: Mapping[str, str], seconds: float, fresh: bool
    ) -> Iterator[OpenResponse]:
        """Send a request and yield its response, unread; the connection is closed on any error."""
        connection = self._acquire(fresh)
        try:
            assert connection.sock is not None
            connection.sock.settimeout(seconds)
            is_sent = _send(connection, method, f"{self._path_prefix}{path}", body, self._headers(headers, body))
            yield OpenResponse(connection, connection.getresponse(), is_sent)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _connection_lost(error, is_sent=True, has_tls=self._tls is not None) from None
        except BaseException:
            connection.close()
            raise

    def _headers(self, headers: Mapping[str, str], body: BodySource | None) -> dict[str, bytes]:
        merged = {"Accept": b"*/*", "User-Agent": b"fairlane-client"}
        if self._key is not None:
            merged["Authorization"] = f"Bearer {self._key}".encode()
        if body is not None:
            merged |= {"Content-Type": body.media_type.encode(), "Content-Length": b"%d" % body.size}
        return merged | {name: value.encode() for name, value in headers.items()}

    def _acquire(self, fresh: bool) -> http.client.HTTPConnection:
        with self._lock:
            if self._pid != os.getpid():  # forked: the idle connections belong to the parent process
                self._pid, self._idle = os.getpid(), []
            while self._idle and not fresh:
                idle_since, connection = self._idle.pop()
                if time.monotonic() - idle_since < IDLE_SECONDS and not _is_readable(connection):
                    return connection
                connection.close()
        connection = self._new_connection()
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _connection_lost(error, is_sent=False, has_tls=self._tls is not None) from None
        return connection

    def _new_connection(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._connect_seconds, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._connect_seconds)

    def _release(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < IDLE_MAX:
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()


def _send(
    connection: http.client.HTTPConnection, method: str, path: str, body: BodySource | None, headers: Mapping[str, bytes]
) -> bool:
    """Send a request; return False if the server responded, or closed, before it had everything."""
    connection.putrequest(method, path, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    try:
        connection.endheaders()
        return body is None or _send_body(connection, body)
    except (BrokenPipeError, ConnectionResetError):
        return False  # the server may have sent a response before it closed: that is read next


def _send_body(connection: http.client.HTTPConnection, body: BodySource) -> bool:
    body.content.seek(0)
    sent = 0
    while sent < body.size:
        piece = _read_piece(body, min(PIECE_BYTES, body.size - sent))
        if not piece:
            raise Mistake(f"the file became shorter while it was sent: {sent:,} bytes instead of {body.size:,}")
        if sent and _is_readable(connection):
            return False
        connection.send(piece)
        sent += len(piece)
        if body.on_progress is not None:
            body.on_progress(sent, body.size)
    return True


def _read_piece(body: BodySource, size: int) -> bytes:
    try:
        return body.content.read(size)
    except OSError as error:  # must not be taken for a connection error
        raise Mistake(f"the file cannot be read to its end: {error.strerror or error}") from error


def _is_readable(connection: http.client.HTTPConnection) -> bool:
    """Return whether the server has sent something, or closed."""
    if connection.sock is None:
        return True
    if isinstance(connection.sock, ssl.SSLSocket):  # readable TLS records need not belong to a response
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _read_body(response: http.client.HTTPResponse) -> bytes:
    pieces, size, deadline = [], 0, time.monotonic() + RESPONSE_SECONDS
    while piece := response.read1(PIECE_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > RESPONSE_BYTES_MAX or time.monotonic() > deadline:
            raise http.client.HTTPException(f"the response does not end: {size:,} bytes so far")
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    response.close()
    return b"".join(pieces)


def copy_body(response: http.client.HTTPResponse, into: BinaryIO, on_piece: Callable[[int], object]) -> None:
    """Copy a response's body into a file, and see that it is whole; `on_piece` gets how many bytes there are so far."""
    size = 0
    while piece := response.read1(PIECE_BYTES):
        try:
            into.write(piece)
        except OSError as error:  # must not be taken for a connection error
            raise Mistake(f"what was downloaded cannot be written: {error.strerror or error}") from error
        size += len(piece)
        on_piece(size)
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    response.close()


def _connection_lost(error: OSError | http.client.HTTPException, is_sent: bool, has_tls: bool) -> ConnectionLost:
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConnectionLost(_describe(error), CHECK_CERTIFICATE, is_sent, is_final=True)
    if isinstance(error, ssl.SSLError) and error.reason in NOT_TLS_REASONS:
        return ConnectionLost("it does not speak TLS", "its address may begin with http:// instead", is_sent, is_final=True)
    is_unknown_host = isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME
    may_be_tls = not has_tls and isinstance(error, ConnectionResetError)  # closed without a response
    advice = CHECK_SERVER_OR_TLS if may_be_tls else CHECK_SERVER
    return ConnectionLost(_describe(error), advice, is_sent, is_unknown_host)


def _describe(error: OSError | http.client.HTTPException) -> str:
    """Describe an error in a few words, without anything that was sent."""
    if isinstance(error, TimeoutError):
        return "it did not respond in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, http.client.RemoteDisconnected | http.client.IncompleteRead | ConnectionError):
        return "connection refused" if isinstance(error, ConnectionRefusedError) else "the connection was lost"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return "it does not speak HTTP" if isinstance(error, http.client.HTTPException) else "the connection failed"
