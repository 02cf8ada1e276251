"""Confinement of one attempt: the process gives up everything but the one thing it is for.

Laws:
- Every layer is put in force, or `LayerRefused` names it and the attempt does not begin. No layer is skipped silently.
- The supervisor prepares what the attempt could not do itself: the Landlock rules, for example.
- The confined process then gives up, in this order: its root folder, resources (limits), its user, capabilities, files
  (Landlock) and, last, system calls (seccomp), since under that filter the earlier steps would be refused.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import secrets
import select
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fairlane.procs import syscalls

from . import landlock, seccomp
from .errors import LayerRefused
from .grants import Grant, Kind, list_grants, list_links
from .limits import ResourceLimits
from .response import response_size
from .root_folder import enter_root_folder

FIRST_USER, LAST_USER = 2_000_000_000, 4_000_000_000  # beyond any real user; every attempt of root is a user of its own
NOBODY_UID = 65534
SPARE_TASKS = 256  # that a user may start elsewhere during an attempt, where its tasks are counted together
SIGNALS_MAX = 64  # that wait to be received; the kernel counts them for the user, other processes included
CORE_BYTES_MAX = 1  # no core files; with 0 the kernel would still send them to a program (core_pattern), which may store them
OWN_COUNTS_SINCE = (5, 14)  # the Linux since which a user namespace has its own count of a user's tasks
LANDLOCK_RIGHTS: dict[Kind, int] = {
    "library": landlock.EXECUTE | landlock.READ_FILE | landlock.READ_DIR,
    "device": landlock.READ_FILE,
    "input": landlock.READ_FILE | landlock.READ_DIR,
}


class AttemptSpec(NamedTuple):
    """What an attempt runs, and what it may use."""

    layers: frozenset[str]
    work: Callable[[], object]
    readable: Sequence[str]  # the files that it may read
    libraries: Sequence[str]  # folders and programs that it may read and execute, besides Python and the system's
    limits: ResourceLimits


@contextlib.contextmanager
def _putting_in_force(layer: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise LayerRefused(layer, str(error)) from error


class Confinement:
    """The confinement of one attempt: created and closed by the supervisor, entered by the confined process."""

    def __init__(self, spec: AttemptSpec, supervisor_pipe: int) -> None:
        """Prepare it; `supervisor_pipe` is a pipe whose other end only the supervisor has."""
        self._spec, self._supervisor_pipe, self._landlock_rules = spec, supervisor_pipe, -1
        self._grants = list_grants(spec.readable, spec.libraries)
        self._links = list_links(tuple(spec.libraries))
        try:
            with _putting_in_force("landlock"):
                if "landlock" in spec.layers:
                    self._landlock_rules = landlock.create_rules(_landlock_rights(self._grants))
            with _putting_in_force("user"):
                self._user = _new_user() if os.geteuid() == 0 else None
                is_user_shared = self._user in (None, NOBODY_UID)
            with _putting_in_force("limits"):
                address_space, self.resident_bytes = memory_usage("self")  # both before the fork
                self._limits = _rlimits(spec.limits, address_space, _other_tasks(spec.layers) if is_user_shared else 0)
                self.address_space_max = self._limits[resource.RLIMIT_AS]
            with _putting_in_force("seccomp"):
                can_signal = not is_user_shared or _are_signals_scoped(spec.layers)
                self._filter = seccomp.program(os.uname().machine, can_signal, spec.limits.processes_max > 1)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Undo it, once no process of the attempt is left."""
        if self._landlock_rules >= 0:
            os.close(self._landlock_rules)

    def enter(self) -> None:
        """Confine this process, a fork of the supervisor."""
        spec = self._spec
        os.environ["HOME"] = os.environ["TMPDIR"] = tempfile.tempdir = "/"  # nothing can be written anywhere
        with _putting_in_force("mount namespace"):
            if "mount namespace" in spec.layers:
                enter_root_folder(self._grants, self._links)
        with _putting_in_force("limits"):
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.setsid()
            os.chdir("/")
            for which, value in self._limits.items():
                resource.setrlimit(which, (value, value))
        with _putting_in_force("user"):
            if self._user is not None:
                syscalls.become_user(self._user)
            syscalls.set_parent_death_signal(signal.SIGKILL)  # after the change of user, which would clear it
            _exit_if_orphaned(self._supervisor_pipe)
        with _putting_in_force("privileges"):
            # Root's files may stay closed to other users where other layers decide what is read, and that nothing is written.
            may_read = self._user is not None and "seccomp" in spec.layers and spec.layers & {"landlock", "mount namespace"}
            syscalls.keep_capabilities(*((syscalls.CAP_DAC_READ_SEARCH, syscalls.CAP_DAC_OVERRIDE) if may_read else ()))
            syscalls.set_no_new_privileges()
        with _putting_in_force("landlock"):
            if "landlock" in spec.layers:
                landlock.restrict(self._landlock_rules)
                os.close(self._landlock_rules)
        for path in spec.readable:
            _require_readable(path)
        with _putting_in_force("seccomp"):
            if "seccomp" in spec.layers:
                syscalls.load_seccomp_filter(self._filter)


