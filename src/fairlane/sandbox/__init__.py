"""How is code that reads strangers' files kept from doing harm? Each attempt runs in a fork that has given everything up.

`run` forks a guard, the guard forks the confined process, and that one calls the work: no Python start, no import. It is made
to be called from a process that is trusted, has one thread, and has imported what the work needs. `run_in` has the guard forked
from a template instead, which knows nothing of the caller, and keeps it for the next attempt: half the forks.

Laws:
- Promised: limits, no network, no writes outside the scratch folder, death with the parent. Each by at least one layer that is
  really in force, tried once in a fork of its own; else a `Mistake` before anything is opened.
- A layer that was there when it was tried is put in force in every attempt, or the attempt does not begin.
"""

from __future__ import annotations

import os
import resource
import socket
import stat
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

from fairlane.core.errors import BadValue, Mistake
from fairlane.extract.failure import Unreadable
from fairlane.procs import syscalls

from .attempt import Ending, judged, perform, too_much_in
from .confine import FLAGS, prepare
from .fork_server import Gone, Template
from .limits import Bounds
from .plan import LAYERS, NAMESPACES, Layer, Plan
from .response import Answer, Heard, answering
from .supervisor import Attempt

__all__ = ["NAMESPACES", "Answer", "Bounds", "Gone", "Heard", "Layer", "Template", "layers", "require", "run", "run_in"]
_NONE: frozenset[str] = frozenset()


def run(
    work: Callable[[], object],
    scratch: Path,
    bounds: Bounds | None = None,
    readable: Iterable[Path] = (),
    *,
    without: frozenset[str] = _NONE,
) -> Heard:
    """Call `work` in a confined fork; it may write in `scratch` only, read `readable` too, and return JSON or an `Answer`."""
    layers, within, paths = require(without).layers, bounds or Bounds(), [*map(os.path.realpath, readable)]
    return _concluded(scratch, within, lambda real: perform(Attempt(layers, answering(work), real, paths, within)))


def run_in(
    template: Template,
    arguments: Sequence[object],
    scratch: Path,
    bounds: Bounds | None = None,
    readable: Iterable[Path] = (),
    *,
    without: frozenset[str] = _NONE,
) -> Heard:
    """The same, of the work that a template was made of, with arguments that are JSON; `Gone` if the template has ended."""
    layers, within, paths = require(without).layers, bounds or Bounds(), [*map(os.path.realpath, readable)]
    return _concluded(scratch, within, lambda real: template.perform(layers, arguments, real, paths, within))


def _concluded(scratch: Path, bounds: Bounds, performed: Callable[[str], Ending]) -> Heard:
    """What an attempt in this folder came to."""
    real = os.path.realpath(scratch)
    before = os.stat(real)
    if not stat.S_ISDIR(before.st_mode):
        raise BadValue("scratch", real, "a folder")
    try:
        ending = performed(real)
    finally:
        if os.geteuid() == 0:
            os.chown(real, before.st_uid, before.st_gid)
    if "layer" in ending.told:
        raise Mistake(
            f"an attempt was not begun, because a layer of its sandbox could not be put in force: "
            f"{ending.told['layer']} ({ending.told['why']}); fairlane doctor names those that can"
        )
    heard = judged(ending, bounds)
    if (excess := too_much_in(real, bounds)) is not None:
        raise excess
    return heard


def require(without: frozenset[str] = _NONE) -> Plan:
    """What attempts will be confined by; a `Mistake` if a promise cannot be kept. It tries once; call it early."""
    if syscalls.machine() is None:
        machine = os.uname()
        raise Mistake(
            f"strangers' files are not opened on {machine.sysname} {machine.machine}: the sandbox needs Linux on "
            f"{' or '.join(syscalls.MACHINES)}"
        )
    plan = _plan(os.geteuid(), without)
    if (broken := plan.broken()) is not None:
        raise Mistake(broken)
    return plan


def layers(without: frozenset[str] = _NONE) -> list[Layer]:
    """Every layer: whether it is in force, and if not, why not."""
    if syscalls.machine() is None:
        return [Layer(name, False, "only on Linux, on x86_64 and aarch64") for name in LAYERS]
    return _plan(os.geteuid(), without).told()


@cache
def _plan(user: int, without: frozenset[str]) -> Plan:
    """Try with everything; what is refused is left out, until an attempt begins. Then look whether it holds."""
    prepare()
    missing = {name: "switched off" for name in LAYERS if name in without}
    if user == 0:
        missing.setdefault("user namespace", "not needed: root makes the others, and becomes another user")
    own = {name: os.stat(path).st_ino for name, path in _places().items()}
    while True:
        wanted = frozenset(LAYERS.keys() - missing.keys())
        with tempfile.TemporaryDirectory(prefix="fairlane-try-") as scratch:
            attempt = Attempt(wanted, answering(lambda: _seen(own)), os.path.realpath(scratch), (), Bounds(seconds_max=10))
            ending = perform(attempt)
        if "layer" in ending.told:
            if ending.told["layer"] in missing:
                return Plan(_NONE, dict.fromkeys(LAYERS, ending.told["why"]))
            missing[ending.told["layer"]] = ending.told["why"]
            continue
        try:
            seen = judged(ending, attempt.bounds).value
        except Unreadable as error:
            return Plan(_NONE, dict.fromkeys(LAYERS, f"the trial ended badly: {error}"))
        seen = seen if isinstance(seen, list) else []
        missing |= {name: "the kernel took it, but it does not hold" for name in wanted if name not in seen}
        return Plan(frozenset(LAYERS.keys() - missing.keys()), missing)


def _places() -> dict[str, str]:
    kinds = dict(zip(FLAGS, ("user", "net", "pid", "ipc", "uts", "mnt"), strict=True))
    return {name: f"/proc/self/ns/{kind}" for name, kind in kinds.items()}


def _seen(own: dict[str, int]) -> list[str]:
    """In the confined fork: which layers hold, by looking."""
    seen = [name for name, path in _places().items() if os.stat(path).st_ino != own[name]]
    if "mount namespace" in seen and not os.statvfs("/").f_flag & os.ST_RDONLY:
        seen.remove("mount namespace")
    if os.geteuid() != 0:
        seen.append("user")
    if resource.getrlimit(resource.RLIMIT_CORE) == (0, 0) and resource.getrlimit(resource.RLIMIT_AS)[1] > 0:
        seen.append("limits")
    if syscalls.has_no_new_privileges():
        seen.append("privileges")
    try:
        os.listdir("/")
    except PermissionError:
        seen.append("landlock")
    try:
        socket.socket(socket.AF_UNIX).close()
    except PermissionError:
        seen.append("seccomp")
    return seen
