"""The command line: one function a command, no logic."""

from . import completion, customers, demo, documents, process, queue, simulate, stores, work
from .group import main

__all__ = ["completion", "customers", "demo", "documents", "main", "process", "queue", "simulate", "stores", "work"]