def _exit_if_orphaned(supervisor_pipe: int) -> None:
    """Exit if the supervisor died before its death would have killed this process."""
    poll = select.poll()
    poll.register(supervisor_pipe, select.POLLIN)
    if poll.poll(0):
        os._exit(1)
    os.close(supervisor_pipe)


def _require_readable(path: str) -> None:
    if not os.access(path, os.R_OK, effective_ids=True):
        raise LayerRefused(
            "user", f"the confined user cannot reach {path}; let others enter its folder, or run as another user than root"
        )


def _are_signals_scoped(layers: frozenset[str]) -> bool:
    """Return whether another layer already keeps signals away from other processes."""
    has_scopes = "landlock" in layers and landlock.version() >= landlock.SCOPES_SINCE
    return has_scopes or "process namespace" in layers


def _new_user() -> int:
    """Return the user that root's next attempt becomes."""
    # At random: process numbers are the same in several containers, and the kernel counts a user's tasks in all of them.
    return FIRST_USER + secrets.randbelow(LAST_USER - FIRST_USER) if _has_all_users() else NOBODY_UID


@cache
def _has_all_users() -> bool:
    """Tell whether there are such users here; the user namespace of a container may have few."""
    mapped = [[int(number) for number in line.split()] for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return any(first <= FIRST_USER and first + count >= LAST_USER for first, _, count in mapped)


# -- limits


def memory_usage(process: str) -> tuple[int, int]:
    """Return the bytes of address space and of resident memory of a process."""
    address_space, resident = Path(f"/proc/{process}/statm").read_bytes().split()[:2]
    return int(address_space) * resource.getpagesize(), int(resident) * resource.getpagesize()


def _rlimits(limits: ResourceLimits, address_space: int, other_tasks: int) -> dict[int, int]:
    """Return the limits for a process that starts with this address space, and whose user already has other tasks."""
    rlimits = {
        resource.RLIMIT_AS: address_space + limits.memory_max,
        resource.RLIMIT_FSIZE: max(limits.output_max, response_size(limits)),
        resource.RLIMIT_NOFILE: limits.open_files_max,
        resource.RLIMIT_NPROC: limits.processes_max + other_tasks,
        resource.RLIMIT_CORE: CORE_BYTES_MAX,
        resource.RLIMIT_SIGPENDING: SIGNALS_MAX,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_CPU: math.ceil(limits.cpu_seconds_max),
    }
    return {which: _at_most(value, resource.getrlimit(which)[1]) for which, value in rlimits.items()}


def _at_most(value: int, hard_limit: int) -> int:
    return value if hard_limit == resource.RLIM_INFINITY else min(value, hard_limit)


def _other_tasks(layers: frozenset[str]) -> int:
    """Return how many other tasks the kernel may count for the user of an attempt that is not a user of its own."""
    if "user namespace" in layers and _has_own_counts():
        return 2  # the supervisor, and the process that has forked it and may not be reaped yet
    return _count_tasks(os.getuid()) + SPARE_TASKS


def _count_tasks(user: int) -> int:
    count = 0
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == user:
                count += int(Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[17])
    return count


def _has_own_counts() -> bool:
    """Tell whether this kernel counts a user's tasks in each user namespace anew."""
    release = os.uname().release.split(".")
    try:
        return (int(release[0]), int(release[1])) >= OWN_COUNTS_SINCE
    except (IndexError, ValueError):
        return False


# -- Landlock


def _landlock_rights(grants: Sequence[Grant]) -> list[tuple[str, int]]:
    return [(grant.path, LANDLOCK_RIGHTS[grant.kind]) for grant in grants]
