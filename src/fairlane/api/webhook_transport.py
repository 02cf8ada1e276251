"""One signed POST to a webhook, to an address that was checked before it is connected to.

Laws:
- The name is resolved once; the address that was checked is the one that is connected to.
- Every address that is not public is refused, also when it is embedded in an IPv6 one.
- No redirects, no proxies, no cookies; a time limit on everything, and at most 4 KiB of the response are read.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ipaddress
import json
import socket
import ssl
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from fairlane.core.errors import BadValue

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
        raise BadValue("url", url, expected)


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
    addresses = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    if not addresses:
        raise AddressRefused(f"{host} has no address")
    if not allow_private and not all(map(is_public, addresses)):
        raise AddressRefused(f"{host} leads to an address that is not public")
    return addresses[0], port


def signature(secret: str, at: int, body: bytes) -> str:
    """Sign the time, a dot and the body with HMAC-SHA-256."""
    return hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()


def post(url: str, secret: str, number: int, fields: dict[str, Any], allow_private: bool) -> int:
    """Send one delivery; returns the status of the response."""
    target = urlsplit(url)
    host = target.hostname or ""
    port = target.port or (443 if target.scheme == "https" else 80)
    address = resolve(host, port, allow_private)
    at, body = int(time.time()), json.dumps(fields, separators=(",", ":")).encode()
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
                "Fairlane-Delivery": str(number),
                "Fairlane-Timestamp": str(at),
                "Fairlane-Signature": f"sha256={signature(secret, at, body)}",
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
