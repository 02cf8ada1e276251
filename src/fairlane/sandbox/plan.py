"""The plan: which layers of the sandbox this machine has, and which promises they keep.

Laws:
- A promise is kept when all layers of one of its alternatives are in force. If a promise cannot be kept, nothing is run.
- A layer counts only if it was tried in a confined process and found in force there.
- Resource limits and the supervisor are always there: without them an attempt does not begin.
"""

from __future__ import annotations

import os
import resource
import socket
import tempfile
from functools import cache
from typing import NamedTuple

from fairlane.core.errors import Mistake
from fairlane.procs import syscalls

from .attempt import run_attempt
from .confine import AttemptSpec
from .errors import AttemptFailed, LayerRefused
from .limits import ResourceLimits
from .namespaces import NAMESPACE_KINDS

LAYERS = {
    "limits": "memory, processor time, file size, open files and processes are limited",
    "privileges": "no program that it starts can gain rights",
    "user": "it runs as an ordinary user; root becomes one that owns nothing",
    "user namespace": "rights over namespaces without rights over the machine, and a process count of its own",
    "network namespace": "there is no network",
    "process namespace": "everything an attempt started ends with it, and it can signal nobody else",
    "message namespace": "no shared memory or messages with others",
    "name namespace": "the machine's name cannot be changed",
    "mount namespace": "everything but the scratch folder is read-only",
    "landlock": "only the file, the scratch folder, Python and the system's libraries can be opened",
    "seccomp": "sockets, signals to others and system calls that weaken the rest are refused",
}
PROMISES: dict[str, tuple[frozenset[str], ...]] = {
    "limits": (frozenset({"limits", "privileges", "user"}),),
    "no network": (frozenset({"seccomp"}),),  # a namespace alone does not keep it from sockets that are files
    "no writes outside": (frozenset({"mount namespace"}), frozenset({"landlock", "seccomp"})),
    "dies with its parent": (frozenset({"process namespace"}), frozenset({"seccomp"})),
}
_ALLOW_NAMESPACES = "allow user namespaces (sysctl user.max_user_namespaces), or run as root with CAP_SYS_ADMIN"
ADVICE = {
    "user": "run the worker as an ordinary user, or let root change its user (CAP_SETUID, CAP_SETGID, CAP_CHOWN)",
    "privileges": "let this process set no_new_privs",
    "limits": "let this process set its own limits (setrlimit)",
    "seccomp": "use a kernel with CONFIG_SECCOMP_FILTER, and a container that allows it",
    "landlock": "use Linux 5.13 or newer with landlock in its list of security modules (lsm=)",
    "network namespace": _ALLOW_NAMESPACES,
    "mount namespace": _ALLOW_NAMESPACES,
    "process namespace": _ALLOW_NAMESPACES,
}
TRIAL_SECONDS_MAX = 10
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

    def broken_promise(self) -> str | None:
        """Say which promise cannot be kept, and what to do; None if all can."""
        for promise, alternatives in PROMISES.items():
            if any(alternative <= self.layers for alternative in alternatives):
                continue
            lacking = [
                " and ".join(f"{name} ({self._reason(name)})" for name in sorted(alternative - self.layers))
                for alternative in alternatives
            ]
            advice = ADVICE[min(alternatives[-1] - self.layers)]
            return (
                f"untrusted files are not opened here, because a promise of the sandbox cannot be kept: {promise}; "
                f"missing is {', or '.join(lacking)}; what to do: {advice}"
            )
        return None

    def _reason(self, name: str) -> str:
        return self.missing.get(name, "not there")

    def describe(self) -> list[Layer]:
        """List every layer, for people."""
        return [
            Layer(name, name in self.layers, effect if name in self.layers else self._reason(name))
            for name, effect in LAYERS.items()
        ]


def require(without: frozenset[str] = _NONE) -> Plan:
    """Return the plan, or raise a `Mistake` if a promise cannot be kept. The first call tries all layers; call it early."""
    if syscalls.machine() is None:
        machine = os.uname()
        raise Mistake(
            f"untrusted files are not opened on {machine.sysname} {machine.machine}: the sandbox needs Linux on "
            f"{' or '.join(syscalls.MACHINES)}"
        )
    plan = _try_layers(os.geteuid(), without)
    if (broken := plan.broken_promise()) is not None:
        raise Mistake(broken)
    return plan


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
    own_namespaces = {name: namespace.inode() for name, namespace in NAMESPACE_KINDS.items()}
    while True:
        tried = frozenset(LAYERS.keys() - missing.keys())
        try:
            in_force = _run_trial(tried, own_namespaces)
        except LayerRefused as refused:
            if refused.layer in missing:
                return Plan(_NONE, dict.fromkeys(LAYERS, refused.why))
            missing[refused.layer] = refused.why
        except AttemptFailed as failure:
            return Plan(_NONE, dict.fromkeys(LAYERS, f"the trial failed: {failure}"))
        else:
            missing |= dict.fromkeys(tried - in_force, "the kernel accepted it, but it is not in force")
            return Plan(frozenset(LAYERS.keys() - missing.keys()), missing)


def _run_trial(layers: frozenset[str], own_namespaces: dict[str, int]) -> frozenset[str]:
    """Return which of these layers are in force in a confined process."""
    with tempfile.TemporaryDirectory(prefix="fairlane-try-") as scratch:
        limits = ResourceLimits(seconds_max=TRIAL_SECONDS_MAX)
        trial = AttemptSpec(layers, lambda: _layers_in_force(own_namespaces), os.path.realpath(scratch), (), (), limits)
        value = run_attempt(trial).value
    return frozenset(value) if isinstance(value, list) else _NONE


def _layers_in_force(own_namespaces: dict[str, int]) -> list[str]:
    """In the confined process: check every layer by its effect."""
    in_force = [name for name, namespace in NAMESPACE_KINDS.items() if namespace.inode() != own_namespaces[name]]
    if "mount namespace" in in_force and not os.statvfs("/").f_flag & os.ST_RDONLY:
        in_force.remove("mount namespace")
    if os.geteuid() != 0:
        in_force.append("user")
    if resource.getrlimit(resource.RLIMIT_CORE) == (0, 0) and resource.getrlimit(resource.RLIMIT_AS)[1] > 0:
        in_force.append("limits")
    if syscalls.has_no_new_privileges():
        in_force.append("privileges")
    try:
        os.listdir("/")
    except PermissionError:
        in_force.append("landlock")
    try:
        socket.socket(socket.AF_UNIX).close()
    except PermissionError:
        in_force.append("seccomp")
    return in_force
