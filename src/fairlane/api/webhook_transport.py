"""One signed POST to a webhook (Standard Webhooks), to an address that was checked before it is connected to.

Laws:
- Signed are the id, the time of this try and the body, as the specification has it: once with every secret that is valid. No
  other header says anything that a receiver could rely on.
- One deadline holds over the connection, the TLS handshake, the request and every byte of the response: each wait lasts no
  longer than what is left of it. (A name is looked up before; that ends when the system's resolver gives up.)
- At most RESPONSE_BYTES_MAX of a response are read, and its status decides: nothing in its body does.
- No redirects, no proxies, no cookies.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import ssl
import time
from collections.abc import Sequence
from functools import cache
from urllib.parse import urlsplit

import h11

from .webhook_addresses import resolve

PREFIX = "whsec_"  # of a secret; the rest is base64
RESPONSE_BYTES_MAX = 16 * 1024
PIECE_BYTES = 4096


class CallFailed(Exception):
    """A call got no response; the message says why, in words for the customer."""


def secret_bytes(secret: str) -> bytes:
    """Return the bytes that a secret stands for."""
    return base64.b64decode(secret.removeprefix(PREFIX), validate=True)


def signature(secret: str, id: str, at: int, body: bytes) -> str:
    """Sign the id, the time and the body, joined by dots, with HMAC-SHA-256."""
    digest = hmac.new(secret_bytes(secret), f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def post(url: str, secrets: Sequence[str], id: str, body: bytes, allow_private: bool, seconds: float) -> int:
    """Send one delivery, and return the status of the response; raises AddressRefused or CallFailed."""
    deadline = time.monotonic() + seconds
    target = urlsplit(url)
    host, is_tls = target.hostname or "", target.scheme == "https"
    address = resolve(host, target.port or (443 if is_tls else 80), allow_private)
    at = int(time.time())
    headers = {
        "host": target.netloc,
        "content-type": "application/json",
        "content-length": str(len(body)),
        "user-agent": "fairlane",
        "connection": "close",
        "webhook-id": id,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(signature(secret, id, at, body) for secret in secrets),
    }
    path = (target.path or "/") + (f"?{target.query}" if target.query else "")
    try:
        with _connect(address, host if is_tls else None, deadline) as connection:
            return _exchange(connection, h11.Request(method="POST", target=path, headers=list(headers.items())), body, deadline)
    except TimeoutError:
        raise CallFailed(f"no response within {seconds:g} seconds") from None
    except ssl.SSLCertVerificationError as error:
        raise CallFailed(f"its certificate is not trusted: {error.verify_message}") from None
    except h11.ProtocolError as error:
        raise CallFailed(f"unreadable response: {error}") from None
    except OSError as error:
        raise CallFailed(f"the connection failed: {error.strerror or type(error).__name__}") from None


@cache
def _tls_context() -> ssl.SSLContext:
    """Make the context once: it reads every certificate that the system trusts."""
    return ssl.create_default_context()


def _connect(address: tuple[str, int], tls_name: str | None, deadline: float) -> socket.socket:
    connection = socket.create_connection(address, _left(deadline))
    if tls_name is None:
        return connection
    try:
        connection.settimeout(_left(deadline))  # for the whole handshake
        return _tls_context().wrap_socket(connection, server_hostname=tls_name)
    except BaseException:
        connection.close()
        raise


def _exchange(connection: socket.socket, request: h11.Request, body: bytes, deadline: float) -> int:
    """Send a request; return the status of its response."""
    protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=RESPONSE_BYTES_MAX)
    pieces = (protocol.send(request), protocol.send(h11.Data(data=body)), protocol.send(h11.EndOfMessage()))
    unsent = memoryview(b"".join(piece for piece in pieces if piece))
    while unsent:
        connection.settimeout(_left(deadline))
        unsent = unsent[connection.send(unsent) :]
    status, received = 0, 0
    try:
        while not isinstance(event := protocol.next_event(), h11.EndOfMessage | h11.ConnectionClosed):
            if isinstance(event, h11.Response):
                status = event.status_code
            elif event is h11.NEED_DATA:
                if received >= RESPONSE_BYTES_MAX:
                    raise h11.RemoteProtocolError(f"more than {RESPONSE_BYTES_MAX:,} bytes without an end")
                connection.settimeout(_left(deadline))
                piece = connection.recv(PIECE_BYTES)
                received += len(piece)
                protocol.receive_data(piece)
    except (OSError, h11.RemoteProtocolError):
        if not status:
            raise
    return status


def _left(deadline: float) -> float:
    """Return how long the next wait may last."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
