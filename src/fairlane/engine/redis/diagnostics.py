"""Is this server fit, and is its clock right? What `fairlane doctor` says of a queue on Redis or Valkey."""

from __future__ import annotations

import time

from fairlane.core.errors import StoreError
from fairlane.engine.protocol import Finding

from .connection import Link
from .server import KEPT, Server, durability, inspect

CLOCK_MS_MOST = 2000
FULL_SHARE = 0.9
SETTINGS = "set appendonly yes, appendfsync always and no-appendfsync-on-rewrite no, now by CONFIG SET and in the server's file"


def diagnose(link: Link, form: int) -> list[Finding]:
    """One finding for each thing that can be wrong with a server, asked anew."""
    server = inspect(link)
    return [_version(server, form), _durability(server), _clock(link), _eviction(server), _room(server)]


def _version(server: Server, form: int) -> Finding:
    if server.version:
        return Finding("version", "fine", f"{server.product} {server.version}, queue in form {form}")
    return Finding("version", "warning", "not known: the server does not tell", "allow its user INFO, to see it here")


def _durability(server: Server) -> Finding:
    told = durability(server)
    if told.startswith("durable"):
        return Finding("durability", "fine", told)
    if told.startswith("not known"):
        return Finding("durability", "warning", told, "allow the user INFO and CONFIG GET, or ask who runs the server")
    is_logged = server.facts.get("aof_enabled") == "1" and server.facts.get("appendfsync") != "no"
    return Finding("durability", "warning" if is_logged else "bad", told, SETTINGS)


def _clock(link: Link) -> Finding:
    asked_ms = time.time() * 1000
    try:
        seconds, micros = link.ask("TIME")
    except StoreError as error:
        return Finding("clock", "warning", f"not known: {error}", "allow the user TIME, to see it here")
    apart_ms = int(seconds) * 1000 + int(micros) / 1000 - (asked_ms + time.time() * 1000) / 2
    told = f"the server's; it is {abs(apart_ms):,.0f} ms {'ahead of' if apart_ms > 0 else 'behind'} this machine's"
    if abs(apart_ms) <= CLOCK_MS_MOST:
        return Finding("clock", "fine", told)
    return Finding("clock", "warning", told, "only the server's counts, but logs will not agree: let both keep time by NTP")


def _eviction(server: Server) -> Finding:
    policy = server.facts.get("maxmemory_policy")
    if policy is None:
        advice = "make sure that its maxmemory-policy is noeviction"
        return Finding("eviction", "warning", "not known: the server does not tell its maxmemory-policy", advice)
    if policy.startswith(KEPT):
        return Finding("eviction", "fine", f"maxmemory-policy {policy}: no key of a queue is dropped")
    advice = "set it to noeviction: CONFIG SET maxmemory-policy noeviction, and the same in the server's file"
    return Finding("eviction", "bad", f"maxmemory-policy {policy} drops documents when memory is short", advice)


def _room(server: Server) -> Finding:
    used, most = int(server.facts.get("used_memory", 0)), int(server.facts.get("maxmemory", 0))
    told = f"{used / 2**20:,.1f} MiB of memory used, {f'of {most / 2**20:,.1f} at most' if most else 'without a limit'}"
    if not most or used < FULL_SHARE * most:
        return Finding("room", "fine", told)
    return Finding("room", "warning", told, "raise maxmemory, or purge what has ended: when it is full nothing is accepted")
