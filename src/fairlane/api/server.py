"""How is the service run? One process that answers, one that works, and an end in good order.

Laws:
- Loopback unless asked; elsewhere only with TLS, or behind something that has it. A certificate that cannot be used is told
  before anything is opened; nobody is asked for a password, as nobody may be there.
- SIGTERM: no new connections, streams end, what is being answered is answered, the worker gives back what it has.
- The worker is a process of its own: what a document does to it, it does not do to the service. It is begun again when it
  ends, with a growing pause, and it ends with the service, by kill -9 too.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import uvicorn

from fairlane.core.errors import Mistake
from fairlane.procs.syscalls import die_with_parent
from fairlane.queue import Queue
from fairlane.tracing import open_spans

from .app import make_app
from .connection import limited_protocol
from .extension import Extension
from .logging import Log
from .service import Options, Service, WorkerProcess

CONTENT_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = [
    ("x-content-type-options", "nosniff"),
    ("content-security-policy", CONTENT_POLICY),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), microphone=(), geolocation=()"),
]
TLS_REASONS = {"KEY_VALUES_MISMATCH": "the key does not belong to the certificate"}
PAUSE_FIRST_SECONDS, PAUSE_MAX_SECONDS, LIVED_SECONDS = 0.5, 30.0, 60.0
WORKER_STOP_SECONDS = 45.0
COLLECTED = (20_000, 20, 50)  # circles are rare here: looking for them as often as usual takes a tenth of the time


class Place(NamedTuple):
    """Where to listen."""

    host: str = "127.0.0.1"
    port: int = 8000
    certificate: str | None = None
    certificate_key: str | None = None
    behind_proxy: bool = False


def bound(place: Place) -> socket.socket:
    """The socket to listen on; refused if keys would cross a network in the clear."""
    tls_of(place)
    is_loopback = place.host == "localhost"
    with contextlib.suppress(ValueError):
        is_loopback = ipaddress.ip_address(place.host).is_loopback
    if not is_loopback and place.certificate is None and not place.behind_proxy:
        raise Mistake(
            f"{place.host} can be reached by others, and keys would cross the network in the clear; give --tls-certificate and "
            "--tls-key, or --behind-proxy if something in front of it has TLS"
        )
    try:
        family, _, _, _, address = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise Mistake(f"cannot listen on {place.host} port {place.port}: {error.strerror}; choose another --port") from None
    return listening


def tls_of(place: Place) -> ssl.SSLContext | None:
    """What to answer with TLS with; None: without it."""
    if place.certificate is None:
        if place.certificate_key is not None:
            raise Mistake("--tls-key is given without --tls-certificate; give both, or neither")
        return None

    def no_password() -> str:
        raise Mistake(
            f"the key in {place.certificate_key or place.certificate} has a password; give --tls-key a key without one"
        )

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(place.certificate, place.certificate_key, no_password)
    except OSError as error:  # an SSLError is one
        told = error.strerror if not isinstance(error, ssl.SSLError) else TLS_REASONS.get(error.reason, "they are not that")
        files = f"certificate {place.certificate} and key {place.certificate_key or place.certificate}"
        raise Mistake(
            f"TLS cannot be answered with {files}: {told}; give PEM files: the certificate with its chain, and its key"
        ) from None
    return context


class _Server(uvicorn.Server):
    """Lets streams and the worker end with it."""

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._service = service
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM; uvicorn's own method would raise the signal again, and the exit code would not be 0."""
        previous = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def serve(
    queue: Queue,
    options: Options,
    place: Place,
    listening: socket.socket,
    ready: Callable[[], None],
    extend: Callable[[Service], Extension],
) -> None:
    """Answer until SIGTERM or SIGINT."""
    log, context = Log(), tls_of(place)
    log.listen("uvicorn", "asyncio")
    service = Service(queue, options, log)
    service.spans = open_spans(os.environ, lambda reason: log.event("untraced", reason=reason))
    config = uvicorn.Config(
        make_app(service, extend(service)),
        loop="uvloop",
        http=limited_protocol(options.limits),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        headers=HEADERS,
        timeout_keep_alive=options.limits.idle_seconds,
        timeout_graceful_shutdown=options.limits.stop_seconds,
        ssl_context_factory=None if context is None else lambda *_: context,
        backlog=2048,
    )
    server = _Server(config, service, ready)
    gc.freeze()  # what is loaded stays
    gc.set_threshold(*COLLECTED)

    async def both() -> None:
        working = asyncio.create_task(_keep_working(options.worker, log)) if options.worker is not None else None
        try:
            await server.serve([listening])
        finally:
            if working is not None:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(both())
    if service.spans is not None:
        service.spans.close()
    log.event("stopped")
    log.flush()


async def _keep_working(worker: WorkerProcess, log: Log) -> None:
    """A worker that is begun again when it ends, until cancelled."""
    pause = PAUSE_FIRST_SECONDS
    parent = os.getpid()

    def before_exec() -> None:
        if not die_with_parent(parent, signal.SIGTERM):
            os._exit(1)

    while True:
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *worker.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            env=worker.environment,
            preexec_fn=before_exec,
        )
        log.event("worker started", pid=process.pid)
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            log.event("worker stopped", pid=process.pid)
            raise
        pause = PAUSE_FIRST_SECONDS if time.monotonic() - began > LIVED_SECONDS else min(PAUSE_MAX_SECONDS, pause * 2)
        log.event("worker ended", pid=process.pid, code=code, again_in=pause)
        await asyncio.sleep(pause)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(WORKER_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def worker_of(url: str, blobs: str | None, slots: int | None) -> WorkerProcess:
    """The built-in worker, on this queue; where that is may hold a password, so it is not told where every user can read it."""
    environment = {name: value for name, value in os.environ.items() if name != "FAIRLANE_SERVER"}
    environment |= {"FAIRLANE_URL": url} | ({} if blobs is None else {"FAIRLANE_BLOBS": blobs})
    told = () if slots is None else ("--slots", str(slots))
    return WorkerProcess((sys.executable, "-m", "fairlane.cli", "work", "--json", *told), environment)
