"""Is this server fit to hold a queue, and what is an acknowledgement worth there?"""

from __future__ import annotations

from typing import NamedTuple

from fairlane.core.errors import StoreError, StoreUnfit

from .connection import Link

REDIS_OLDEST, VALKEY_OLDEST = (6, 2), (7, 2)
FLAGS_SINCE = (7, 0)
KEPT = ("noeviction", "volatile-")  # a queue's keys have no expiry, so volatile policies do not drop them


class Server(NamedTuple):
    """What a server says of itself; empty where it does not say."""

    product: str = ""
    version: str = ""
    facts: dict[str, str] = {}  # noqa: RUF012 - never changed

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version as numbers."""
        return tuple(int(part) for part in self.version.split(".") if part.isdigit())


def inspect(link: Link) -> Server:
    """Ask the server about itself; a managed one may refuse some of it."""
    facts: dict[str, str] = {}
    for section in ("server", "memory", "persistence", "replication"):
        facts |= _info(link, section)
    for setting in ("appendfsync", "no-appendfsync-on-rewrite"):
        facts |= _setting(link, setting)
    if "valkey_version" in facts:
        return Server("Valkey", facts["valkey_version"], facts)
    return Server("Redis", facts.get("redis_version", ""), facts)


def _info(link: Link, section: str) -> dict[str, str]:
    told = _unless_forbidden(link, "INFO", section)
    pairs = (line.partition(":") for line in str(told or "").splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}


def _setting(link: Link, name: str) -> dict[str, str]:
    told = _unless_forbidden(link, "CONFIG", "GET", name)
    return dict(zip(told[::2], told[1::2], strict=True)) if told else {}


def _unless_forbidden(link: Link, *command: str) -> list[str] | str | None:
    """The answer, or None on a server that does not allow to ask."""
    try:
        answer: list[str] | str = link.ask(*command)
    except StoreError as error:
        cause = str(error.__cause__)
        if "permissions" in cause or "unknown command" in cause or "not allowed" in cause or "denied" in cause.lower():
            return None
        raise
    return answer


def refuse_unfit(server: Server, shown: str) -> None:
    """Refuse a server that is too old, drops keys, or cannot be written."""
    oldest = VALKEY_OLDEST if server.product == "Valkey" else REDIS_OLDEST
    if server.version and server.numbers[:2] < oldest:
        needed = ".".join(map(str, oldest))
        raise StoreUnfit(f"the server at {shown} is {server.product} {server.version}; {needed} or newer is needed: upgrade it")
    if server.facts.get("redis_mode", server.facts.get("server_mode")) == "cluster":
        raise StoreUnfit(
            f"the server at {shown} is part of a cluster, which is not supported: a queue lives in one hash slot and would "
            "gain nothing; give a single server"
        )
    if server.facts.get("redis_mode") == "sentinel":
        raise StoreUnfit(f"the server at {shown} is a sentinel, which holds no data; give the URL of the primary it watches")
    if server.facts.get("role") == "slave":
        raise StoreUnfit(f"the server at {shown} is a replica, which cannot be written; give the URL of its primary")
    policy = server.facts.get("maxmemory_policy", "noeviction")
    if not policy.startswith(KEPT):
        raise StoreUnfit(
            f"the server at {shown} has maxmemory-policy {policy}, which drops keys when memory is short, and with them "
            "documents that were accepted; set it to noeviction: CONFIG SET maxmemory-policy noeviction, and the same in the "
            "server's configuration file"
        )


def durability(server: Server) -> str:
    """What an acknowledgement is worth, in one sentence."""
    name = f"{server.product} {server.version}".strip()
    is_logged, synced = server.facts.get("aof_enabled"), server.facts.get("appendfsync")
    if is_logged is None:
        return f"not known: the server does not tell whether appendonly is on ({name})"
    if is_logged != "1":
        return f"not durable: what came after the server's last snapshot is gone when it stops; set appendonly yes ({name})"
    if synced is None:
        return f"not known: the server writes to a file, but does not tell its appendfsync ({name}, appendonly)"
    if synced == "no":
        return f"not durable: a crash of the machine loses what the system had not written; set appendfsync always ({name})"
    if synced == "everysec":
        return f"not durable: a crash may lose about the last second; set appendfsync always ({name}, appendfsync=everysec)"
    if server.facts.get("no-appendfsync-on-rewrite") != "no":
        return f"not durable while the server rewrites its file: set no-appendfsync-on-rewrite no ({name}, appendfsync=always)"
    return f"durable: acknowledged after the data is on disk ({name}, appendonly, appendfsync=always)"
