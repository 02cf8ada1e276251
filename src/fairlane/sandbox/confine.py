"""Confinement of one attempt: the process gives up everything but the one thing it is for.

Laws:
- Every layer is put in force, or `LayerRefused` names it and the attempt does not begin. No layer is skipped silently.
- The supervisor prepares what takes rights that the attempt must not have: the writable mount of the scratch folder, its
  owner, the Landlock rules.
- The confined process then gives up, in this order: other processes' resources (limits), its user, capabilities, files
  (Landlock) and, last, system calls (seccomp), since under that filter the earlier steps would be refused.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import select
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from fairlane.procs import syscalls

from . import landlock, seccomp
from .errors import LayerRefused
from .limits import ResourceLimits

SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/etc/ld.so.cache", "/etc/fonts", "/etc/localtime", "/etc/alternatives")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
FIRST_USER = 2_000_000_000  # beyond any real user; every attempt of root is a user of its own, so that it can signal nobody
USERS_PER_SUPERVISOR = 64  # attempts of one supervisor use so many users in turn
NOBODY_UID = 65534
_user_offsets = cycle(range(USERS_PER_SUPERVISOR))


class AttemptSpec(NamedTuple):
    """What an attempt runs, and what it may use."""

    layers: frozenset[str]
    work: Callable[[], object]
    scratch: str  # the folder that it may write to
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
        self._spec, self._supervisor_pipe = spec, supervisor_pipe
        self._is_mounted, self._landlock_rules = False, -1
        try:
            with _putting_in_force("mount namespace"):
                if "mount namespace" in spec.layers:
                    syscalls.mount_writable_only(spec.scratch)
                    self._is_mounted = True
            with _putting_in_force("landlock"):
                if "landlock" in spec.layers:
                    self._landlock_rules = landlock.create_rules(_landlock_grants(spec))
            with _putting_in_force("user"):
                self._user = _give_to_new_user(spec.scratch) if os.geteuid() == 0 else None
            with _putting_in_force("limits"):
                address_space, self.resident_bytes = memory_usage("self")  # both before the fork
                is_user_shared = self._user is None and "user namespace" not in spec.layers
                other_tasks = _count_tasks(os.getuid()) if is_user_shared else 0
                self._limits = _rlimits(spec.limits, address_space, other_tasks)
                self.address_space_max = self._limits[resource.RLIMIT_AS]
            with _putting_in_force("seccomp"):
                are_signals_allowed = self._user is not None or _are_signals_scoped(spec.layers)
                self._filter = seccomp.program(os.uname().machine, are_signals_allowed)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Undo it, once no process of the attempt is left."""
        if self._landlock_rules >= 0:
            os.close(self._landlock_rules)
        if self._is_mounted:
            syscalls.unmount_writable(self._spec.scratch)

    def enter(self) -> None:
        """Confine this process, a fork of the supervisor."""
        spec = self._spec
        os.environ["HOME"] = os.environ["TMPDIR"] = tempfile.tempdir = spec.scratch
        with _putting_in_force("limits"):
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.setsid()
            os.chdir(spec.scratch)
            for which, value in self._limits.items():
                resource.setrlimit(which, (value, value))
        with _putting_in_force("user"):
            if self._user is not None:
                syscalls.become_user(self._user)
            syscalls.set_parent_death_signal(signal.SIGKILL)  # after the change of user, which would clear it
            _exit_if_orphaned(self._supervisor_pipe)
        with _putting_in_force("privileges"):
            # With Landlock in force root's files may stay closed to other users: Landlock decides what is read.
            may_read = self._user is not None and {"landlock", "seccomp"} <= spec.layers
            syscalls.keep_capabilities(syscalls.CAP_DAC_READ_SEARCH if may_read else 0)
            syscalls.set_no_new_privileges()
        with _putting_in_force("landlock"):
            if "landlock" in spec.layers:
                landlock.restrict(self._landlock_rules)
                os.close(self._landlock_rules)
        _require_access(spec.scratch, os.R_OK | os.W_OK)
        for path in spec.readable:
            _require_access(path, os.R_OK)
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


def _require_access(path: str, mode: int) -> None:
    if not os.access(path, mode, effective_ids=True):
        raise LayerRefused(
            "user", f"the confined user cannot reach {path}; let others enter its folder, or run as another user than root"
        )


def _are_signals_scoped(layers: frozenset[str]) -> bool:
    """Return whether another layer already keeps signals away from other processes."""
    has_scopes = "landlock" in layers and landlock.version() >= landlock.SCOPES_SINCE
    return has_scopes or "process namespace" in layers


def _give_to_new_user(scratch: str) -> int:
    """Return the user that root's next attempt becomes, and give it the scratch folder."""
    new_user = FIRST_USER + USERS_PER_SUPERVISOR * int(os.readlink("/proc/self")) + next(_user_offsets)
    try:
        os.chown(scratch, new_user, new_user)
    except OSError:  # a container may have few users
        os.chown(scratch, NOBODY_UID, NOBODY_UID)
        return NOBODY_UID
    return new_user


# -- limits


def memory_usage(process: str) -> tuple[int, int]:
    """Return the bytes of address space and of resident memory of a process."""
    address_space, resident = Path(f"/proc/{process}/statm").read_bytes().split()[:2]
    return int(address_space) * resource.getpagesize(), int(resident) * resource.getpagesize()


def _rlimits(limits: ResourceLimits, address_space: int, other_tasks: int) -> dict[int, int]:
    """Return the limits for a process that starts with this address space, and whose user already has other tasks."""
    rlimits = {
        resource.RLIMIT_AS: address_space + limits.memory_max,
        resource.RLIMIT_FSIZE: limits.file_max,
        resource.RLIMIT_NOFILE: limits.open_files_max,
        resource.RLIMIT_NPROC: limits.processes_max + other_tasks,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_CPU: math.ceil(limits.cpu_seconds_max),
    }
    return {which: _at_most(value, resource.getrlimit(which)[1]) for which, value in rlimits.items()}


def _at_most(value: int, hard_limit: int) -> int:
    return value if hard_limit == resource.RLIM_INFINITY else min(value, hard_limit)


def _count_tasks(user: int) -> int:
    count = 0
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == user:
                count += int(Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[17])
    return count


# -- Landlock


def _landlock_grants(spec: AttemptSpec) -> list[tuple[str, int]]:
    return [
        *((path, landlock.READ) for path in _system_paths()),
        *((path, landlock.READ) for path in spec.libraries),
        *((device, landlock.DEVICE) for device in DEVICES),
        *((path, landlock.READ_FILE | landlock.READ_DIR) for path in spec.readable),
        (spec.scratch, landlock.SCRATCH),
    ]


@cache
def _system_paths() -> tuple[str, ...]:
    """Return the folders of Python's and the system's libraries, none of which is inside another."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    paths = {*SYSTEM, os.path.dirname(os.__file__), *(f"{prefix}/{name}" for prefix in prefixes for name in ("lib", "lib64"))}
    real = {os.path.realpath(path) for path in paths}
    return tuple(sorted(path for path in real if not any(path.startswith(f"{other}/") for other in real)))
