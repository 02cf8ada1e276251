"""Which layers can stand between a stranger's file and this machine, and what does each promise need?

Laws:
- A promise is kept when every layer of one of its lines is in force. If none is, nothing is run.
- Limits and the guard that ends what an attempt started are always there: without them an attempt does not begin.
"""

from __future__ import annotations

from typing import NamedTuple

LAYERS = {
    "limits": "memory, processor time, size of a file, open files and processes are limited",
    "privileges": "no program that is started can get more rights",
    "user": "an ordinary user runs it; root becomes one who owns nothing",
    "user namespace": "rights over namespaces without rights over the machine, and a count of processes of its own",
    "network namespace": "there is no network",
    "process namespace": "everything an attempt started ends with it, and nobody else can be signalled",
    "message namespace": "no shared memory or messages with others",
    "name namespace": "the machine's name cannot be changed",
    "mount namespace": "everything but the scratch folder is read-only",
    "landlock": "only the file, the scratch folder, Python and the system's libraries can be opened",
    "seccomp": "sockets, signals to others and calls that weaken the rest are refused",
}
NAMESPACES = frozenset(name for name in LAYERS if name.endswith("namespace"))
PROMISES: dict[str, tuple[frozenset[str], ...]] = {
    "limits": (frozenset({"limits", "privileges", "user"}),),
    "no network": (frozenset({"seccomp"}),),  # a namespace alone leaves the sockets that are files
    "no writes outside": (frozenset({"mount namespace"}), frozenset({"landlock", "seccomp"})),
    "dies with its parent": (frozenset({"process namespace"}), frozenset({"seccomp"})),
}
ADVICE = {
    "user": "run the worker as an ordinary user, or let root change its user (CAP_SETUID, CAP_SETGID, CAP_CHOWN)",
    "privileges": "let this process set no_new_privs",
    "limits": "let this process set its own limits (setrlimit)",
    "seccomp": "use a kernel with CONFIG_SECCOMP_FILTER, and a container that allows it",
    "landlock": "use Linux 5.13 or newer with landlock in its list of security modules (lsm=)",
    "network namespace": "allow user namespaces (sysctl user.max_user_namespaces), or run as root with CAP_SYS_ADMIN",
}
ADVICE |= dict.fromkeys(("mount namespace", "process namespace"), ADVICE["network namespace"])


class Layer(NamedTuple):
    """One layer, and whether it is in force; if not, why."""

    name: str
    is_in_force: bool
    told: str


class Plan(NamedTuple):
    """What every attempt puts in force, or does not begin; and what is left out, with the reason."""

    layers: frozenset[str]
    missing: dict[str, str]

    def broken(self) -> str | None:
        """Which promise cannot be kept, and what to do; none if all can."""
        for promise, ways in PROMISES.items():
            if any(way <= self.layers for way in ways):
                continue
            lines = [" and ".join(f"{name} ({self._why(name)})" for name in sorted(way - self.layers)) for way in ways]
            needed = next(iter(sorted(ways[-1] - self.layers)))
            return (
                f"strangers' files are not opened here, because a promise of the sandbox cannot be kept: {promise}; "
                f"missing is {', or '.join(lines)}; what to do: {ADVICE[needed]}"
            )
        return None

    def _why(self, name: str) -> str:
        return self.missing.get(name, "not there")

    def told(self) -> list[Layer]:
        """Every layer, for people."""
        return [
            Layer(name, name in self.layers, what if name in self.layers else self._why(name)) for name, what in LAYERS.items()
        ]
