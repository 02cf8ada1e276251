"""The command line: one function a command, no logic."""

from . import queue
from .group import main

__all__ = ["main", "queue"]
