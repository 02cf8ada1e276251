"""A network that fails on demand: a TCP proxy that refuses, falls silent, delays, or cuts after the server has answered.

As `python -m chaos.proxy HOST UPSTREAM` it only passes bytes on; it prints its port, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

CHUNK = 1 << 16
T = TypeVar("T")


class FaultyProxy:
    """Passes bytes between clients and a server on this machine: its port, or the path of its socket."""

    def __init__(self, upstream: int | Path, host: str = "127.0.0.1") -> None:
        self._upstream = upstream
        self.host = host
        self._pipes: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Server | None = None
        self._is_swallowing = False
        self._then: Callable[[], object] = lambda: None
        self._delay = 0.0
        self.swallowed = 0
        self._loop = asyncio.new_event_loop()
        self._flows = asyncio.Event()
        self._flows.set()
        with socket.create_server((host, 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._run(self._listen())

    def __enter__(self) -> FaultyProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)

    # -- faults ------------------------------------------------------------------------------------------------------------

    def refuse(self) -> None:
        """Cut every connection and refuse new ones, as a machine without the server does."""
        self._run(self._stop_listening())

    def freeze(self) -> None:
        """Pass nothing on: connections stay open and silent, new ones are accepted and get no response."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def forget(self) -> None:
        """Leave every connection open and silent for ever, as a firewall that lost its table does; new ones work."""
        self.freeze()
        self._flows = asyncio.Event()
        self._loop.call_soon_threadsafe(self._flows.set)

    def delay(self, seconds: float) -> None:
        """Hold each piece of data for a while, in both directions."""
        self._delay = seconds

    def swallow(self, then: Callable[[], object] = lambda: None) -> None:
        """Lose the next reply: call `then` when the server has sent it, and cut its connection."""
        self._then, self._is_swallowing = then, True

    def restore(self) -> None:
        """End every fault; what was held back is passed on."""
        self._delay = 0.0
        self._loop.call_soon_threadsafe(self._flows.set)
        self._run(self._listen())

    def cut(self) -> None:
        """Cut every connection."""
        self._run(self._cut())

    def close(self) -> None:
        self._run(self._stop_listening())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- connections -------------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        if self._listening is None:
            self._listening = await asyncio.start_server(self._serve, self.host, self.port, backlog=512)

    async def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        await self._cut()

    async def _cut(self) -> None:
        pipes = list(self._pipes)
        for pipe in pipes:
            pipe.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        pipe = asyncio.current_task()
        assert pipe is not None
        self._pipes.add(pipe)
        writers = [to_client]
        try:
            flows = self._flows
            await flows.wait()
            from_server, to_server = await self._connect()
            writers.append(to_server)
            forth = asyncio.create_task(self._pass(from_client, to_server, flows))
            back = asyncio.create_task(self._pass(from_server, to_client, flows, is_reply=True))
            try:
                await asyncio.wait({forth, back}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                forth.cancel()
                back.cancel()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for writer in writers:
                writer.transport.abort()
            self._pipes.discard(pipe)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._upstream, int):
            return await asyncio.open_connection("127.0.0.1", self._upstream)
        return await asyncio.open_unix_connection(str(self._upstream))

    async def _pass(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, flows: asyncio.Event, is_reply: bool = False
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await source.read(CHUNK):
                if self._delay:
                    await asyncio.sleep(self._delay)
                await flows.wait()
                if is_reply and self._is_swallowing:
                    self._is_swallowing = False
                    self.swallowed += 1
                    await asyncio.to_thread(self._then)
                    return
                target.write(chunk)
                await target.drain()


def main() -> None:
    host, upstream = sys.argv[1:]
    with FaultyProxy(Path(upstream), host) as proxy:
        print(proxy.port, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
