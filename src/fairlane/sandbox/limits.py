"""Resource limits of one attempt."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ResourceLimits:
    """The most that an attempt may use; an attempt that exceeds a limit is ended."""

    seconds_max: float = 62.0  # wall-clock time
    cpu_seconds_max: int = 61  # of each process
    memory_max: int = 1_000_000_000  # bytes of address space of each process, beyond what it was forked with
    memory_sum_max: int = 1_500_000_000  # bytes of memory of all processes together, beyond what the first was forked with
    output_max: int = 500_000_000  # bytes of the output file
    response_max: int = 4_000_000  # bytes of JSON in the response
    parts_max: int = 0  # bytes of the binary parts of the response
    open_files_max: int = 64  # of each process
    processes_max: int = 4  # at once; threads count; 1: it can start none
