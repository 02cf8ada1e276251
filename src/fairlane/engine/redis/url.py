"""Redis and Valkey URLs: the server and the name of the queue, validated before anything is opened."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from fairlane.core.errors import BadValue
from fairlane.engine.deadline import CALL_SECONDS, parse_timeout
from fairlane.masking import mask_url

SCHEMES = {"redis": False, "valkey": False, "rediss": True, "valkeys": True}  # whether the connection is encrypted
SOCKET_SCHEMES = ("redis+unix", "valkey+unix")
DEFAULT_QUEUE = "default"
DEFAULT_PORT = 6379
REPLICAS_MAX = 16
REPLICAS_SECONDS = 5.0  # how long a write waits for replicas
EXAMPLE = (
    "redis://, rediss:// (encrypted), valkey:// or valkeys://, as in redis://user:password@host:6379/0?queue=name, or "
    "redis+unix:///folder/redis.sock?queue=name"
)
OPTIONS = (
    "queue",
    "db",
    "timeout",
    "replicas",
    "replicas_timeout",
    "ssl_ca_certs",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_cert_reqs",
    "ssl_check_hostname",
)
_QUEUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class RedisUrl(NamedTuple):
    """A server, how to connect to it, and the queue's name there."""

    display: str  # for messages, without the password
    queue: str
    socket_path: str | None
    is_encrypted: bool
    timeout: float  # seconds that a call may take
    replicas: int  # that have a write before it is acknowledged
    replicas_timeout: float  # seconds that a write waits for them
    settings: dict[str, Any]  # of the client's connection

    @property
    def prefix(self) -> str:
        """Return what all keys of the queue begin with; the braces put them into one hash slot."""
        return f"{{fairlane:{self.queue}}}:"


def parse_url(url: str) -> RedisUrl:
    """Parse a URL; refuse unknown options."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # its message quotes a part of the password that was taken for the port
        raise BadValue("url", mask_url(url), EXAMPLE) from None
    options = _options(url, parts.query)
    is_socket = parts.scheme in SOCKET_SCHEMES
    if is_socket and (parts.path in ("", "/") or parts.hostname):
        raise BadValue(
            "url", mask_url(url), "redis+unix:// and the full path of a socket, as in redis+unix:///folder/redis.sock"
        )
    settings: dict[str, Any] = {"db": _database(url, "" if is_socket else parts.path, options.pop("db", None))}
    if parts.username:
        settings["username"] = unquote(parts.username)
    if parts.password:
        settings["password"] = unquote(parts.password)
    queue = options.pop("queue", DEFAULT_QUEUE)
    if not _QUEUE.fullmatch(queue):
        raise BadValue("queue", queue, "1 to 64 letters, digits, dots, dashes or underscores, as in ?queue=invoices")
    timeout = parse_timeout("timeout", options.pop("timeout", None), CALL_SECONDS)
    replicas = options.pop("replicas", "0")
    if not re.fullmatch(r"[0-9]{1,2}", replicas) or int(replicas) > REPLICAS_MAX:
        raise BadValue(
            "replicas in the url", replicas, f"how many replicas must have a write, 0 to {REPLICAS_MAX}, as in ?replicas=1"
        )
    replicas_timeout = parse_timeout("replicas_timeout", options.pop("replicas_timeout", None), REPLICAS_SECONDS)
    is_encrypted = SCHEMES.get(parts.scheme, False)
    if options and not is_encrypted:
        raise BadValue("url", mask_url(url), f"rediss:// or valkeys:// to use {', '.join(options)}")
    if not is_socket:
        settings |= {"host": parts.hostname or "localhost", "port": port or DEFAULT_PORT}
    if "ssl_check_hostname" in options:
        settings["ssl_check_hostname"] = options.pop("ssl_check_hostname").lower() not in ("0", "no", "false")
    socket_path = unquote(parts.path) if is_socket else None
    return RedisUrl(
        mask_url(url), queue, socket_path, is_encrypted, timeout, int(replicas), replicas_timeout, settings | options
    )


def _options(url: str, query: str) -> dict[str, str]:
    """Parse the options; refuse unknown and repeated ones."""
    options = parse_qs(query, keep_blank_values=True)
    for name, values in options.items():
        if name not in OPTIONS or len(values) > 1:
            raise BadValue(f"{name} in the url", mask_url(url), f"one of {', '.join(OPTIONS)}, each at most once")
    return {name: values[0] for name, values in options.items()}


def _database(url: str, path: str, option: str | None) -> int:
    number = option if option is not None else path.strip("/") or "0"
    if not re.fullmatch(r"[0-9]{1,5}", number):
        raise BadValue("url", mask_url(url), "the number of a database behind the host, as in redis://localhost:6379/0")
    return int(number)
