"""What an attack is, and the scene that it plays in: what belongs to somebody else, all of it the caller's own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import secrets
import select
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fairlane import sandbox
from tests.sandbox.harness import living

AT_FDCWD, HANDLE_BYTES = -100, 128
SECRET = "what another customer sent"
SHARED_BYTES = 4096
FILES = frozenset({"landlock", "mount namespace"})  # the layers that decide which files there are
LIMITS = sandbox.ResourceLimits(
    seconds_max=90,  # what is to be noticed is noticed at once, but a busy machine takes its time
    cpu_seconds_max=60,
    memory_max=200_000_000,
    memory_sum_max=250_000_000,
    output_max=40_000_000,
)
libc = ctypes.CDLL(None, use_errno=True)
_COLUMN = 0 if platform.machine() == "x86_64" else 1
NUMBERS = {  # on x86_64 and on aarch64
    "add_key": (248, 217),
    "chmod": (90, None),
    "clone3": (435, 435),
    "exit": (60, 93),
    "fallocate": (285, 47),
    "fchmodat": (268, 53),
    "inotify_add_watch": (254, 27),
    "inotify_init1": (294, 26),
    "io_uring_setup": (425, 425),
    "ioprio_set": (251, 30),
    "link": (86, None),
    "linkat": (265, 37),
    "listmount": (458, 458),
    "memfd_create": (319, 279),
    "migrate_pages": (256, 238),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "process_vm_readv": (310, 270),
    "ptrace": (101, 117),
    "rename": (82, None),
    "renameat": (264, 38),
    "rmdir": (84, None),
    "rt_sigqueueinfo": (129, 138),
    "set_tid_address": (218, 96),
    "setxattr": (188, 5),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmdt": (67, 197),
    "shmget": (29, 194),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "tgkill": (234, 131),
    "truncate": (76, 45),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "utimensat": (280, 88),
}


def number(name: str) -> int:
    """The number of a system call on this machine."""
    value = NUMBERS[name][_COLUMN]
    assert value is not None
    return value


def call(name: str, *values: object) -> int:
    """Make a system call; an OSError if it fails."""
    arguments = (ctypes.c_long(value) if isinstance(value, int) else value for value in values)
    libc.syscall.restype = ctypes.c_long
    result = libc.syscall(ctypes.c_long(number(name)), *arguments)
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), name)
    return int(result)


@dataclass
class Scene:
    """What there is to attack. The caller makes it, so all of it has the caller's user."""

    folder: Path  # of everything else; others may write here
    neighbour: subprocess.Popen[bytes]  # a process of the same user, which returns what it is sent
    shared: int  # the number of a segment of shared memory that has the secret
    shared_address: int
    listener: socket.socket  # TCP
    receiver: socket.socket  # UDP
    doors: list[socket.socket]  # Unix: in a folder, and with a name
    is_to_hold: bool  # whether a program that has taken too much keeps it until it is ended
    token: str = field(default_factory=lambda: secrets.token_hex(4))

    def __post_init__(self) -> None:
        self.outside, self.output = self.folder / "outside", self.folder / "output"
        self.blob, self.database = self.outside / "blob", self.outside / "queue.db"  # what others sent, and what we know of it
        self.input = self.folder / "input"  # a folder that the attempt may read
        self.folders_before = self.folders()
        self.blob_handle = b""
        with contextlib.suppress(OSError):  # a file system that has none
            self.blob_handle = file_handle(self.blob)
        self.processors = os.sched_getaffinity(self.neighbour.pid)
        maps = Path(f"/proc/{self.neighbour.pid}/maps").read_text()
        self.neighbour_address = int(maps.partition("-")[0], 16)
        self.message_queue = f"fairlane-{self.token}"
        self.addresses = {door: door.getsockname() for door in (self.listener, self.receiver, *self.doors)}

    def folders(self) -> object:
        """Everything in the folders that a program could change."""
        paths = sorted(path for folder in (self.outside, self.input) for path in (folder, *folder.iterdir()))
        found = []
        for path in paths:
            status = path.lstat()
            attributes = os.listxattr(path, follow_symlinks=False)
            found.append([path, status.st_mode, status.st_nlink, status.st_mtime_ns, status.st_size, attributes])
        return found

    def is_neighbour_alive(self) -> bool:
        """Whether the other process returns what it is sent."""
        assert self.neighbour.stdin is not None
        assert self.neighbour.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            os.write(self.neighbour.stdin.fileno(), b"x")
        return (
            select.select([self.neighbour.stdout], [], [], 60)[0] != [] and os.read(self.neighbour.stdout.fileno(), 1) == b"x"
        )

    def hold(self) -> bool:
        """In the program, which has taken too much: keep it until somebody notices."""
        while self.is_to_hold:
            signal.pause()
        return True

    def survivors(self) -> list[int]:
        """Processes that the program has named after the scene."""
        return living(self.token)


