"""How does a forked process give up everything but the one thing it is for?

Laws:
- Each step puts one layer in force or raises `Refused` with its name; a step is never passed over in silence.
- Namespaces come first, in the guard; then, in the confined fork: mounts, files, limits, user, death with the guard,
  capabilities, Landlock and, last, the filter of calls, under which the earlier steps could not be done.
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
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import util
from pathlib import Path

from . import calls, kernel, landlock
from .bounds import Bounds

FLAGS = {
    "user namespace": kernel.CLONE_NEWUSER,  # the first: it gives the right to make the others
    "network namespace": kernel.CLONE_NEWNET,
    "process namespace": kernel.CLONE_NEWPID,
    "message namespace": kernel.CLONE_NEWIPC,
    "name namespace": kernel.CLONE_NEWUTS,
    "mount namespace": kernel.CLONE_NEWNS,
}
SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/etc/ld.so.cache", "/etc/fonts", "/etc/localtime", "/etc/alternatives")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
PARSERS = ("PIL", "pypdfium2", "pypdfium2_raw", "charset_normalizer", "fairlane")
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TESSDATA_PREFIX", "LD_LIBRARY_PATH", "OMP_THREAD_LIMIT")
FIRST_USER = 2_000_000_000  # far from everybody's; each attempt is a user of its own, so that it can signal nobody
NOBODY = 65534


class Refused(Exception):
    """A layer could not be put in force."""

    def __init__(self, layer: str, why: str) -> None:
        self.layer, self.why = layer, why
        super().__init__(f"{layer}: {why}")


@contextlib.contextmanager
def _layer(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise Refused(name, str(error)) from error


def leave_namespaces(layers: frozenset[str]) -> None:
    """In the guard: new namespaces for whatever it forks; that of processes holds from the next fork on."""
    user, group = os.geteuid(), os.getegid()
    for name, flag in FLAGS.items():
        if name not in layers or name == "mount namespace":
            continue
        with _layer(name):
            kernel.unshare(flag)
            if name == "user namespace":
                for path, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
                    Path("/proc/self", path).write_text(line)


def confine(layers: frozenset[str], scratch: Path, readable: Iterable[Path], bounds: Bounds, guard: int) -> None:
    """In the fork: everything else; `guard` is a pipe whose other end only the guard has."""
    user = FIRST_USER + int(os.readlink("/proc/self")) if os.geteuid() == 0 else None
    if "mount namespace" in layers:
        with _layer("mount namespace"):
            kernel.unshare(kernel.CLONE_NEWNS)
            kernel.write_only_in(str(scratch))
    _behave(scratch)
    rules = None
    if "landlock" in layers:
        with _layer("landlock"):
            rules = landlock.rules(_granted(scratch, readable))
    with _layer("limits"):
        _limit(bounds, user is None and "user namespace" not in layers)
    if user is not None:
        with _layer("user"):
            _become(user, scratch)
    _die_with(guard)
    with _layer("privileges"):
        # With Landlock in force, reading is what it grants, so folders that are closed to other users may stay closed.
        may_read = user is not None and {"landlock", "seccomp"} <= layers
        kernel.keep_capabilities(kernel.CAPABILITY_READ if may_read else 0)
        kernel.forbid_new_privileges()
    if rules is not None:
        with _layer("landlock"):
            landlock.restrict(rules)
    _refuse_unreachable(scratch, readable)
    if "seccomp" in layers:
        with _layer("seccomp"):
            kernel.filter_calls(calls.program(os.uname().machine, user is not None or _are_signals_harmless(layers)))


def _are_signals_harmless(layers: frozenset[str]) -> bool:
    """Whether something else already keeps signals away from other processes."""
    scoped = "landlock" in layers and landlock.version() >= landlock.SCOPES_SINCE
    return scoped or "process namespace" in layers


def _become(user: int, scratch: Path) -> None:
    for one in (user, NOBODY):  # a container may know few users
        try:
            os.chown(scratch, one, one)
            kernel.become(one)
            return
        except OSError:
            if one == NOBODY:
                raise


def _behave(scratch: Path) -> None:
    """Signals, streams, folder and variables of a process that belongs to nobody."""
    faulthandler.disable()
    gc.disable()  # it would touch, and so copy, every page; an attempt is short
    signal.set_wakeup_fd(-1)
    for number in (
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGCHLD,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
    ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.setsid()
    os.umask(0o077)
    os.chdir(scratch)
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    os.environ.clear()  # addresses and passwords may be in it
    os.environ.update(kept | {"HOME": str(scratch), "TMPDIR": str(scratch)})
    tempfile.tempdir = str(scratch)


def _limit(bounds: Bounds, is_user_shared: bool) -> None:
    statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    pages = int(os.read(statm, 100).split()[0])
    os.close(statm)
    processes = bounds.processes_max
    if is_user_shared:
        processes += _tasks_of(os.getuid())  # the kernel counts all that this user has
    seconds = math.ceil(bounds.cpu_seconds_max)
    for which, value in (
        (resource.RLIMIT_AS, pages * resource.getpagesize() + bounds.memory_max),
        (resource.RLIMIT_FSIZE, bounds.file_max),
        (resource.RLIMIT_NOFILE, bounds.handles_max),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_CPU, seconds),
    ):
        try:
            resource.setrlimit(which, (value, value))
        except ValueError:  # it has less already
            _, hard = resource.getrlimit(which)
            resource.setrlimit(which, (hard, hard))


def _tasks_of(user: int) -> int:
    count = 0
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == user:
                count += int(Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[17])
    return count


def _die_with(guard: int) -> None:
    """Changing the user forgets the death signal, so this comes after it."""
    kernel.die_with_parent(signal.SIGKILL)
    poll = select.poll()
    poll.register(guard, select.POLLIN)
    if poll.poll(0):
        os._exit(1)  # it died just before
    os.close(guard)


def _refuse_unreachable(scratch: Path, readable: Iterable[Path]) -> None:
    for path in (scratch, *readable):
        if not os.access(path, os.R_OK, effective_ids=True) or (
            path == scratch and not os.access(path, os.W_OK, effective_ids=True)
        ):
            raise Refused(
                "user", f"the confined user cannot reach {path}; let others enter its folder, or run as another user than root"
            )


def _granted(scratch: Path, readable: Iterable[Path]) -> list[tuple[str, int]]:
    return [
        *_granted_always(),
        *((str(path), landlock.READ_FILE | landlock.READ_DIR) for path in readable),
        (str(scratch), landlock.SCRATCH),
    ]


@cache
def _granted_always() -> tuple[tuple[str, int], ...]:
    """Python, its libraries and ours, the system's, tesseract and its languages."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    places = {*SYSTEM, os.path.dirname(os.__file__), *(f"{prefix}/{name}" for prefix in prefixes for name in ("lib", "lib64"))}
    for parser in PARSERS:
        found = util.find_spec(parser)
        places.update(found.submodule_search_locations or () if found is not None else ())
    program = shutil.which("tesseract")
    if program is not None:
        places.update((program, os.path.realpath(program)))
    if "TESSDATA_PREFIX" in os.environ:
        places.add(os.environ["TESSDATA_PREFIX"])
    real = {os.path.realpath(place) for place in places}
    outer = sorted(place for place in real if not any(place != other and place.startswith(f"{other}/") for other in real))
    return (*((place, landlock.READ) for place in outer), *((device, landlock.DEVICE) for device in DEVICES))


def prepare() -> None:
    """What every attempt needs and can be known before: looked up once, in the process that forks."""
    _granted_always()
    for are_signals_allowed in (True, False):
        calls.program(os.uname().machine, are_signals_allowed)
