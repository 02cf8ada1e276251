"""Where is the server, and which queue on it? What a URL says, checked before anything is opened."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from fairlane.core.errors import BadValue

SCHEMES = {"redis": False, "valkey": False, "rediss": True, "valkeys": True}  # whether it is encrypted
SOCKET_SCHEMES = ("redis+unix", "valkey+unix")
DEFAULT_QUEUE = "default"
DEFAULT_PORT = 6379
WANTED = (
    "redis://, rediss:// (encrypted), valkey:// or valkeys://, as in redis://user:password@host:6379/0?queue=name, or "
    "redis+unix:///folder/redis.sock?queue=name"
)
OPTIONS = ("queue", "db", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
_QUEUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Place(NamedTuple):
    """A server, how to connect to it, and the queue's name there."""

    shown: str  # without a password
    queue: str
    path: str | None  # of a socket
    is_encrypted: bool
    settings: dict[str, Any]  # of a connection

    @property
    def prefix(self) -> str:
        """All keys of a queue begin with it; the braces make them one hash slot."""
        return f"{{fairlane:{self.queue}}}:"


def is_url(url: str) -> bool:
    """Whether a URL is for this engine."""
    return url.partition("://")[0] in {*SCHEMES, *SOCKET_SCHEMES}


def place_of(url: str) -> Place:
    """What a URL says; refuses what it does not understand."""
    try:
        told = urlsplit(url)
        port = told.port
    except ValueError as error:
        raise BadValue("url", _shown(url), WANTED) from error
    options = _options(url, told.query)
    is_socket = told.scheme in SOCKET_SCHEMES
    if is_socket and (told.path in ("", "/") or told.hostname):
        raise BadValue("url", _shown(url), "redis+unix:// and the full path of a socket, as in redis+unix:///folder/redis.sock")
    settings: dict[str, Any] = {"db": _database(url, "" if is_socket else told.path, options.pop("db", None))}
    if told.username:
        settings["username"] = unquote(told.username)
    if told.password:
        settings["password"] = unquote(told.password)
    queue = options.pop("queue", DEFAULT_QUEUE)
    if not _QUEUE.fullmatch(queue):
        raise BadValue("queue", queue, "1 to 64 letters, digits, dots, dashes or underscores, as in ?queue=invoices")
    is_encrypted = SCHEMES.get(told.scheme, False)
    if options and not is_encrypted:
        raise BadValue("url", _shown(url), f"rediss:// or valkeys:// to use {', '.join(options)}")
    if not is_socket:
        settings |= {"host": told.hostname or "localhost", "port": port or DEFAULT_PORT}
    if "ssl_check_hostname" in options:
        settings["ssl_check_hostname"] = options.pop("ssl_check_hostname").lower() not in ("0", "no", "false")
    return Place(_shown(url), queue, unquote(told.path) if is_socket else None, is_encrypted, settings | options)


def _options(url: str, query: str) -> dict[str, str]:
    """What stands behind the question mark, each once."""
    told = parse_qs(query, keep_blank_values=True)
    for name, values in told.items():
        if name not in OPTIONS or len(values) > 1:
            raise BadValue(f"{name} in the url", _shown(url), f"one of {', '.join(OPTIONS)}, each at most once")
    return {name: values[0] for name, values in told.items()}


def _database(url: str, path: str, option: str | None) -> int:
    number = option if option is not None else path.strip("/") or "0"
    if not re.fullmatch(r"[0-9]{1,5}", number):
        raise BadValue("url", _shown(url), "the number of a database behind the host, as in redis://localhost:6379/0")
    return int(number)


def _shown(url: str) -> str:
    """A URL for people: the password left out."""
    return re.sub(r"(://[^/@]*?):[^/@]*@", r"\1:...@", url)
