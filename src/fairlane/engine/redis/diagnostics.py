"""Diagnostics for `fairlane doctor`: the server's version, durability, clock, eviction policy and memory."""

from __future__ import annotations

import time

from fairlane.core.errors import StoreError
from fairlane.engine.protocol import Finding

from .connection import RedisPool
from .server import SAFE_POLICIES, ServerInfo, durability, read_server_info

CLOCK_SKEW_MS_MAX = 2000
FULL_SHARE = 0.9
SETTINGS = "set appendonly yes, appendfsync always and no-appendfsync-on-rewrite no, now by CONFIG SET and in the server's file"


def diagnose(pool: RedisPool, form: int, replicas: int) -> list[Finding]:
    """Read the server's state and check each thing that can be wrong with it."""
    server = read_server_info(pool)
    return [_version(server, form), _durability(server, replicas), _clock(pool), _eviction(server), _room(server)]


def _version(server: ServerInfo, form: int) -> Finding:
    if server.version:
        return Finding("version", "fine", f"{server.product} {server.version}, queue in form (schema version) {form}")
    return Finding("version", "warning", "not known: the server does not tell", "allow its user INFO, to see it here")


def _durability(server: ServerInfo, replicas: int) -> Finding:
    connected = int(server.fields.get("connected_slaves", replicas))
    if connected < replicas:
        message = f"{replicas} replicas must confirm each write, and {connected} are connected: nothing can be written"
        return Finding("durability", "bad", message, "start the replicas, or lower replicas in the URL")
    message = durability(server, replicas)
    if message.startswith("durable"):
        return Finding("durability", "fine", message)
    if message.startswith("not durable at a failover"):
        return Finding(
            "durability", "warning", message, "add replicas=1 to the URL, or fail over by hand after all is replicated"
        )
    if message.startswith("not known"):
        return Finding("durability", "warning", message, "allow the user INFO and CONFIG GET, or ask who runs the server")
    is_logged = server.fields.get("aof_enabled") == "1" and server.fields.get("appendfsync") != "no"
    return Finding("durability", "warning" if is_logged else "bad", message, SETTINGS)


def _clock(pool: RedisPool) -> Finding:
    before_ms = time.time() * 1000
    try:
        seconds, micros = pool.execute("TIME")
    except StoreError as error:
        return Finding("clock", "warning", f"not known: {error}", "allow the user TIME, to see it here")
    skew_ms = int(seconds) * 1000 + int(micros) / 1000 - (before_ms + time.time() * 1000) / 2
    message = f"the server's; it is {abs(skew_ms):,.0f} ms {'ahead of' if skew_ms > 0 else 'behind'} this machine's"
    if abs(skew_ms) <= CLOCK_SKEW_MS_MAX:
        return Finding("clock", "fine", message)
    return Finding("clock", "warning", message, "only the server's counts, but logs will not agree: let both keep time by NTP")


def _eviction(server: ServerInfo) -> Finding:
    policy = server.fields.get("maxmemory_policy")
    if policy is None:
        advice = "make sure that its maxmemory-policy is noeviction"
        return Finding("eviction", "warning", "not known: the server does not tell its maxmemory-policy", advice)
    if policy.startswith(SAFE_POLICIES):
        return Finding("eviction", "fine", f"maxmemory-policy {policy}: no key of a queue is dropped")
    advice = "set it to noeviction: CONFIG SET maxmemory-policy noeviction, and the same in the server's file"
    return Finding("eviction", "bad", f"maxmemory-policy {policy} drops documents when memory is short", advice)


def _room(server: ServerInfo) -> Finding:
    used, maximum = int(server.fields.get("used_memory", 0)), int(server.fields.get("maxmemory", 0))
    message = (
        f"{used / 2**20:,.1f} MiB of memory used, {f'of {maximum / 2**20:,.1f} at most' if maximum else 'without a limit'}"
    )
    if not maximum or used < FULL_SHARE * maximum:
        return Finding("room", "fine", message)
    return Finding("room", "warning", message, "raise maxmemory, or purge what has ended: when it is full nothing is accepted")
