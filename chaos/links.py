"""Links to a server that can be made to fail in one way: refused, silent, or a network without a way back (a black hole)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from .processes import ROOT
from .proxy import FaultyProxy


class Link(Protocol):
    """A way to a server that fails on demand."""

    host: str
    port: int

    def fail(self) -> None:
        """Begin the fault."""

    def restore(self) -> None:
        """End the fault."""

    def close(self) -> None:
        """Remove the link."""


class RefusingLink(FaultyProxy):
    """Connections are cut and refused, as when the server is stopped."""

    def fail(self) -> None:
        self.refuse()


class SilentLink(FaultyProxy):
    """Connections stay open, and nobody answers, as when the server's machine hangs."""

    def fail(self) -> None:
        self.freeze()

    def restore(self) -> None:
        self.cut()  # the machine was started again
        super().restore()


class BlackHole:
    """A network namespace whose packets find no way back: nothing is refused, nothing is acknowledged. Needs root and `ip`."""

    def __init__(self, upstream: Path) -> None:
        number = os.getpid() % 250
        self._name, self._near, self._far = f"fairlane-{os.getpid()}", f"10.231.{number}.1", f"10.231.{number}.2"
        cable, end = f"fl{os.getpid()}", f"fr{os.getpid()}"
        _ip("netns", "add", self._name)
        try:
            _ip("link", "add", cable, "type", "veth", "peer", "name", end, "netns", self._name)
            _ip("addr", "add", f"{self._near}/30", "dev", cable)
            _ip("link", "set", cable, "up")
            _ip("-n", self._name, "addr", "add", f"{self._far}/30", "dev", end)
            _ip("-n", self._name, "link", "set", end, "up")
            command = ["ip", "netns", "exec", self._name, sys.executable, "-m", "chaos.proxy", self._far, str(upstream)]
            self._proxy = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert self._proxy.stdout is not None
            self.host, self.port = self._far, int(self._proxy.stdout.readline())
        except BaseException:
            _ip("netns", "del", self._name)
            raise

    def fail(self) -> None:
        """Let the namespace forget the way back."""
        _ip("-n", self._name, "route", "add", "blackhole", f"{self._near}/32")

    def restore(self) -> None:
        """Let it find the way again."""
        _ip("-n", self._name, "route", "del", "blackhole", f"{self._near}/32")

    def close(self) -> None:
        """Remove the namespace, and the cable with it."""
        self._proxy.communicate()
        _ip("netns", "del", self._name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


LINKS = {"refuse": RefusingLink, "silence": SilentLink, "blackhole": BlackHole}
