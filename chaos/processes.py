"""A process that is killed and started again, and what its log tells about the moment it died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from .history import lines

WAIT_SECONDS = 60.0
POLL_SECONDS = 0.0002
HERE = Path(__file__).parent.parent
CALLS = {  # the last line of a log when its process was in the middle of a call
    "submitting", "cancelling", "claiming", "extending", "settling", "reclaiming", "reviving",
}  # fmt: skip


class Child:
    """A submitter or a claimer."""

    def __init__(self, role: str, name: str, folder: Path, numbers: tuple[int, ...]) -> None:
        self.role = role
        self.name = name
        self.log = folder / f"{name}.log"
        self._errors = folder / f"{name}.err"
        self._command = [sys.executable, "-m", "chaos.actors", role, name, str(folder), *map(str, numbers)]
        self._process: subprocess.Popen[bytes]
        self._size = 0
        self.start()

    def start(self) -> None:
        """Start it, or start it again."""
        self._size = self.log.stat().st_size if self.log.exists() else 0
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(self._command, cwd=HERE, stdin=subprocess.DEVNULL, stderr=errors)

    def await_work(self) -> None:
        """Until it has written to its log."""
        self._await(lambda: self.log.exists() and self.log.stat().st_size > self._size)

    def await_more(self) -> None:
        """Until it has written more to its log than it has now."""
        size = self.log.stat().st_size if self.log.exists() else 0
        self._await(lambda: self.log.exists() and self.log.stat().st_size > size)

    def await_moment(self, moment: str) -> None:
        """Until it is in the middle of that call."""
        self._await(lambda: self._last_word() == moment)

    def _await(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not holds() and self._process.poll() is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} did nothing for {WAIT_SECONDS:g} s: {self._told()}")
            time.sleep(POLL_SECONDS)

    def _last_word(self) -> str:
        """The first word of the log's last line, cheaply."""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 4096))
            last = log.read().rstrip(b"\n").rpartition(b"\n")[2]
        return last.split(b'"')[1].decode() if last.startswith(b'["') else ""

    def moment(self) -> str:
        """What it was doing when it died."""
        past = lines(self.log)
        word = str(past[-1][0]) if past else "starting"
        if word in CALLS:
            return word
        return "holding claims" if word in {"claimed", "extended"} else "between calls"

    def kill(self) -> None:
        """kill -9."""
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def ended_by_itself(self) -> str | None:
        """What is wrong if it is not running although nobody killed it."""
        code = self._process.poll()
        return None if code is None else f"{self.name} ended by itself with {code}: {self._told()}"

    def end(self) -> str | None:
        """Let it stop; says what is wrong if it could not."""
        code = self._process.wait(WAIT_SECONDS)
        return None if code == 0 else f"{self.name} ended with {code}: {self._told()}"

    def _told(self) -> str:
        return self._errors.read_text(encoding="utf-8").strip()[-500:]
