"""Attacks on the network: reach anybody, on this machine or elsewhere."""

from __future__ import annotations

import ctypes
import errno
import socket

from .attack import Attack, Outcome, Scene, call, worked

NETWORK = "no network"
SECCOMP = frozenset({"seccomp"})


def _accepts(door: socket.socket) -> bool:
    try:
        door.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _connect(scene: Scene, door: socket.socket) -> None:
    socket.socket(door.family).connect(scene.addresses[door])


def _send_datagram(scene: Scene) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", scene.addresses[scene.receiver])


def _has_received(scene: Scene, _: Outcome) -> bool:
    try:
        return scene.receiver.recv(10) == b"x"
    except BlockingIOError:
        return False


def _use_netlink(_: Scene) -> bool:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as netlink:
        netlink.bind((0, 0))
    return True


def _use_io_uring(_: Scene) -> bool:
    try:
        return call("io_uring_setup", 8, ctypes.create_string_buffer(120)) > 0
    except OSError as error:
        return error.errno == errno.ENOMEM  # the kernel has tried: it may lock no memory


REACHING = [
    Attack(
        "connect to a server",
        NETWORK,
        lambda scene: _connect(scene, scene.listener),
        lambda scene, _: _accepts(scene.listener),
        SECCOMP | {"network namespace", "landlock"},
    ),
    Attack("send a datagram", NETWORK, _send_datagram, _has_received, SECCOMP | {"network namespace"}),
    Attack(
        "connect to a socket in a folder",
        NETWORK,
        lambda scene: _connect(scene, scene.doors[0]),
        lambda scene, _: _accepts(scene.doors[0]),
        SECCOMP | {"mount namespace"},
    ),
    Attack(
        "connect to a socket with a name",
        NETWORK,
        lambda scene: _connect(scene, scene.doors[1]),
        lambda scene, _: _accepts(scene.doors[1]),
        SECCOMP | {"network namespace", "landlock"},
    ),
    Attack("talk to the kernel's network", NETWORK, _use_netlink, worked, SECCOMP),
    Attack("have the kernel make calls for it", NETWORK, _use_io_uring, worked, frozenset(), ("io_uring_setup",)),
]
