"""One signed POST to a webhook (Standard Webhooks), to an address that was checked before it is connected to.

Laws:
- Signed are the id, the time of this try and the body, as the specification has it: once with every secret that is valid.
- The name is resolved once; the address that was checked is the one that is connected to.
- Every address that is not public is refused, also when it is embedded in an IPv6 one.
- No redirects, no proxies, no cookies; a time limit on everything, and at most 4 KiB of the response are read.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from fairlane.core.errors import BadValue
from fairlane.masking import mask_url

PREFIX = "whsec_"  # of a secret; the rest is base64
TIMEOUT_SECONDS = 10
CALL_SECONDS_MAX = 20  # for the whole call, however slow the response is
RESPONSE_BYTES_MAX = 4096
_EMBEDDING = tuple(
    map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96", "fec0::/10"))
)


class AddressRefused(Exception):
    """The webhook's address must not be called."""


def validate_url(url: str) -> None:
    """Refuse a URL that cannot be called."""
    expected = "an address such as https://example.com/fairlane, without a user, of at most 2,000 characters"
    try:
        parts = urlsplit(url)
        is_valid = bool(
            parts.scheme in ("http", "https") and parts.hostname and not parts.username and not parts.password
            and (parts.port is None or 1 <= parts.port <= 65535) and len(url) <= 2000 and url.isascii() and url.isprintable()
            and " " not in url
        )  # fmt: skip
    except ValueError:
        is_valid = False
    if not is_valid:
        raise BadValue("url", mask_url(url), expected)


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return is_public(str(parsed.ipv4_mapped))
        if any(parsed in network for network in _EMBEDDING):
            return False
    return parsed.is_global and not parsed.is_multicast and not parsed.is_reserved


def resolve(host: str, port: int, allow_private: bool) -> tuple[str, int]:
    """Return the address to connect to; refused if any that the name has is not public."""
    try:
        addresses = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        addresses = []
    # One sentence for both: customers must not learn which names exist in the network of the service.
    if not addresses or (not allow_private and not all(map(is_public, addresses))):
        raise AddressRefused(f"{host} leads to no address that is public")
    return addresses[0], port


def secret_bytes(secret: str) -> bytes:
    """Return the bytes that a secret stands for."""
    return base64.b64decode(secret.removeprefix(PREFIX), validate=True)


def signature(secret: str, id: str, at: int, body: bytes) -> str:
    """Sign the id, the time and the body, joined by dots, with HMAC-SHA-256."""
    digest = hmac.new(secret_bytes(secret), f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def post(url: str, secrets: Sequence[str], id: str, body: bytes, allow_private: bool) -> int:
    """Send one delivery; returns the status of the response."""
    target = urlsplit(url)
    host = target.hostname or ""
    port = target.port or (443 if target.scheme == "https" else 80)
    address = resolve(host, port, allow_private)
    at = int(time.time())
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    connection.sock = socket.create_connection(address, TIMEOUT_SECONDS)
    deadline = threading.Timer(CALL_SECONDS_MAX, connection.sock.shutdown, (socket.SHUT_RDWR,))
    deadline.daemon = True
    deadline.start()
    try:
        if target.scheme == "https":
            connection.sock = ssl.create_default_context().wrap_socket(connection.sock, server_hostname=host)
        path = (target.path or "/") + (f"?{target.query}" if target.query else "")
        connection.request(
            "POST",
            path,
            body,
            {
                "Host": target.netloc,
                "Content-Type": "application/json",
                "User-Agent": "fairlane",
                "Connection": "close",
                "webhook-id": id,
                "webhook-timestamp": str(at),
                "webhook-signature": " ".join(signature(secret, id, at, body) for secret in secrets),
            },
        )
        response = connection.getresponse()
        response.read(RESPONSE_BYTES_MAX)
        return response.status
    except http.client.HTTPException as error:
        raise OSError(f"unreadable response: {type(error).__name__}") from None
    finally:
        deadline.cancel()
        connection.close()
