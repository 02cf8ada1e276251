"""Grants: the files and folders that an attempt may open. Landlock and the mount namespace both enforce this list.

Laws:
- Everything is named by its real path, and no library is inside another one.
- Nothing here can be written to. Devices are those that lead nowhere and those that give random bytes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple

SYSTEM = (  # not all of /usr: many an image has its application, and what that stores, in /usr/src or /usr/local
    *("/usr/bin", "/usr/lib", "/usr/lib64", "/usr/lib32", "/usr/share"),
    *("/usr/local/lib", "/usr/local/share", "/bin", "/lib", "/lib64", "/lib32"),
    *("/etc/ld.so.cache", "/etc/fonts", "/etc/localtime", "/etc/alternatives"),
)
DEVICES = ("/dev/null", "/dev/urandom", "/dev/random")  # not /dev/zero: mapped and shared it is memory that nobody counts
LINKS_MAX = 40  # on the way to one path, as in the kernel

Kind = Literal["library", "device", "input"]


class Grant(NamedTuple):
    """A file or folder, and what it is for: libraries are read and executed, inputs and devices read."""

    path: str
    kind: Kind


class Link(NamedTuple):
    """A symbolic link on the way to a library."""

    path: str
    target: str


def list_grants(readable: Sequence[str], libraries: Sequence[str]) -> list[Grant]:
    """List what an attempt may open, by real paths; those of the readable files must be real already."""
    return [
        *(Grant(path, "library") for path in _library_paths(tuple(libraries))),
        *(Grant(path, "device") for path in DEVICES),
        *(Grant(path, "input") for path in readable),
    ]


@cache
def list_links(libraries: tuple[str, ...]) -> tuple[Link, ...]:
    """List the symbolic links on the way to these libraries and to those of Python and the system."""
    links = {link.path: link for path in (*_python_and_system(), *libraries) for link in _links_on(path)}
    return tuple(links[path] for path in sorted(links))


@cache
def _library_paths(libraries: tuple[str, ...]) -> tuple[str, ...]:
    real = {os.path.realpath(path) for path in (*_python_and_system(), *libraries)}
    return tuple(sorted(path for path in real if not any(path.startswith(f"{other}/") for other in real)))


def _python_and_system() -> set[str]:
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    return {*SYSTEM, os.path.dirname(os.__file__), *(f"{prefix}/{name}" for prefix in prefixes for name in ("lib", "lib64"))}


def _links_on(path: str) -> list[Link]:
    """Follow a path, and return the symbolic links that were met."""
    links: list[Link] = []
    rest, reached = [part for part in path.split("/") if part], "/"
    while rest and len(links) < LINKS_MAX:
        step = os.path.normpath(os.path.join(reached, rest.pop(0)))
        if os.path.islink(step):
            link = Link(step, os.readlink(step))
            links.append(link)
            rest = [part for part in link.target.split("/") if part] + rest
            reached = "/" if link.target.startswith("/") else reached
        else:
            reached = step
    return links
