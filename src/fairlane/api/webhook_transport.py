"""How is somebody else's server called without being led astray? One signed POST to an address that was judged.

Laws:
- The name is resolved once; the address that was judged is the one that is connected to.
- Every address that is not plainly public is refused, also when it hides inside an IPv6 one.
- No redirects, no proxies, no cookies; a time limit on everything, and the answer's body is hardly read.
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
WHOLE_SECONDS = 20  # for the whole call, however slowly it is answered
ANSWER_BYTES_MAX = 4096
_HIDING = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96", "fec0::/10")))


class Refused(Exception):
    """An address that is not called."""


def checked_url(url: str) -> str:
    """A URL that can be called, refused otherwise."""
    wanted = "an address such as https://example.com/fairlane, without a user, of at most 2,000 characters"
    try:
        told = urlsplit(url)
        is_right = bool(
            told.scheme in ("http", "https") and told.hostname and not told.username and not told.password
            and (told.port is None or 1 <= told.port <= 65535) and len(url) <= 2000 and url.isascii() and url.isprintable()
            and " " not in url
        )  # fmt: skip
    except ValueError:
        is_right = False
    if not is_right:
        raise BadValue("url", url, wanted)
    return url


def is_public(address: str) -> bool:
    """Whether an address belongs to the open internet."""
    told = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(told, ipaddress.IPv6Address):
        if told.ipv4_mapped is not None:
            return is_public(str(told.ipv4_mapped))
        if any(told in network for network in _HIDING):
            return False
    return told.is_global and not told.is_multicast and not told.is_reserved


def judged(host: str, port: int, allow_private: bool) -> tuple[str, int]:
    """The address to connect to; refused if any that the name has is not public."""
    found = [str(one[4][0]) for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    if not found:
        raise Refused(f"{host} has no address")
    if not allow_private and not all(is_public(one) for one in found):
        raise Refused(f"{host} leads to an address that is not public")
    return found[0], port


def signature(secret: str, at: int, body: bytes) -> str:
    """What proves who sent it and when: HMAC-SHA-256 over the time, a dot and the body."""
    return hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()


def post(url: str, secret: str, number: int, told: dict[str, Any], allow_private: bool) -> int:
    """Send it; returns the status of the answer."""
    target = urlsplit(url)
    host = target.hostname or ""
    port = target.port or (443 if target.scheme == "https" else 80)
    address = judged(host, port, allow_private)
    at, body = int(time.time()), json.dumps(told, separators=(",", ":")).encode()
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    connection.sock = socket.create_connection(address, TIMEOUT_SECONDS)
    cut = threading.Timer(WHOLE_SECONDS, connection.sock.shutdown, (socket.SHUT_RDWR,))
    cut.daemon = True
    cut.start()
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
        answer = connection.getresponse()
        answer.read(ANSWER_BYTES_MAX)
        return answer.status
    except http.client.HTTPException as error:
        raise OSError(f"no answer that can be read: {type(error).__name__}") from None
    finally:
        cut.cancel()
        connection.close()
