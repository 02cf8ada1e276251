"""The plan: which layers of the sandbox this machine has, and which promises they keep.

Laws:
- A promise is kept when all layers of one of its alternatives are in force. If a promise cannot be kept, nothing is run.
- One promise can be given up, by a setting that says what it means: that nothing else is read.
- A layer counts only if it was tried in a confined process and found in force there, by its effect.
- Resource limits and the supervisor are always there: without them an attempt does not begin.
"""

from __future__ import annotations

import os
import resource
import socket
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fairlane.core.errors import Mistake
from fairlane.procs import syscalls

from .attempt import run_attempt
from .confine import CORE_BYTES_MAX, AttemptSpec
from .errors import AttemptFailed, LayerRefused
from .limits import ResourceLimits
from .namespaces import NAMESPACES, NOT_IN_FORCE

LAYERS = {
    "limits": "memory, processor time, files and processes are limited",
    "privileges": "no program that it starts can gain rights",
    "user": "it runs as an ordinary user; root becomes one that owns nothing",
    "user namespace": "rights over namespaces without rights over the machine, and a process count of its own",
    "network namespace": "there is no network",
    "process namespace": "everything an attempt started ends with it, and it can signal nobody else",
    "message namespace": "no shared memory or messages with others",
    "name namespace": "the machine's name cannot be changed",
    "mount namespace": "there are no files but the one to be read, Python and the system's libraries",
    "landlock": "only the file to be read, Python and the system's libraries can be opened",
    "seccomp": "only system calls that reading a file needs: no sockets, no file is written, no signals to others",
}
READS_NOTHING_ELSE = "reads nothing else"
PROMISES: dict[str, tuple[frozenset[str], ...]] = {
    "limits": (frozenset({"limits", "privileges", "user", "seccomp"}),),
    "no network": (frozenset({"seccomp"}),),  # a namespace alone does not keep it from sockets that are files
    READS_NOTHING_ELSE: (frozenset({"mount namespace"}), frozenset({"landlock", "seccomp"})),
    "writes no file": (frozenset({"seccomp"}),),
    "reaches no other process": (frozenset({"seccomp"}),),
    "dies with its parent": (frozenset({"process namespace"}), frozenset({"seccomp"})),
}
_ALLOW_NAMESPACES = "allow user namespaces (sysctl user.max_user_namespaces), or run as root with CAP_SYS_ADMIN"
ADVICE = {
    "user": "run the worker as an ordinary user, or let root change its user (CAP_SETUID, CAP_SETGID)",
    "privileges": "let this process set no_new_privs",
    "limits": "let this process set its own limits (setrlimit)",
    "seccomp": "use a kernel with CONFIG_SECCOMP_FILTER, and a container that allows it",
    "landlock": "use Linux 5.13 or newer with landlock in its list of security modules (lsm=)",
    "network namespace": _ALLOW_NAMESPACES,
    "mount namespace": _ALLOW_NAMESPACES,
    "process namespace": _ALLOW_NAMESPACES,
}
TRIAL_SECONDS_MAX = 60  # milliseconds, but this machine may be busy, and the plan is made once
_NONE: frozenset[str] = frozenset()


class Layer(NamedTuple):
    """One layer: whether it is in force, and what it does, or why it is not."""

    name: str
    is_in_force: bool
    detail: str


class Plan(NamedTuple):
    """The layers that every attempt puts in force, or does not begin; and the missing ones, with the reason."""

    layers: frozenset[str]
    missing: dict[str, str]

    def keeps(self, promise: str) -> bool:
        """Tell whether the layers in force keep a promise."""
        return any(alternative <= self.layers for alternative in PROMISES[promise])

    def broken_promises(self, may_read_everything: bool = False) -> str | None:
        """Say which promises cannot be kept, and what to do first; None if all can that must."""
        given_up = {READS_NOTHING_ELSE} if may_read_everything else set()
        broken = [promise for promise in PROMISES if not self.keeps(promise) and promise not in given_up]
        if not broken:
            return None
        advice = ADVICE[min(PROMISES[broken[0]][-1] - self.layers)]
        return (
            "untrusted files are not opened here, because the sandbox cannot keep what it promises: "
            f"{', '.join(broken)}; missing is {self.lacking(broken[0])}; what to do: {advice}"
        )

    def lacking(self, promise: str) -> str:
        """Name the layers that are missing for a promise, with the reasons."""
        return ", or ".join(
            " and ".join(f"{name} ({self._reason(name)})" for name in sorted(alternative - self.layers))
            for alternative in PROMISES[promise]
        )

    def _reason(self, name: str) -> str:
        return self.missing.get(name, "not there")

    def describe(self) -> list[Layer]:
        """List every layer, for people."""
        return [
            Layer(name, name in self.layers, effect if name in self.layers else self._reason(name))
            for name, effect in LAYERS.items()
        ]


