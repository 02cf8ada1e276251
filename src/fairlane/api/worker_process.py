"""The worker beside the service: a process of its own, started again when it ends, and stopped with the service.

Laws:
- A document that breaks the worker does not break the service. The worker ends with the service, by kill -9 too.
- It is started again with a growing pause; one that ended while the store was away is started as soon as the store is back.
- It stops within the time that the service has: SIGTERM, then a second one, after which it releases what it has, then SIGKILL.
- What it prints becomes lines of the service's log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from typing import Any, NamedTuple

from fairlane.procs.python import python_command
from fairlane.procs.syscalls import die_with_parent
from fairlane.settings import Settings

from .logging import Log
from .store_calls import StoreCalls

RESTART_FIRST_SECONDS, RESTART_MAX_SECONDS = 0.5, 30.0
HEALTHY_SECONDS = 60.0  # a worker that ran for so long is started again without a longer pause
STOP_SHARES = ((signal.SIGTERM, 0.5), (signal.SIGTERM, 0.3))  # of the time; the second signal gives everything back at once
OUTPUT_SECONDS = 1.0  # for the last output of a worker that has ended
LINE_BYTES_MAX = 16 * 1024
UNLOGGED_EVENTS = ("started", "finished", "stopping", "summary")  # that go well


class WorkerProcess(NamedTuple):
    """The command that starts the worker, and its environment."""

    command: tuple[str, ...]
    environment: dict[str, str]


def worker_command(settings: Settings, slots: int | None) -> WorkerProcess:
    """Return the built-in worker of this queue; its URL may hold a password, so it is passed in the environment."""
    environment = {name: value for name, value in os.environ.items() if name != "FAIRLANE_SERVER"}
    environment |= {"FAIRLANE_URL": settings.url} | ({} if settings.blobs is None else {"FAIRLANE_BLOBS": settings.blobs})
    options = () if slots is None else ("--slots", str(slots))
    unsafe = ("--unsafe-files-may-read-everything",) if settings.unsafe_files_may_read_everything else ()
    return WorkerProcess((*python_command("fairlane.cli"), "work", "--json", *options, *unsafe), environment)


class WorkerSupervisor:
    """Runs the worker until it is stopped."""

    def __init__(self, worker: WorkerProcess, log: Log, store: StoreCalls, stop_seconds: float) -> None:
        self._worker = worker
        self._log = log
        self._store = store
        self._stop_seconds = stop_seconds
        self._is_stopping = asyncio.Event()

    def stop(self) -> None:
        """Begin to stop the worker."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Run the worker, and start it again whenever it ends, until stopped."""
        pause = RESTART_FIRST_SECONDS
        while not self._is_stopping.is_set():
            began = time.monotonic()
            process, output = await self._start()
            exited = asyncio.ensure_future(process.wait())
            await self._unless_stopping(exited)
            if not exited.done():
                await self._end(process, exited)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(OUTPUT_SECONDS):
                    await output.is_closed.wait()
            output.close()
            if self._is_stopping.is_set():
                self._log.event("worker stopped", pid=process.pid)
                return
            is_excused = time.monotonic() - began > HEALTHY_SECONDS or self._store.was_away_since(began)
            pause = RESTART_FIRST_SECONDS if is_excused else min(RESTART_MAX_SECONDS, pause * 2)
            self._log.event("worker ended", pid=process.pid, code=exited.result(), again_in=pause)
            await self._unless_stopping(asyncio.ensure_future(asyncio.sleep(pause)))
            await self._unless_stopping(asyncio.ensure_future(self._store.until_back()))

    async def _unless_stopping(self, event: asyncio.Future[Any]) -> None:
        """Wait for an event, or until the worker is to stop."""
        stopping = asyncio.ensure_future(self._is_stopping.wait())
        await asyncio.wait([event, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()

    async def _start(self) -> tuple[asyncio.subprocess.Process, OutputLines]:
        parent = os.getpid()

        def before_exec() -> None:
            if not die_with_parent(parent, signal.SIGTERM):
                os._exit(1)

        # A pipe of our own: asyncio would wait for the end of its pipes, which processes of the worker may hold open.
        read_end, write_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._worker.command, stdin=asyncio.subprocess.DEVNULL, stdout=write_end, stderr=write_end,
                env=self._worker.environment, preexec_fn=before_exec,
            )  # fmt: skip
        finally:
            os.close(write_end)
        output = OutputLines(self._log, process.pid, self._store)
        await asyncio.get_running_loop().connect_read_pipe(lambda: output, os.fdopen(read_end, "rb", buffering=0))
        self._log.event("worker started", pid=process.pid)
        return process, output

    async def _end(self, process: asyncio.subprocess.Process, exited: asyncio.Future[int]) -> None:
        for number, share in STOP_SHARES:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
            if (await asyncio.wait([exited], timeout=share * self._stop_seconds))[0]:
                return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await exited


class OutputLines(asyncio.Protocol):
    """What a worker prints, line by line into the log; its own events are JSON already."""

    def __init__(self, log: Log, pid: int, store: StoreCalls) -> None:
        self._log = log
        self._pid = pid
        self._store = store
        self._buffer = bytearray()
        self._transport: asyncio.BaseTransport | None = None
        self.is_closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        *lines, rest = self._buffer.split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            lines, rest = [*lines, rest], bytearray()
        self._buffer = rest
        for line in lines:
            self._log_line(line)

    def connection_lost(self, _: Exception | None) -> None:
        self._log_line(self._buffer)
        self._buffer.clear()
        self.is_closed.set()

    def _log_line(self, line: bytearray) -> None:
        text = line[:LINE_BYTES_MAX].decode("utf-8", "replace").strip()
        if not text:
            return
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = text
        event = said.get("event") if isinstance(said, dict) else None
        is_known = event == "store_failed" and self._store.is_away  # it is in the log once
        if event not in UNLOGGED_EVENTS and not is_known:
            self._log.event("worker", pid=self._pid, said=said)

    def close(self) -> None:
        """Read no more."""
        if self._transport is not None:
            self._transport.close()
