"""The limit of open files (RLIMIT_NOFILE): raised to what the service's own limits need, or these lowered to what it allows.

A connection is an open file, and its request may open another one. Without this, a system that allows 1,024 open files resets
clients long before the limit of connections is reached.
"""

from __future__ import annotations

import resource
from dataclasses import replace
from typing import NamedTuple

from fairlane.core.errors import Mistake

from .connection_table import CLOSING_MAX
from .limits import ServiceLimits

FILES_A_CONNECTION = 2  # itself, and the file that it downloads or uploads
FILES_BESIDE = 256  # the store, webhooks, the log, the worker
CONNECTIONS_LEAST = 16


class FittedLimits(NamedTuple):
    """The limits that hold, the open files that are allowed now, and how many the limits that were given would need."""

    limits: ServiceLimits
    files: int
    files_needed: int

    @property
    def is_lowered(self) -> bool:
        return self.files != resource.RLIM_INFINITY and self.files < self.files_needed


def fit_to_open_files(limits: ServiceLimits) -> FittedLimits:
    """Raise the limit of open files as far as is needed and allowed, and lower `connections` if that is not enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES_A_CONNECTION * limits.connections + CLOSING_MAX + FILES_BESIDE
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    files = soft if soft == resource.RLIM_INFINITY or soft >= allowed else allowed
    if files != soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    fitted = FittedLimits(limits, files, needed)
    if not fitted.is_lowered:
        return fitted
    connections = (files - CLOSING_MAX - FILES_BESIDE) // FILES_A_CONNECTION
    if connections < CONNECTIONS_LEAST:
        least = FILES_A_CONNECTION * CONNECTIONS_LEAST + CLOSING_MAX + FILES_BESIDE
        raise Mistake(f"only {files:,} open files are allowed, and the service needs at least {least:,}; raise ulimit -n")
    return fitted._replace(limits=replace(limits, connections=connections))
