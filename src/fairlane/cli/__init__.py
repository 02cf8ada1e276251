"""The command line: one module for each group of commands, no logic."""

from . import completion, customers, demo, documents, keys, process, queue, serve, simulate, stores, work
from .group import main

__all__ = [
    "completion", "customers", "demo", "documents", "keys", "main", "process", "queue", "serve", "simulate", "stores", "work",
]  # fmt: skip
