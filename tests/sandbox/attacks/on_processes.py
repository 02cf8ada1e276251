"""Attacks on other processes of the same user: end, slow down, read or change them, and outlive the attempt."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import struct
from collections.abc import Callable

from fairlane import sandbox
from tests.sandbox.harness import name_process, wait_for_mark, write_mark

from .attack import SECRET, Attack, Outcome, Scene, call, libc, worked

PROCESSES, DEATH = "reaches no other process", "dies with its parent"
SCOPES = frozenset({"process namespace", "landlock"})  # Landlock keeps signals in since its sixth version
NUMBERS = frozenset({"process namespace"})  # without it, another process can be named
RIGHTS = sandbox.NAMESPACES | {"landlock"}  # a process of another user namespace cannot be debugged either
SHARED = frozenset({"message namespace"})
F_SETOWN, F_SETSIG = 8, 10
SCHED_IDLE, IOPRIO_IDLE = 5, 3 << 13
PTRACE_ATTACH = 16
SIGINFO_BYTES = 128
NEW_USER_NAMESPACE = 0x10000000
PROCESS_KEYRING = -2
SOFTWARE_EVENTS, ONLY_OF_PROGRAMS = 1, 1 << 5 | 1 << 6  # exclude_kernel, exclude_hv


def _is_dead(scene: Scene, _: Outcome) -> bool:
    return not scene.is_neighbour_alive()


def _have_kernel_signal(scene: Scene) -> None:
    """Name another process as the one to be signalled when a pipe of ours has something to read."""
    read_end, write_end = os.pipe()
    fcntl.fcntl(read_end, F_SETOWN, scene.neighbour.pid)
    fcntl.fcntl(read_end, F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(read_end, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(write_end, b"x")


def _queue_signal(scene: Scene) -> None:
    info = ctypes.create_string_buffer(struct.pack("iii", signal.SIGKILL, 0, -1), SIGINFO_BYTES)  # SI_QUEUE
    call("rt_sigqueueinfo", scene.neighbour.pid, signal.SIGKILL, info)


def _signal_by_descriptor(scene: Scene) -> None:
    call("pidfd_send_signal", call("pidfd_open", scene.neighbour.pid, 0), signal.SIGKILL, None, 0)


def _read_process(scene: Scene) -> bool:
    buffer = ctypes.create_string_buffer(16)
    ours = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 16)
    theirs = (ctypes.c_void_p * 2)(scene.neighbour_address, 16)
    return call("process_vm_readv", scene.neighbour.pid, ours, 1, theirs, 1, 0) == 16


def _first_node() -> object:
    return ctypes.byref(ctypes.c_ulong(1))


def _take_descriptor(scene: Scene) -> bool:
    return call("pidfd_getfd", call("pidfd_open", scene.neighbour.pid, 0), 0, 0) > 0


def _debug(scene: Scene) -> bool:
    libc.ptrace.restype = ctypes.c_long
    return int(libc.ptrace(PTRACE_ATTACH, scene.neighbour.pid, None, None)) == 0


def _clear_shared_memory(scene: Scene) -> None:
    ctypes.memset(call("shmat", scene.shared, None, 0), 0, len(SECRET))


def _is_shared_memory_cleared(scene: Scene, _: Outcome) -> bool:
    return ctypes.string_at(scene.shared_address, len(SECRET)) != SECRET.encode()


def _leave_daemon(scene: Scene) -> str:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            name_process(scene.token)
            write_mark()
            while True:
                signal.pause()
        os._exit(0)
    wait_for_mark()
    return "left"


def _become_root_of_a_namespace(_: Scene) -> bool:
    """Fork into a new user namespace, in which one has all rights."""
    libc.syscall.restype = ctypes.c_long
    clone = 56 if os.uname().machine == "x86_64" else 220
    child = libc.syscall(ctypes.c_long(clone), ctypes.c_long(NEW_USER_NAMESPACE | signal.SIGCHLD), None, None, None, None)
    if child == 0:
        os._exit(0)
    return bool(child > 0)


def _become_root_by_the_newer_call(_: Scene) -> bool:
    arguments = struct.pack("8Q", NEW_USER_NAMESPACE, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    child = call("clone3", ctypes.create_string_buffer(arguments, len(arguments)), len(arguments))
    if child == 0:
        os._exit(0)
    return child > 0


def _keep_a_key(_: Scene) -> bool:
    """Store something in the kernel, in a keyring; other keyrings belong to all processes of a user."""
    return call("add_key", b"user", b"fairlane", b"harm", 4, PROCESS_KEYRING) > 0


def _measure(_: Scene) -> bool:
    """Have the kernel count what happens in a process."""
    attributes = struct.pack("IIQQQQQ", SOFTWARE_EVENTS, 112, 0, 0, 0, 0, ONLY_OF_PROGRAMS)
    return call("perf_event_open", ctypes.create_string_buffer(attributes, 112), 0, -1, -1, 0) >= 0


_SIGNALS: dict[str, tuple[Callable[[Scene], object], tuple[str, ...]]] = {
    "kill a process": (lambda scene: os.kill(scene.neighbour.pid, signal.SIGKILL), ()),
    "kill a group": (lambda scene: os.killpg(scene.neighbour.pid, signal.SIGKILL), ()),
    "kill a thread": (lambda scene: call("tgkill", scene.neighbour.pid, scene.neighbour.pid, signal.SIGKILL), ()),
    "queue a signal": (_queue_signal, ("rt_sigqueueinfo",)),
    "kill by a descriptor": (_signal_by_descriptor, ("pidfd_open", "pidfd_send_signal")),
}
_ON_NEIGHBOUR: dict[str, tuple[Callable[[Scene], object], Callable[[Scene, Outcome], bool]]] = {
    "slow a process down": (
        lambda scene: os.setpriority(os.PRIO_PROCESS, scene.neighbour.pid, 19),
        lambda scene, _: os.getpriority(os.PRIO_PROCESS, scene.neighbour.pid) == 19,
    ),
    "have a process run when nobody else does": (
        lambda scene: os.sched_setscheduler(scene.neighbour.pid, SCHED_IDLE, os.sched_param(0)),
        lambda scene, _: os.sched_getscheduler(scene.neighbour.pid) == SCHED_IDLE,
    ),
    "bind a process to a processor": (
        lambda scene: os.sched_setaffinity(scene.neighbour.pid, {min(scene.processors)}),
        lambda scene, _: os.sched_getaffinity(scene.neighbour.pid) != scene.processors,
    ),
    "hold up a process's disk": (
        lambda scene: call("ioprio_set", 1, scene.neighbour.pid, IOPRIO_IDLE) == 0,
        worked,
    ),
}
_WITH_RIGHTS: dict[str, tuple[Callable[[Scene], object], tuple[str, ...]]] = {
    "look where a process's memory is": (
        lambda scene: call("move_pages", scene.neighbour.pid, 0, None, None, None, 0) == 0,
        ("move_pages",),
    ),
    "move a process's memory": (
        lambda scene: call("migrate_pages", scene.neighbour.pid, 64, _first_node(), _first_node()) == 0,
        ("migrate_pages",),
    ),
    "read a process's memory": (_read_process, ("process_vm_readv",)),
    "take a process's file": (_take_descriptor, ("pidfd_open", "pidfd_getfd")),
    "debug a process": (_debug, ("ptrace",)),
}
MEDDLING = [
    *(Attack(name, PROCESSES, program, _is_dead, SCOPES | ({"seccomp"} if not calls else set()), calls)
      for name, (program, calls) in _SIGNALS.items()),
    Attack("have the kernel send a signal", PROCESSES, _have_kernel_signal, _is_dead, SCOPES, rules=("fcntl",)),
    Attack(
        "limit a process",
        PROCESSES,
        lambda scene: resource.prlimit(scene.neighbour.pid, resource.RLIMIT_NOFILE, (30, 30)),
        lambda scene, _: resource.prlimit(scene.neighbour.pid, resource.RLIMIT_NOFILE) == (30, 30),
        NUMBERS,
        rules=("prlimit64",),
    ),
    *(Attack(name, PROCESSES, program, is_harmed, NUMBERS | {"seccomp"})
      for name, (program, is_harmed) in _ON_NEIGHBOUR.items()),
    *(Attack(name, PROCESSES, program, worked, RIGHTS, calls) for name, (program, calls) in _WITH_RIGHTS.items()),
    Attack("clear shared memory", PROCESSES, _clear_shared_memory, _is_shared_memory_cleared, SHARED, ("shmat",)),
    Attack(
        "remove a queue of messages",
        PROCESSES,
        lambda scene: call("mq_unlink", scene.message_queue.encode()) == 0,
        worked,
        SHARED,
        ("mq_unlink",),
    ),
    Attack("get all rights in a namespace", PROCESSES, _become_root_of_a_namespace, worked, frozenset(), rules=("clone",)),
    Attack("get all rights by the newer call", PROCESSES, _become_root_by_the_newer_call, worked, frozenset(), ("clone3",)),
    Attack("keep a key in the kernel", PROCESSES, _keep_a_key, worked, frozenset(), ("add_key",)),
    Attack("measure a process", PROCESSES, _measure, worked, frozenset(), ("perf_event_open",)),
    Attack(
        "leave a daemon",
        DEATH,
        _leave_daemon,
        lambda scene, _: scene.survivors() != [],
        NUMBERS,
        patches={"fairlane.procs.reaper.end_strays": lambda *_, **__: None},
    ),
]  # fmt: skip