def file_handle(path: Path) -> bytes:
    """The handle of a file, as the kernel gives it to whoever asks."""
    buffer = ctypes.create_string_buffer(struct.pack("Ii", HANDLE_BYTES, 0), 8 + HANDLE_BYTES)
    call("name_to_handle_at", AT_FDCWD, os.fsencode(path), buffer, ctypes.byref(ctypes.c_int()), 0)
    return buffer.raw


@contextlib.contextmanager
def open_scene(folder: Path, is_to_hold: bool) -> Iterator[Scene]:
    """Make the scene in a folder, as this user."""
    (folder / "outside").mkdir()
    (folder / "outside").chmod(0o777)
    (folder / "outside" / "empty").mkdir()
    for name, mode in (("blob", 0o600), ("queue.db", 0o644)):
        (folder / "outside" / name).write_text(SECRET)
        (folder / "outside" / name).chmod(mode)
    (folder / "input").mkdir()
    (folder / "input" / "link").symlink_to(folder / "outside" / "blob")
    (folder / "input" / "file").write_text("of the attempt")
    with contextlib.ExitStack() as stack:
        shared = call("shmget", 0, SHARED_BYTES, 0o1600)  # IPC_PRIVATE, IPC_CREAT
        stack.callback(call, "shmctl", shared, 0, None)  # IPC_RMID
        address = call("shmat", shared, None, 0)
        stack.callback(call, "shmdt", ctypes.c_void_p(address))
        ctypes.memmove(address, SECRET.encode(), len(SECRET))
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        receiver = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        receiver.bind(("127.0.0.1", 0))
        doors = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2)]
        for door, name in zip(doors, (str(folder / "door"), f"\0{folder}"), strict=True):
            door.bind(name)
            door.listen()
        (folder / "door").chmod(0o777)
        for door in (listener, receiver, *doors):
            door.setblocking(False)
        neighbour = stack.enter_context(_neighbour())
        scene = Scene(folder, neighbour, shared, address, listener, receiver, doors, is_to_hold)
        os.close(call("mq_open", scene.message_queue.encode(), os.O_CREAT | os.O_RDWR, 0o600, None))
        yield scene
        with contextlib.suppress(OSError):
            call("mq_unlink", scene.message_queue.encode())


@contextlib.contextmanager
def _neighbour() -> Iterator[subprocess.Popen[bytes]]:
    environment = {"FAIRLANE_URL": SECRET, "PATH": os.environ["PATH"]}
    pipe = subprocess.PIPE
    neighbour = subprocess.Popen(["cat"], stdin=pipe, stdout=pipe, bufsize=0, start_new_session=True, env=environment)
    try:
        yield neighbour
    finally:
        neighbour.send_signal(signal.SIGCONT)
        neighbour.kill()
        neighbour.communicate()


class Outcome(NamedTuple):
    """How an attempt ended: `value` and what the program returned, None if it failed; or another code."""

    code: str
    value: Any = None


@dataclass(frozen=True)
class Attack:
    """A program, how to tell that it has done its harm, and what has to be taken away before it can."""

    name: str
    promise: str
    program: Callable[[Scene], object]
    is_harmed: Callable[[Scene, Outcome], bool]
    layers: frozenset[str]  # its guards: without all of these it works
    calls: tuple[str, ...] = ()  # more guards: system calls that the filter would have to allow
    rules: tuple[str, ...] = ()  # more guards: system calls whose arguments the filter would have to leave alone
    patches: dict[str, Any] = field(default_factory=dict)  # more guards: what our own code would have to do without
    limits: sandbox.ResourceLimits = LIMITS
    limits_without: sandbox.ResourceLimits | None = None  # more guards: limits that would have to be higher
    is_roots: bool = False  # only root's attempts have the rights for it


def returned(value: object) -> Callable[[Scene, Outcome], bool]:
    """The program says itself whether it worked: by this value."""
    return lambda _, outcome: bool(outcome.value == value)


def worked(_: Scene, outcome: Outcome) -> bool:
    """The program says itself whether it worked."""
    return outcome.value is True


def unnoticed(_: Scene, outcome: Outcome) -> bool:
    """The program could take too much, and keep it until its time was over."""
    return outcome.value is True or outcome.code == "timed_out"