def require(without: frozenset[str] = _NONE, may_read_everything: bool = False) -> Plan:
    """Return the plan, or raise a `Mistake` if a promise cannot be kept. The first call tries all layers; call it early.

    `may_read_everything` gives up the promise that nothing else is read, where it cannot be kept.
    """
    if syscalls.machine() is None:
        machine = os.uname()
        raise Mistake(
            f"untrusted files are not opened on {machine.sysname} {machine.machine}: the sandbox needs Linux on "
            f"{' or '.join(syscalls.MACHINES)}"
        )
    plan = _try_layers(os.geteuid(), without)
    if (broken := plan.broken_promises(may_read_everything)) is not None:
        raise Mistake(broken)
    return plan


def unsafe_reason(may_read_everything: bool) -> str | None:
    """Say what it means that files are opened here though they may read everything; None if they may not, or are not opened."""
    if not may_read_everything or syscalls.machine() is None:
        return None
    plan = _try_layers(os.geteuid(), _NONE)
    if plan.keeps(READS_NOTHING_ELSE) or plan.broken_promises(may_read_everything) is not None:
        return None
    return (
        "a file that takes over its parser can read everything that this user can read: other customers' files, the queue, "
        f"passwords; nothing keeps it from that: {plan.lacking(READS_NOTHING_ELSE)}"
    )


def layers(without: frozenset[str] = _NONE) -> list[Layer]:
    """List every layer: whether it is in force, and if not, why not."""
    if syscalls.machine() is None:
        return [Layer(name, False, "only on Linux, on x86_64 and aarch64") for name in LAYERS]
    return _try_layers(os.geteuid(), without).describe()


@cache
def _try_layers(user: int, without: frozenset[str]) -> Plan:
    """Run a trial with all layers, without those that the kernel refuses, and count those that are found in force."""
    missing = {name: "switched off" for name in LAYERS if name in without}
    if user == 0:
        missing.setdefault("user namespace", "not needed: root creates the others, and becomes another user")
    while True:
        tried = frozenset(LAYERS.keys() - missing.keys())
        try:
            in_force = _run_trial(tried)
        except LayerRefused as refused:
            if refused.layer in missing:
                return Plan(_NONE, dict.fromkeys(LAYERS, refused.why))
            missing[refused.layer] = refused.why
        except AttemptFailed as failure:
            return Plan(_NONE, dict.fromkeys(LAYERS, f"the trial failed: {failure}"))
        else:
            missing |= dict.fromkeys(tried - in_force, NOT_IN_FORCE)
            return Plan(frozenset(LAYERS.keys() - missing.keys()), missing)


def _run_trial(layers: frozenset[str]) -> frozenset[str]:
    """Return which of these layers are in force in a confined process."""
    with tempfile.TemporaryDirectory(prefix="fairlane-try-") as folder:
        other_file = Path(os.path.realpath(folder), "other")
        other_file.write_text("of somebody else")
        for path, mode in ((other_file.parent, 0o755), (other_file, 0o644)):  # so that only a layer keeps it from being read
            path.chmod(mode)
        limits = ResourceLimits(seconds_max=TRIAL_SECONDS_MAX)
        trial = AttemptSpec(layers, lambda: _layers_in_force(layers, other_file), (), (), limits)
        value = run_attempt(trial).value
    return frozenset(value) if isinstance(value, list) else _NONE


def _layers_in_force(tried: frozenset[str], other_file: Path) -> list[str]:
    """In the confined process: check every layer by its effect."""
    in_force = [*tried & NAMESPACES - {"process namespace", "mount namespace"}]  # checked when they were entered
    if os.getpid() == 1:
        in_force.append("process namespace")
    if os.geteuid() != 0:
        in_force.append("user")
    if resource.getrlimit(resource.RLIMIT_CORE)[1] <= CORE_BYTES_MAX and resource.getrlimit(resource.RLIMIT_AS)[1] > 0:
        in_force.append("limits")
    if syscalls.has_no_new_privileges():
        in_force.append("privileges")
    try:
        socket.socket(socket.AF_UNIX).close()
    except PermissionError:
        in_force.append("seccomp")
    return [*in_force, *_layers_over_files(other_file)]


def _layers_over_files(other_file: Path) -> list[str]:
    """In the confined process: try to reach a file that every user may read, and to list the root folder."""
    try:
        other_file.read_bytes()
    except OSError:
        pass
    else:
        return []
    in_force = []
    if not os.path.exists(other_file) and os.statvfs("/").f_flag & os.ST_RDONLY:
        in_force.append("mount namespace")
    try:
        os.listdir("/")
    except PermissionError:
        in_force.append("landlock")
    return in_force
