"""Attacks on files: read what belongs to others, write outside of the scratch folder."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path

from fairlane import sandbox

from .attack import FILES, SECRET, Attack, Outcome, Scene, call, returned, worked

READS, WRITES = "reads nothing else", "writes no file"
SECCOMP = frozenset({"seccomp"})


# -- reading


def _read_by_handle(scene: Scene) -> str:
    """Open a file by the number of its inode, which passes by every folder above it."""
    mount = os.open(scene.input, os.O_RDONLY)
    handle = ctypes.create_string_buffer(scene.blob_handle, len(scene.blob_handle))
    return os.read(call("open_by_handle_at", mount, handle, os.O_RDONLY), 1000).decode()


def _watch_folder(scene: Scene) -> bool:
    watcher = call("inotify_init1", 0)
    return call("inotify_add_watch", watcher, os.fsencode(scene.outside), 0xFFF) > 0


def _list_mounts(_: Scene) -> bool:
    request = struct.pack("IIQQ", 24, 0, 0xFFFFFFFFFFFFFFFF, 0)
    return call("listmount", ctypes.create_string_buffer(request, 24), (ctypes.c_uint64 * 64)(), 64, 0) > 0


def _read_shared_memory(scene: Scene) -> str:
    return ctypes.string_at(call("shmat", scene.shared, None, 0o10000), len(SECRET)).decode()  # SHM_RDONLY


def _list_application(_: Scene) -> bool:
    """List a folder of /usr that has no libraries: images have their application there, and what it stores."""
    for folder in ("/usr/src", "/usr/local/src", "/usr/local/etc"):
        with contextlib.suppress(OSError):
            os.listdir(folder)
            return True
    return False


def _has_environment(_: Scene, outcome: Outcome) -> bool:
    return SECRET in (outcome.value or "")


READING = [
    Attack("read another customer's file", READS, lambda scene: scene.blob.read_text(), returned(SECRET), FILES),
    Attack("read the database", READS, lambda scene: scene.database.read_text(), returned(SECRET), FILES),
    Attack("read through a link", READS, lambda scene: (scene.input / "link").read_text(), returned(SECRET), FILES),
    Attack("read above the root", READS, lambda scene: Path(f"/..{scene.blob}").read_text(), returned(SECRET), FILES),
    Attack("list a folder", READS, lambda scene: "blob" in os.listdir(scene.outside), worked, FILES),
    Attack("list what an image has beside its libraries", READS, _list_application, worked, FILES),
    Attack(
        "read a process's environment",
        READS,
        lambda scene: Path(f"/proc/{scene.neighbour.pid}/environ").read_text(),
        _has_environment,
        FILES | sandbox.NAMESPACES,
    ),
    Attack(
        "open a file by its handle",
        READS,
        _read_by_handle,
        returned(SECRET),
        frozenset({"landlock"}),
        ("open_by_handle_at",),
        is_roots=True,
    ),
    Attack(
        "watch a folder",
        READS,
        _watch_folder,
        worked,
        frozenset({"mount namespace"}),
        ("inotify_init1", "inotify_add_watch"),
    ),
    Attack("list mounts", READS, _list_mounts, worked, frozenset(), ("listmount",)),
    Attack("read shared memory", READS, _read_shared_memory, returned(SECRET), frozenset({"message namespace"}), ("shmat",)),
]


# -- writing


def _has_changed(scene: Scene, _: Outcome) -> bool:
    return scene.folders() != scene.folders_before


def _write_to_memory(scene: Scene) -> None:
    Path("/dev/shm", scene.folder.name).write_text("x")


def _is_in_memory(scene: Scene, _: Outcome) -> bool:
    path = Path("/dev/shm", scene.folder.name)
    is_there = path.exists()
    path.unlink(missing_ok=True)
    return is_there


def _to(change: Callable[[Path], object]) -> Callable[[Scene], object]:
    """The change of a file that the attempt may read, which is the caller's."""
    return lambda scene: change(scene.input / "file")


def _new(change: Callable[[Path], object]) -> Callable[[Scene], object]:
    """The change of a folder that the attempt may read."""
    return lambda scene: change(scene.input / "new")


_BY_OPENING: dict[str, Callable[[Scene], object]] = {
    "write to its input": _to(lambda path: path.write_text("harm")),
    "empty its input": _to(lambda path: os.open(path, os.O_RDONLY | os.O_TRUNC)),
    "make a file": _new(lambda path: path.touch()),
}
_BY_NAME: dict[str, tuple[Callable[[Scene], object], tuple[str, ...]]] = {
    "cut its input": (_to(lambda path: os.truncate(path, 1)), ("truncate",)),
    "make a folder": (_new(os.mkdir), ("mkdir", "mkdirat")),
    "make a pipe": (_new(os.mkfifo), ("mknod", "mknodat")),
    "make a link": (_new(lambda path: os.symlink("x", path)), ("symlink", "symlinkat")),
    "make another name": (_new(lambda path: os.link(path.parent / "file", path)), ("link", "linkat")),
    "remove its input": (_to(os.unlink), ("unlink", "unlinkat")),
    "remove a folder": (lambda scene: os.rmdir(scene.outside / "empty"), ("rmdir", "unlinkat")),
    "move its input": (_to(lambda path: os.rename(path, path.parent / "new")), ("rename", "renameat")),
    "change a mode": (_to(lambda path: path.chmod(0o777)), ("chmod", "fchmodat")),
    "change a time": (_to(lambda path: os.utime(path, (1, 1))), ("utimensat",)),
    "add an attribute": (_to(lambda path: os.setxattr(path, "user.harm", b"1")), ("setxattr",)),
}
WRITING = [
    *(Attack(name, WRITES, program, _has_changed, FILES, rules=("openat",)) for name, program in _BY_OPENING.items()),
    *(Attack(name, WRITES, program, _has_changed, FILES, calls) for name, (program, calls) in _BY_NAME.items()),
    Attack(
        "write to another file",
        WRITES,
        lambda scene: scene.database.write_text("harm"),
        _has_changed,
        FILES,
        rules=("openat",),
    ),
    Attack("write to shared memory", WRITES, _write_to_memory, _is_in_memory, FILES, rules=("openat",)),
]
