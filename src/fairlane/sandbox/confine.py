"""How does a forked process give up everything but the one thing it is for?

Laws:
- Each step puts one layer in force or raises `Refused` with its name; a step is never passed over in silence.
- Namespaces come first, in the guard, which stays in them; then, for each attempt, what can be made ready for it there: the
  one folder that may be written, its owner, Landlock's rules. A fork copies every page that it touches, the guard does not.
- In the confined fork: signals, limits, user, death with the guard, capabilities, Landlock and, last, the filter of calls,
  under which the earlier steps could not be done. It computes nothing that the guard could have computed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import math
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from importlib import util
from itertools import cycle
from pathlib import Path

from fairlane.procs import syscalls

from . import landlock, seccomp
from .limits import Bounds

FLAGS = {
    "user namespace": syscalls.CLONE_NEWUSER,  # the first: it gives the right to make the others
    "network namespace": syscalls.CLONE_NEWNET,
    "process namespace": syscalls.CLONE_NEWPID,
    "message namespace": syscalls.CLONE_NEWIPC,
    "name namespace": syscalls.CLONE_NEWUTS,
    "mount namespace": syscalls.CLONE_NEWNS,
}
SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/etc/ld.so.cache", "/etc/fonts", "/etc/localtime", "/etc/alternatives")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
PARSERS = ("PIL", "pypdfium2", "pypdfium2_raw", "charset_normalizer", "fairlane")
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TESSDATA_PREFIX", "LD_LIBRARY_PATH", "OMP_THREAD_LIMIT")
FIRST_USER = 2_000_000_000  # far from everybody's; each attempt is a user of its own, so that it can signal nobody
USERS_A_GUARD = 64  # attempts of one guard are that many users in turn
NOBODY = 65534
_turns = cycle(range(USERS_A_GUARD))
HELD_BACK = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)  # from the guard, for ever


class Refused(Exception):
    """A layer could not be put in force."""

    def __init__(self, layer: str, why: str) -> None:
        self.layer, self.why = layer, why
        super().__init__(f"{layer}: {why}")


Limited = list[tuple[int, int]]  # which limit, and how much
Step = Callable[[], object]  # made before the fork with all that it needs
Steps = list[tuple[str, Step]]  # what a fork does to itself, one after the other, and for which layer


class Room:
    """In the guard: what is ready for one attempt, as long as it lasts."""

    def __init__(self, layers: frozenset[str], scratch: str, readable: Sequence[str], bounds: Bounds, living: int) -> None:
        """`living` is a pipe whose other end only the guard has."""
        self._scratch, self._is_mounted, self._rules = scratch, False, -1
        os.environ["HOME"] = os.environ["TMPDIR"] = tempfile.tempdir = scratch
        layer = "mount namespace"
        try:
            if layer in layers:
                syscalls.mount_writable_only(scratch)
                self._is_mounted = True
            layer = "landlock"
            if layer in layers:
                self._rules = landlock.rules(_granted(scratch, readable))
            layer = "user"
            user = _owner(scratch) if os.geteuid() == 0 else None
            layer = "limits"
            addresses, self.resident = memory_of("self")  # bytes that it begins with
            is_user_shared = user is None and "user namespace" not in layers
            limits = _limits(bounds, addresses, _tasks_of(os.getuid()) if is_user_shared else 0)
            self.addresses_max = limits[0][1]  # bytes
            self.steps = [
                *_first(scratch, limits, user, living),
                *_last(layers, user, self._rules, scratch, readable),
            ]
        except BaseException as error:
            self.leave()
            if isinstance(error, OSError | ValueError):
                raise Refused(layer, str(error)) from error
            raise

    def leave(self) -> None:
        """Once nothing lives that needs it."""
        if self._rules >= 0:
            os.close(self._rules)
        if self._is_mounted:
            syscalls.unmount_writable(self._scratch)


def leave_namespaces(layers: frozenset[str]) -> None:
    """In the guard: new namespaces for it and whatever it forks; that of processes holds from the next fork on."""
    for name, flag in FLAGS.items():
        try:
            if name in layers:
                _leave(name, flag)
        except (OSError, ValueError) as error:
            raise Refused(name, str(error)) from error


def _leave(name: str, flag: int) -> None:
    user, group = os.geteuid(), os.getegid()
    if name == "mount namespace":
        syscalls.unshare_mounts()
        return
    syscalls.unshare(flag)
    if name == "user namespace":
        for path, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", path).write_text(line)


def _first(scratch: str, limits: Limited, user: int | None, living: int) -> Steps:
    """A session, limits, user, and death with the guard, which the change of user would make it forget."""
    return [
        ("limits", partial(signal.pthread_sigmask, signal.SIG_SETMASK, ())),
        ("limits", os.setsid),
        ("limits", partial(os.chdir, scratch)),
        *(("limits", _limiting(which, value)) for which, value in limits),
        *([("user", partial(syscalls.become_user, user))] if user is not None else ()),
        ("user", partial(syscalls.set_parent_death_signal, signal.SIGKILL)),
        ("user", partial(_end_if_alone, living)),
    ]


def _last(layers: frozenset[str], user: int | None, rules: int, scratch: str, readable: Sequence[str]) -> Steps:
    """Capabilities, Landlock, a look whether all can be reached, and the filter of calls."""
    # With Landlock in force, reading is what it grants, so folders that are closed to other users may stay closed.
    may_read = user is not None and {"landlock", "seccomp"} <= layers
    steps: Steps = [
        ("privileges", partial(syscalls.keep_capabilities, syscalls.CAP_DAC_READ_SEARCH if may_read else 0)),
        ("privileges", syscalls.set_no_new_privileges),
    ]
    if "landlock" in layers:
        steps += [("landlock", partial(landlock.restrict, rules)), ("landlock", partial(os.close, rules))]
    steps += [("user", partial(_refuse_unreachable, scratch, os.R_OK | os.W_OK))]
    steps += [("user", partial(_refuse_unreachable, path, os.R_OK)) for path in readable]
    if "seccomp" in layers:
        are_signals_allowed = user is not None or _are_signals_harmless(layers)
        instructions = seccomp.program(os.uname().machine, are_signals_allowed)
        steps += [("seccomp", partial(syscalls.load_seccomp_filter, instructions))]
    return steps


def memory_of(process: str) -> list[int]:
    """How many bytes of addresses and of memory a process has in use."""
    statm = os.open(f"/proc/{process}/statm", os.O_RDONLY | os.O_CLOEXEC)
    pages = os.read(statm, 100).split()[:2]
    os.close(statm)
    return [int(count) * resource.getpagesize() for count in pages]


def behave() -> None:
    """In the guard: what is to hold in it and in its forks, of a process that belongs to nobody."""
    faulthandler.disable()
    gc.disable()  # it would touch, and so copy, every page; an attempt is short
    signal.set_wakeup_fd(-1)
    os.umask(0o077)
    for name in os.environ.keys() - KEPT_VARIABLES:  # addresses and passwords may be in it
        del os.environ[name]


def confine(own: Room) -> None:
    """In the fork: everything else."""
    layer = ""
    try:
        for layer, step in own.steps:  # noqa: B007 - told when a step fails
            step()
    except (OSError, ValueError) as error:
        raise Refused(layer, str(error)) from error


def _are_signals_harmless(layers: frozenset[str]) -> bool:
    """Whether something else already keeps signals away from other processes."""
    scoped = "landlock" in layers and landlock.version() >= landlock.SCOPES_SINCE
    return scoped or "process namespace" in layers


def _owner(scratch: str) -> int:
    """Whom the next attempt of this guard becomes: the folder is theirs from now on."""
    own = FIRST_USER + USERS_A_GUARD * int(os.readlink("/proc/self")) + next(_turns)
    for one in (own, NOBODY):  # a container may know few users
        try:
            os.chown(scratch, one, one)
            return one
        except OSError:
            if one == NOBODY:
                raise
    raise AssertionError


@lru_cache(16)
def _limits(bounds: Bounds, memory: int, others: int) -> Limited:
    """What is limited to how much, of an attempt that begins with so many bytes of addresses in use, and of whose user so many
    tasks live already, which the kernel counts too."""
    wanted = [
        (resource.RLIMIT_AS, memory + bounds.memory_max),
        (resource.RLIMIT_FSIZE, bounds.file_max),
        (resource.RLIMIT_NOFILE, bounds.handles_max),
        (resource.RLIMIT_NPROC, bounds.processes_max + others),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_CPU, math.ceil(bounds.cpu_seconds_max)),
    ]
    return [(which, _at_most(value, resource.getrlimit(which)[1])) for which, value in wanted]


@lru_cache(64)
def _limiting(which: int, value: int) -> Step:
    return partial(resource.setrlimit, which, (value, value))


def _at_most(value: int, hard: int) -> int:
    return value if hard == resource.RLIM_INFINITY else min(value, hard)  # it may have less already


def _tasks_of(user: int) -> int:
    count = 0
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == user:
                count += int(Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[17])
    return count


def _end_if_alone(living: int) -> None:
    """The guard may have died just before its death would have been ours."""
    poll = select.poll()
    poll.register(living, select.POLLIN)
    if poll.poll(0):
        os._exit(1)
    os.close(living)


def _refuse_unreachable(path: str, how: int) -> None:
    if not os.access(path, how, effective_ids=True):
        raise Refused(
            "user", f"the confined user cannot reach {path}; let others enter its folder, or run as another user than root"
        )


def _granted(scratch: str, readable: Sequence[str]) -> list[tuple[str, int]]:
    program = shutil.which("tesseract")  # looked for at each attempt: it may be installed while workers run
    return [
        *_granted_always(),
        *([(program, landlock.READ)] if program is not None else []),
        *((path, landlock.READ_FILE | landlock.READ_DIR) for path in readable),
        (scratch, landlock.SCRATCH),
    ]


@cache
def _granted_always() -> tuple[tuple[str, int], ...]:
    """Python, its libraries and ours, the system's, and tesseract's languages."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    places = {*SYSTEM, os.path.dirname(os.__file__), *(f"{prefix}/{name}" for prefix in prefixes for name in ("lib", "lib64"))}
    for parser in PARSERS:
        found = util.find_spec(parser)
        places.update(found.submodule_search_locations or () if found is not None else ())
    if "TESSDATA_PREFIX" in os.environ:
        places.add(os.environ["TESSDATA_PREFIX"])
    real = {os.path.realpath(place) for place in places}
    outer = sorted(place for place in real if not any(place != other and place.startswith(f"{other}/") for other in real))
    return (*((place, landlock.READ) for place in outer), *((device, landlock.DEVICE) for device in DEVICES))


def prepare() -> None:
    """What every attempt needs and can be known before: looked up once, in the process that forks."""
    _granted_always()
    for are_signals_allowed in (True, False):
        seccomp.program(os.uname().machine, are_signals_allowed)
