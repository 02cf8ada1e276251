"""The command line: one function a command, no logic."""

from . import queue, simulate, stores
from .group import main

__all__ = ["main", "queue", "simulate", "stores"]
