"""The command line: one module for each group of commands, no logic."""

from . import (
    audit,
    backup,
    completion,
    customers,
    demo,
    documents,
    inspect,
    keys,
    mcp,
    privacy,
    process,
    queue,
    serve,
    sessions,
    simulate,
    steering,
    stores,
    work,
    workers,
)  # fmt: skip
from .group import main

__all__ = [
    "audit", "backup", "completion", "customers", "demo", "documents", "inspect", "keys", "main", "mcp", "privacy", "process",
    "queue", "serve", "sessions", "simulate", "steering", "stores", "work", "workers",
]  # fmt: skip
