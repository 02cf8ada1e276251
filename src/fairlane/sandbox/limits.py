"""How much may one attempt take of the machine?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """What an attempt may take at most; beyond it, it is ended."""

    seconds_max: float = 62.0  # by the clock on the wall
    cpu_seconds_max: int = 61  # of each process
    memory_max: int = 1_000_000_000  # bytes of address space of each process, above what it was forked with
    file_max: int = 500_000_000  # bytes of one file in scratch
    scratch_max: int = 600_000_000  # bytes of all files in scratch
    files_max: int = 1_010  # files in scratch
    answer_max: int = 4_000_000  # bytes of JSON that it answers with
    parts_max: int = 0  # and bytes that go with it
    handles_max: int = 64  # open files of each process
    processes_max: int = 16  # at once, threads count
