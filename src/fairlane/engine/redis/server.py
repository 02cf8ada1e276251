"""What a Redis or Valkey server reports about itself, which servers are refused, and how durable they are."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.core.errors import StoreError, StoreUnfit

from .connection import RedisPool

REDIS_OLDEST, VALKEY_OLDEST = (6, 2), (7, 2)
FLAGS_SINCE = (7, 0)
SAFE_POLICIES = ("noeviction", "volatile-")  # a queue's keys have no expiry, so volatile policies do not drop them


class ServerInfo(NamedTuple):
    """What a server reports about itself; empty where it does not."""

    product: str = ""
    version: str = ""
    fields: dict[str, str] = {}  # noqa: RUF012 - never changed

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version as numbers."""
        return tuple(int(part) for part in self.version.split(".") if part.isdigit())


def read_server_info(pool: RedisPool) -> ServerInfo:
    """Read INFO and settings; a managed server may forbid some of it."""
    fields: dict[str, str] = {}
    for section in ("server", "memory", "persistence", "replication"):
        fields |= _info(pool, section)
    for setting in ("appendfsync", "no-appendfsync-on-rewrite"):
        fields |= _setting(pool, setting)
    if "valkey_version" in fields:
        return ServerInfo("Valkey", fields["valkey_version"], fields)
    return ServerInfo("Redis", fields.get("redis_version", ""), fields)


def _info(pool: RedisPool, section: str) -> dict[str, str]:
    reply = _unless_forbidden(pool, "INFO", section)
    pairs = (line.partition(":") for line in str(reply or "").splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}


def _setting(pool: RedisPool, name: str) -> dict[str, str]:
    reply = _unless_forbidden(pool, "CONFIG", "GET", name)
    return dict(zip(reply[::2], reply[1::2], strict=True)) if reply else {}


def _unless_forbidden(pool: RedisPool, *command: str) -> list[str] | str | None:
    """Execute a command; None if the server forbids it."""
    try:
        reply: list[str] | str = pool.execute(*command)
    except StoreError as error:
        cause = str(error.__cause__)
        if "permissions" in cause or "unknown command" in cause or "not allowed" in cause or "denied" in cause.lower():
            return None
        raise
    return reply


def refuse_unfit(server: ServerInfo, display: str) -> None:
    """Refuse a server that is too old, drops keys, or cannot be written."""
    oldest = VALKEY_OLDEST if server.product == "Valkey" else REDIS_OLDEST
    if server.version and server.numbers[:2] < oldest:
        needed = ".".join(map(str, oldest))
        raise StoreUnfit(
            f"the server at {display} is {server.product} {server.version}; {needed} or newer is needed: upgrade it"
        )
    if server.fields.get("redis_mode", server.fields.get("server_mode")) == "cluster":
        raise StoreUnfit(
            f"the server at {display} is part of a cluster, which is not supported: a queue lives in one hash slot and would "
            "gain nothing; give a single server"
        )
    if server.fields.get("redis_mode") == "sentinel":
        raise StoreUnfit(f"the server at {display} is a sentinel, which holds no data; give the URL of the primary it watches")
    if server.fields.get("role") == "slave":
        raise StoreUnfit(f"the server at {display} is a replica, which cannot be written; give the URL of its primary")
    policy = server.fields.get("maxmemory_policy", "noeviction")
    if not policy.startswith(SAFE_POLICIES):
        raise StoreUnfit(
            f"the server at {display} has maxmemory-policy {policy}, which drops keys when memory is short, and with them "
            "documents that were accepted; set it to noeviction: CONFIG SET maxmemory-policy noeviction, and the same in the "
            "server's configuration file"
        )


def durability(server: ServerInfo, replicas: int = 0) -> str:
    """Describe how durable an acknowledgement is, in one sentence; `replicas` have it before it is given."""
    name = f"{server.product} {server.version}".strip()
    is_logged, synced = server.fields.get("aof_enabled"), server.fields.get("appendfsync")
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
    if server.fields.get("no-appendfsync-on-rewrite") != "no":
        return f"not durable while the server rewrites its file: set no-appendfsync-on-rewrite no ({name}, appendfsync=always)"
    settings = f"{name}, appendonly, appendfsync=always"
    if replicas:
        return (
            f"durable: acknowledged after the data is on the primary's disk and {count_of(replicas)} received it ({settings})"
        )
    if connected := int(server.fields.get("connected_slaves", 0)):
        return (
            f"not durable at a failover: the data is on the primary's disk, but nothing waits for its {count_of(connected)}; "
            f"add replicas=1 to the URL ({settings})"
        )
    return f"durable: acknowledged after the data is on disk ({settings})"


def count_of(replicas: int) -> str:
    """Say how many replicas."""
    return f"{replicas} replica{'s' if replicas > 1 else ''}"
