"""A child process that is killed and started again, and the activity in its log when it died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .history import read_log

WAIT_SECONDS = 60.0
STOP_SECONDS = 90.0
POLL_SECONDS = 0.0002
ROOT = Path(__file__).parent.parent
CALLS = {  # the last line of a log whose process was in the middle of a call
    "submitting", "cancelling", "claiming", "extending", "taking_over", "settling", "reclaiming", "reviving",
}  # fmt: skip


class Child:
    """A submitter, a claimer or a worker."""

    def __init__(
        self,
        role: str,
        name: str,
        folder: Path,
        numbers: tuple[int, ...],
        module: str = "chaos.actors",
        url: str | None = None,
    ) -> None:
        self.role = role
        self.name = name
        self.log = folder / f"{name}.log"
        self._errors = folder / f"{name}.err"
        arguments = (role, name, str(folder), *map(str, numbers), *([url] if url else []))
        self._command = [sys.executable, "-m", module, *arguments]
        self._process: subprocess.Popen[bytes]
        self._size = 0
        self.start()

    def start(self) -> None:
        """Start it, or start it again."""
        self._size = self.log.stat().st_size if self.log.exists() else 0
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=errors)

    def wait_for_work(self) -> None:
        """Wait until it has written to its log."""
        self._wait_until(lambda: self.log.exists() and self.log.stat().st_size > self._size)

    def wait_for_call(self, call: str) -> None:
        """Wait until it is in the middle of that call."""
        self._wait_until(lambda: self._last_word() == call)

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition() and self._process.poll() is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} did nothing for {WAIT_SECONDS:g} s: {self._last_errors()}")
            time.sleep(POLL_SECONDS)

    def _last_word(self) -> str:
        """Return the first word of the log's last line, without reading the whole log."""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 4096))
            last = log.read().rstrip(b"\n").rpartition(b"\n")[2]
        return last.split(b'"')[1].decode() if last.startswith(b'["') else ""

    def last_activity(self) -> str:
        """Describe what it was doing when it died."""
        past = read_log(self.log)
        word = str(past[-1][0]) if past else "starting"
        if word in CALLS:
            return word
        return "holding claims" if word in {"claimed", "extended", "taken_over"} else "between calls"

    @property
    def pid(self) -> int:
        """The id of the current process."""
        return self._process.pid

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def stop(self) -> float:
        """Send SIGTERM; return how many seconds it took to end. One that does not end is killed."""
        began_at = time.monotonic()
        self.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        seconds = time.monotonic() - began_at
        self.kill()
        return seconds

    def freeze(self) -> None:
        """Send SIGSTOP."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT."""
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL and wait."""
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def unexpected_exit(self) -> str | None:
        """Return a problem if it exited although it was not killed."""
        code = self._process.poll()
        return None if code is None else f"{self.name} exited unexpectedly with {code}: {self._last_errors()}"

    def wait_for_exit(self) -> str | None:
        """Wait until it exits; return a problem if its exit code is not 0."""
        code = self._process.wait(WAIT_SECONDS)
        return None if code == 0 else f"{self.name} exited with {code}: {self._last_errors()}"

    def _last_errors(self) -> str:
        return self._errors.read_text(encoding="utf-8").strip()[-500:]
