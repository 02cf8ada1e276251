"""Sandbox: runs work on untrusted input in a forked process that has given up everything it does not need.

The caller forks a supervisor (or has the fork server do it), the supervisor forks the confined process, and that calls the
work: no Python start, no import. See `runner` for the two entry points and `plan` for what is promised.

Laws:
- Promised are resource limits, no network, no other file read, none written, no other process reached, and death with the
  caller. Each promise rests on at least one layer that was tried and holds; else a `Mistake` before any file is opened.
- A layer that held when it was tried is put in force in every attempt, or the attempt does not begin.
"""

from __future__ import annotations

from .errors import AttemptFailed, Crashed, ForkServerGone, LayerRefused, LimitExceeded, SandboxError, TimedOut, WorkFailed
from .fork_server import SandboxForkServer
from .limits import ResourceLimits
from .namespaces import NAMESPACES
from .output import output_file
from .plan import Layer, Plan, layers, require, unsafe_reason
from .response import Response
from .runner import run, run_in_fork_server

__all__ = [
    "NAMESPACES",
    "AttemptFailed",
    "Crashed",
    "ForkServerGone",
    "Layer",
    "LayerRefused",
    "LimitExceeded",
    "Plan",
    "ResourceLimits",
    "Response",
    "SandboxError",
    "SandboxForkServer",
    "TimedOut",
    "WorkFailed",
    "layers",
    "output_file",
    "require",
    "run",
    "run_in_fork_server",
    "unsafe_reason",
]
