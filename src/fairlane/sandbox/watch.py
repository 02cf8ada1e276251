"""The watch over an attempt's memory and processes, kept by its supervisor.

The kernel limits the address space of each process, and where it can their number. This adds them up: for an attempt that has
only one process there is nothing to add.

Laws:
- A process that has just been forked shares its memory until it starts a program. So a sum counts only if the next checks,
  moments later, find it too. Processes are looked at first, since the memory that many forks share is counted for each.
- Memory is what processes have for themselves, in memory or swapped out; files that they have mapped are not counted.
- A process whose first thread has ended does not show what it has any more: it counts as much as it may have.
- The watch takes at most a tenth of one processor, however slow this machine is at listing processes.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from fairlane.procs import reaper

from .confine import memory_usage
from .limits import ResourceLimits

SUM_SECONDS = 0.02  # between checks of all processes together
FULL_SECONDS = 1.0  # between checks of the first one's address space
CHECKS_MAX = {"processes": 2, "memory sum": 3, "memory": 2}  # consecutive checks that find too much, before it is killed
SHARE_MAX = 0.1  # of the time that the checks may take
ARENA_BYTES = 1 << 20  # what Python asks for at a time when it needs memory
_FIELDS = re.compile(rb"^(RssAnon|RssShmem|VmSwap|Threads):\s*(\d+)", re.MULTILINE)


class ProcessesUsage(NamedTuple):
    """What the processes of an attempt have together."""

    tasks: int = 0
    memory: int = 0


class Watch:
    """Checks one attempt, by the pidfd of its first process; call `check` every `seconds`."""

    def __init__(self, process: int, limits: ResourceLimits, address_space_max: int) -> None:
        """Watch a process that this one has forked."""
        self._process, self._limits = process, limits
        self._full_at = address_space_max - ARENA_BYTES
        self._counts = dict.fromkeys(CHECKS_MAX, 0)  # of consecutive checks that found too much
        self.seconds = SUM_SECONDS if limits.processes_max > 1 else FULL_SECONDS
        self._next_full_check = time.monotonic() + FULL_SECONDS

    def check(self) -> str | None:
        """Return what the attempt has too much of: "memory", "memory sum" or "processes"; None if all is well."""
        began = time.monotonic()
        if self._limits.processes_max > 1:
            usage = usage_of(reaper.descendants_of(self._own_number), self._limits.memory_max)
            self._count("processes", usage.tasks > self._limits.processes_max)
            self._count("memory sum", usage.memory - self._inherited_bytes > self._limits.memory_sum_max)
            self.seconds = max(SUM_SECONDS, (time.monotonic() - began) / SHARE_MAX)
        if began >= self._next_full_check:
            self._next_full_check = began + FULL_SECONDS
            # Python may loop for ever then: to handle a MemoryError it may itself need memory.
            self._count("memory", self._address_space() > self._full_at)
        return next((name for name, count in self._counts.items() if count >= CHECKS_MAX[name]), None)

    @cached_property
    def _own_number(self) -> int:
        """The number of this process in /proc, which may be that of another process namespace."""
        return int(os.readlink("/proc/self"))

    @cached_property
    def _inherited_bytes(self) -> int:
        """The memory that the first process was forked with: what this process, which forked it, has."""
        return usage_of({self._own_number}, 0).memory

    def _count(self, name: str, is_too_much: bool) -> None:
        self._counts[name] = self._counts[name] + 1 if is_too_much else 0

    def _address_space(self) -> int:
        """Return the bytes of address space of the first process; 0 if it has ended or cannot be inspected."""
        with contextlib.suppress(OSError, IndexError, ValueError):  # the latter two: some kernels' stand-ins show no number
            info = Path(f"/proc/self/fdinfo/{self._process}").read_text()  # its number in /proc may be another one here
            return memory_usage(info.partition("Pid:")[2].split()[0])[0]
        return 0


def usage_of(processes: set[int], hidden: int) -> ProcessesUsage:
    """Add up the tasks and the memory of processes, `hidden` for each that hides it; those that have ended have none."""
    tasks = memory = 0
    for pid in processes:
        with contextlib.suppress(OSError):
            fields = {name: int(value) for name, value in _FIELDS.findall(Path(f"/proc/{pid}/status").read_bytes())}
            threads = fields.pop(b"Threads", 0)
            tasks += threads
            memory += hidden if threads > 1 and not fields else 1024 * sum(fields.values())
    return ProcessesUsage(tasks, memory)
