"""Runs the service: one process that serves HTTP, one worker process, and an orderly stop.

Laws:
- Loopback by default; elsewhere only with TLS, or behind a proxy that has it. A certificate that cannot be used is refused
  before anything is opened, and there is no prompt for a password: the service may run without a terminal.
- SIGTERM: no new connections, streams end, active requests get their responses, the worker releases what it has claimed.
- The worker is a process of its own, so that a document that breaks it does not break the service. It is started again when
  it ends, with a growing pause, and it ends with the service, by kill -9 too.
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
from .connection_limits import limited_protocol
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
RESTART_FIRST_SECONDS, RESTART_MAX_SECONDS = 0.5, 30.0
HEALTHY_SECONDS = 60.0  # a worker that ran for so long is started again without a longer pause
WORKER_STOP_SECONDS = 45.0
GC_THRESHOLDS = (20_000, 20, 50)  # cycles are rare here: Python's own thresholds would take a tenth of the time


class ListenAddress(NamedTuple):
    """Where to listen, and with which certificate."""

    host: str = "127.0.0.1"
    port: int = 8000
    certificate: str | None = None
    certificate_key: str | None = None
    behind_proxy: bool = False

    def url(self, port: int) -> str:
        """Return the URL of the service on the port that was bound."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{port}"


def bind(address: ListenAddress) -> socket.socket:
    """Open the socket to listen on; refused if keys would cross a network in the clear."""
    tls_context(address)
    is_loopback = address.host == "localhost"
    with contextlib.suppress(ValueError):
        is_loopback = ipaddress.ip_address(address.host).is_loopback
    if not is_loopback and address.certificate is None and not address.behind_proxy:
        raise Mistake(
            f"{address.host} can be reached by others, and keys would cross the network in the clear; give --tls-certificate "
            "and --tls-key, or --behind-proxy if something in front of it has TLS"
        )
    try:
        family, _, _, _, sockaddr = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(sockaddr)
    except OSError as error:
        raise Mistake(f"cannot listen on {address.host} port {address.port}: {error.strerror}; choose another --port") from None
    return listening


def tls_context(address: ListenAddress) -> ssl.SSLContext | None:
    """Load the certificate and its key; None: serve without TLS."""
    if address.certificate is None:
        if address.certificate_key is not None:
            raise Mistake("--tls-key is given without --tls-certificate; give both, or neither")
        return None

    def no_password() -> str:
        raise Mistake(
            f"the key in {address.certificate_key or address.certificate} has a password; give --tls-key a key without one"
        )

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(address.certificate, address.certificate_key, no_password)
    except OSError as error:  # an SSLError is one
        reason = (
            error.strerror if not isinstance(error, ssl.SSLError) else TLS_REASONS.get(error.reason, "they are not valid PEM")
        )
        files = f"certificate {address.certificate} and key {address.certificate_key or address.certificate}"
        raise Mistake(
            f"cannot serve TLS with {files}: {reason}; give PEM files: the certificate with its chain, and its key"
        ) from None
    return context


class _Server(uvicorn.Server):
    """Ends streams when it stops, and says when it is ready."""

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
    address: ListenAddress,
    listening: socket.socket,
    ready: Callable[[], None],
    extend: Callable[[Service], Extension],
) -> None:
    """Serve until SIGTERM or SIGINT."""
    log, context = Log(), tls_context(address)
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
    gc.freeze()  # modules and their objects live as long as the process
    gc.set_threshold(*GC_THRESHOLDS)

    async def run_with_worker() -> None:
        worker = asyncio.create_task(_run_worker(options.worker, log)) if options.worker is not None else None
        try:
            await server.serve([listening])
        finally:
            if worker is not None:
                worker.cancel()
                await asyncio.gather(worker, return_exceptions=True)

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(run_with_worker())
    if service.spans is not None:
        service.spans.close()
    log.event("stopped")
    log.flush()


async def _run_worker(worker: WorkerProcess, log: Log) -> None:
    """Run the worker, and start it again whenever it ends, until cancelled."""
    pause = RESTART_FIRST_SECONDS
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
            await _stop_process(process)
            log.event("worker stopped", pid=process.pid)
            raise
        pause = RESTART_FIRST_SECONDS if time.monotonic() - began > HEALTHY_SECONDS else min(RESTART_MAX_SECONDS, pause * 2)
        log.event("worker ended", pid=process.pid, code=code, again_in=pause)
        await asyncio.sleep(pause)


async def _stop_process(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(WORKER_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def worker_command(url: str, blobs: str | None, slots: int | None) -> WorkerProcess:
    """Return the built-in worker of this queue; its URL may hold a password, so it is passed in the environment."""
    environment = {name: value for name, value in os.environ.items() if name != "FAIRLANE_SERVER"}
    environment |= {"FAIRLANE_URL": url} | ({} if blobs is None else {"FAIRLANE_BLOBS": blobs})
    options = () if slots is None else ("--slots", str(slots))
    return WorkerProcess((sys.executable, "-m", "fairlane.cli", "work", "--json", *options), environment)
