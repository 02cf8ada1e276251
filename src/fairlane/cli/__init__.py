"""The command line: one function a command, no logic."""

from . import queue, simulate
from .group import main

__all__ = ["main", "queue", "simulate"]
