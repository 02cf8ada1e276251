"""Runs the service: one process that serves HTTP, one worker process, and an orderly stop.

Laws:
- Loopback by default; elsewhere only with TLS, or behind a proxy that has it. A certificate that cannot be used is refused
  before anything is opened, and there is no prompt for a password: the service may run without a terminal.
- SIGTERM: no new connections, streams end, active requests get their responses, the worker releases what it has claimed.
- All of that within `stop_seconds`, also while the store is away: nothing waits for a call that hangs.
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
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import uvicorn

from fairlane.core.errors import Mistake
from fairlane.file_modes import warn_if_open
from fairlane.queue import Queue
from fairlane.tracing import open_spans

from .app import make_app
from .connection_limits import LimitedConnection, limited_protocol
from .extension import Extension
from .file_limit import fit_to_open_files
from .limits import ServiceLimits
from .listener import Listener
from .logging import Log
from .service import Options, Service
from .worker_process import WorkerSupervisor

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
PROXY_NEEDED = (
    "--trusted-proxy with the proxy's address: until then its clients have that address, here and for limits by address"
)
TLS_REASONS = {"KEY_VALUES_MISMATCH": "the key does not belong to the certificate"}
RESPONSES_SHARE = 0.8  # of the time to stop is for responses in progress; the rest is for closing
LOG_TICKS = 10  # of a tenth of a second, after which lines that are kept are written
SWITCH_SECONDS = 0.001  # that a thread with much to do, such as a search, may keep the event loop waiting; Python's own: 5 ms
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
    warn_if_open(address.certificate_key or address.certificate, "the key of the certificate")
    return context


class _Server(uvicorn.Server):
    """Ends streams and the worker when it stops, and says when it is ready."""

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        tls: ssl.SSLContext | None,
        ready: Callable[[], None],
        worker: WorkerSupervisor | None,
    ) -> None:
        super().__init__(config)
        self._service = service
        self._tls = tls
        self._ready = ready
        self._worker = worker
        self._listeners: list[Listener] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])  # the sockets are ours
        if not self.started:
            return
        service = self._service
        for listening in sockets or ():
            listener = Listener(
                listening, self._connection, service.connections, service.stranger_group, service.addresses,
                service.limits, self._tls, service.log,
            )  # fmt: skip
            listener.start()
            self._listeners.append(listener)
        self._ready()

    def _connection(self) -> LimitedConnection:
        connection: LimitedConnection = self.config.http_protocol_class(  # type: ignore[call-arg, assignment]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return connection

    async def on_tick(self, counter: int) -> bool:
        if counter % LOG_TICKS == 0:
            self._service.log.flush()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in self._listeners:
            listener.close()
        self._service.stop()
        if self._worker is not None:
            self._worker.stop()
        await super().shutdown([])

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM; uvicorn's own method would raise the signal again, and the exit code would not be 0."""
        previous = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _fitted(limits: ServiceLimits, log: Log) -> ServiceLimits:
    """Return the limits that the system's open files allow, and log it if they are lower."""
    fitted = fit_to_open_files(limits)
    if fitted.is_lowered:
        connections = fitted.limits.connections
        log.event("few open files", files=fitted.files, needed=fitted.files_needed, connections=connections, set="ulimit -n")
    return fitted.limits


def serve(
    queue: Queue,
    options: Options,
    address: ListenAddress,
    listening: socket.socket,
    ready: Callable[[], None],
    extend: Callable[[Service], Extension],
    log: Log,
) -> None:
    """Serve until SIGTERM or SIGINT."""
    sys.setswitchinterval(SWITCH_SECONDS)
    context, stop_seconds = tls_context(address), options.limits.stop_seconds
    options = replace(options, limits=_fitted(options.limits, log))
    if address.behind_proxy and not options.proxies:
        log.event("proxy not named", needed=PROXY_NEEDED)
    service = Service(queue, options, log)
    service.spans = open_spans(os.environ, lambda reason: log.event("untraced", reason=reason))
    config = uvicorn.Config(
        make_app(service, extend(service)),
        loop="uvloop",
        http=limited_protocol(service, is_tls=context is not None),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        headers=HEADERS,
        timeout_keep_alive=options.limits.idle_seconds,
        timeout_graceful_shutdown=max(1, int(RESPONSES_SHARE * stop_seconds)),
    )
    worker = None if options.worker is None else WorkerSupervisor(options.worker, log, service.store, stop_seconds)
    server = _Server(config, service, context, ready, worker)
    gc.freeze()  # modules and their objects live as long as the process
    gc.set_threshold(*GC_THRESHOLDS)

    async def run_with_worker() -> None:
        running = None if worker is None else asyncio.create_task(worker.run())
        try:
            await server.serve([listening])
        finally:
            if worker is not None and running is not None:
                worker.stop()
                await running

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(run_with_worker())
    if service.spans is not None:
        service.spans.close()
    log.event("stopped")
    log.flush()
