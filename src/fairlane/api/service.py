"""The object that all routes share: the queue, threads for calls of the store, keys, the feed, limits and background tasks.

Laws:
- The event loop never waits for the store: every call of it goes through `call`, on a thread.
- A request that waits for something to happen (an ending, an event) does not count as an active request.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from fairlane.api.access.batches import forget_batches
from fairlane.api.access.customer import refuse_cost
from fairlane.core.document import ChangeRow
from fairlane.core.errors import FairlaneError, StoreError, StoreUnreachable, Unknown
from fairlane.queue import DEFAULT_KIND, FILE_KIND, Progress, Queue
from fairlane.queue.audit import RETENTION_SECONDS, purge_audit
from fairlane.queue.history import newest
from fairlane.queue.workers import remove_gone

from .auth import Caller, Keyring, public_part
from .client_address import TrustedProxies, address_group
from .connection_table import ConnectionTable
from .cors import UploadOrigins
from .cursors import Cursors
from .extension import Extension
from .feed import Feed
from .key_expiry import ending_keys
from .key_uses import KeyUses
from .limits import ServiceLimits
from .logging import Log
from .metrics import Metrics
from .problems import Problem, problem_of
from .readiness import Readiness
from .shares import HOLDER, SLOT, RequestSlot, Share
from .sign_ins import SignIns
from .store_calls import StoreCalls
from .submit_batcher import Accepted, SubmitBatcher
from .token_buckets import TokenBuckets
from .upload_tokens import identify, remove_expired
from .webhook_deliveries import forget_failures
from .webhook_sender import WebhookSender
from .worker_process import WorkerProcess

if TYPE_CHECKING:
    from fairlane.tracing.spans import Spans

PROGRESS_SECONDS = 1.0
CAPACITY_SECONDS, CAPACITY_PAUSES = 3.0, 20  # a pause lasts so long, and at least so many times the measurement before it
TIDY_EVERY = 200  # measurements: the records of workers that are long gone are removed
AUDIT_PURGE_SECONDS = 3600.0
FLUSH_SECONDS = 1.0
KEY_WARNING_SECONDS = 86_400.0
TOKENS_SECONDS = 3600.0
TOKENS_BURST_SECONDS = 10  # upload tokens of so many seconds may be made at once
PROGRESS_MAX = 256  # documents whose progress is sent
FORBIDDEN_KIND = "folder"  # its payload names a path on the worker's disk


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of one service."""

    limits: ServiceLimits = field(default_factory=ServiceLimits)
    kinds: tuple[str, ...] = ()  # that customers may submit besides the default ones
    retention_seconds: float | None = None  # ended documents are purged after this long
    audit_seconds: float | None = RETENTION_SECONDS  # entries of the audit log are deleted after this long
    allow_private_webhooks: bool = False  # those that an operator set
    worker: WorkerProcess | None = None  # None: workers run elsewhere
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    upload_origins: UploadOrigins = field(default_factory=UploadOrigins)


class Service:
    """Everything that runs while the server runs."""

    def __init__(self, queue: Queue, options: Options, log: Log) -> None:
        self.queue = queue
        self.store_url = queue.url
        self.options = options
        self.limits = options.limits
        self.kinds = tuple(dict.fromkeys((FILE_KIND, DEFAULT_KIND, *options.kinds)))  # that customers may submit
        self.log = log
        self.extension = Extension()
        self.keyring = Keyring(queue.engine)
        self._open_shares()
        self.store = StoreCalls(queue.engine.rules, log, self.limits)
        self.call, self.search = self.store.call, self.store.search
        self.batcher = SubmitBatcher(
            queue.engine,
            self.store.call_in_order,
            self.limits.submissions_at_once,
            self._on_accepted,
        )
        self.cursors = Cursors(queue.engine)
        self.sign_ins = SignIns(queue.engine, self.call)
        self.key_uses = KeyUses(queue.engine, self.call)
        self.feed = Feed(queue.engine, self.call, self.cursors)
        self.metrics = Metrics(queue, self.call)
        self.feed.listeners += [self.metrics.on_changes, self._on_changes]
        self._webhooks = WebhookSender(
            queue.engine, self.call, log, self.metrics, options.limits, options.allow_private_webhooks
        )
        self.connections = ConnectionTable(self.limits.connections, self.limits.connections_an_address)
        self.readiness = Readiness(self)
        self.is_stopping = False
        self.closing: list[Callable[[], None]] = []  # called when the service has stopped
        self.spans: Spans | None = None  # None: no tracing
        self._tasks: list[asyncio.Task[None]] = []

    def _open_shares(self) -> None:
        limits = self.limits
        self.rate_limiter = TokenBuckets(limits.requests_a_second, limits.requests_burst)  # by caller
        self.addresses = TokenBuckets(
            limits.strangers_a_second, limits.strangers_burst
        )  # by address, of requests without a key
        tokens_a_second = limits.upload_tokens_a_second
        self.token_limiter = TokenBuckets(tokens_a_second, TOKENS_BURST_SECONDS * tokens_a_second)  # by customer
        self.requests = Share("requests", limits.requests_at_once, limits.requests_a_customer)
        self.waiting = Share("waiting requests and streams", limits.connections, limits.waiting_a_customer, retry_after=5)
        self.open_requests = Share("requests without a key", limits.open_requests_at_once, limits.open_requests_at_once)

    def trace(self, headers: dict[bytes, bytes], began: int, accepted: Iterable[Accepted]) -> None:
        """Emit a span for each document that was submitted; `began` is in nanoseconds."""
        if self.spans is None:
            return
        from fairlane.tracing.spans import SpanSubject

        ended, parent = time.time_ns(), headers.get(b"traceparent")
        for document in accepted:
            if not document.is_repeat:
                receipt = document.receipt
                described = SpanSubject(receipt.id, receipt.customer, receipt.priority)
                self.spans.submitted(described, began, ended, None if parent is None else parent.decode("latin-1"))

    def _on_accepted(self, accepted: Accepted) -> None:
        if not accepted.is_repeat:
            self.metrics.on_accepted(accepted)
            self.extension.on_accepted(accepted)

    async def _on_changes(self, changes: list[ChangeRow]) -> None:
        await self.extension.on_changes(changes)

    # -- running -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the background tasks."""
        self._tasks = [asyncio.create_task(self._run_for_ever("store", self.store.watch))]
        last = await self.call(newest, self.queue.engine)
        await self.metrics.start()
        self._tasks += [
            asyncio.create_task(self._run_for_ever("feed", lambda: self.feed.run(last))),
            asyncio.create_task(self._run_for_ever("webhooks", self._webhooks.run)),
            asyncio.create_task(self._run_for_ever("upkeep", self._purge)),
            asyncio.create_task(self._run_for_ever("progress", self._report_progress)),
            asyncio.create_task(self._run_for_ever("capacity", self._measure_capacity)),
            asyncio.create_task(self._run_for_ever("sign-ins", self.sign_ins.run)),
            asyncio.create_task(self._run_for_ever("audit", self._purge_audit)),
            asyncio.create_task(self._run_for_ever("key uses", self.key_uses.run)),
            asyncio.create_task(self._run_for_ever("key expiry", self._warn_of_ending_keys)),
            asyncio.create_task(self._run_for_ever("extension", self.extension.run)),
            asyncio.create_task(self._run_for_ever("upload tokens", self._remove_expired_tokens)),
        ]

    def stop(self) -> None:
        """End streams and waiting requests: the server stops."""
        self.is_stopping = True
        self.feed.stop()
        self.extension.stop()

    async def close(self) -> None:
        """Stop the tasks and threads."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._flush()
        await self._webhooks.close()
        for close in self.closing:
            close()
        self.store.close()

    async def _run_for_ever(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Start a task again whenever it fails."""
        while True:
            try:
                await run()
            except StoreError as error:
                self.log_store_error(error)
                await asyncio.sleep(1)
                await self.store.until_back()
            except Exception as error:  # noqa: BLE001 a task that fails must not end the server, nor itself for good
                self.log.failed(name, error)
                await asyncio.sleep(1)

    async def _report_progress(self) -> None:
        """While somebody watches events, send what handlers report of documents that run."""
        sent: dict[str, Progress] = {}
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            running = self.metrics.running(PROGRESS_MAX) if self.feed.watchers else []
            reported = await self.call(_progress_of, self.queue, running) if running else {}
            for (id, customer), progress in reported.items():
                if sent.get(id) != progress:
                    self.feed.send_progress(customer, id, {"progress": progress.progress, "attempt": progress.attempt})
            sent = {id: progress for (id, _), progress in reported.items()}

    async def _measure_capacity(self) -> None:
        """Measure the capacity for a small share of the time; while the store is away, the last measurement stays."""
        for number in count():
            began = time.monotonic()
            await self.metrics.refresh()
            pause = max(CAPACITY_SECONDS, (time.monotonic() - began) * CAPACITY_PAUSES)
            if number % TIDY_EVERY == 0:  # where no worker runs, nobody else does it
                await self.call(remove_gone, self.queue.engine)
            await asyncio.sleep(pause)

    async def _purge(self) -> None:
        """Purge what ended longer ago than the retention."""
        while self.options.retention_seconds is not None:
            purged = await self.call(self.queue.purge, self.options.retention_seconds)
            if purged:
                self.log.event("purged", documents=purged)
            await self.call(forget_batches, self.queue.engine, self.options.retention_seconds)
            await self.call(forget_failures, self.queue.engine, self.options.retention_seconds)
            await asyncio.sleep(min(3600.0, max(1.0, self.options.retention_seconds / 10)))
        await asyncio.Event().wait()

    async def _purge_audit(self) -> None:
        """Delete entries of the audit log that are older than its retention."""
        while self.options.audit_seconds is not None:
            purged = await self.call(purge_audit, self.queue.engine, self.options.audit_seconds)
            if purged:
                self.log.event("purged", audit_entries=purged)
            await asyncio.sleep(AUDIT_PURGE_SECONDS)
        await asyncio.Event().wait()

    async def _warn_of_ending_keys(self) -> None:
        """Log once a day which keys end soon."""
        while True:
            for key in await self.call(lambda: list(ending_keys(self.queue.engine))):
                ends_at = (key.expires_ms or 0) / 1000
                self.log.event("key ends soon", **key.caller.log_fields, role=key.role, expires_at=ends_at)
            await asyncio.sleep(KEY_WARNING_SECONDS)

    async def _remove_expired_tokens(self) -> None:
        """Remove upload tokens that expired long ago."""
        while True:
            await self.call(remove_expired, self.queue.engine)
            await asyncio.sleep(TOKENS_SECONDS)

    async def _flush(self) -> None:
        """Write what is kept in memory, before the server ends; not for long, as the store may be away."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await self.sign_ins.flush()
                await self.key_uses.flush()

    def log_store_error(self, error: FairlaneError) -> None:
        """Log what the store says, unless it is away, which is logged once; it may name hosts and files: not for callers."""
        if isinstance(error, StoreError) and not isinstance(error, StoreUnreachable) and problem_of(error).status >= 500:
            self.log.event("store failed", error=type(error).__name__, told=str(error)[:500])

    # -- requests ------------------------------------------------------------------------------------------------------

    async def caller(self, credential: str) -> Caller | None:
        """Identify the caller behind a key, or behind a credential of the extension; None: it is not valid."""
        if self.extension.recognises(credential):
            return await self.extension.caller(credential)
        await self.load_key(public_part(credential))
        return self.keyring.caller(credential)

    async def upload_caller(self, credential: str) -> Caller | None:
        """Identify the caller behind an upload token; None: it is not valid, or the key that made it no longer is."""
        token = await self.call(identify, self.queue.engine, credential)
        if token is not None and token.made_by is not None:
            await self.load_key(token.made_by)
            maker = self.keyring.holder(token.made_by)
            if maker is None or "submit" not in maker.permissions:
                return None
        return None if token is None else token.caller

    def refused_sign_in(self, credential: str, address: str) -> None:
        """Note for the audit log that this is no valid key."""
        self.sign_ins.refused(credential, self.keyring.key(public_part(credential)), address)

    def is_known(self, credential: str) -> bool:
        """Whether a credential names a key or session that was valid when it was last read; its secret is not checked."""
        if self.extension.recognises(credential):
            return self.extension.is_known(credential)
        return self.keyring.key(public_part(credential)) is not None

    def stranger_group(self, address: str) -> str:
        """Return what requests without a key from this address are counted with; empty: they are not counted."""
        return address_group(address) if self.options.proxies.is_counted(address) else ""

    async def load_key(self, id: str) -> None:
        """Bring a key into the keyring's cache, unless it is there; while the store fails, as it was when last read."""
        if id and not self.keyring.is_cached(id):
            try:
                await self.call(self.keyring.load, id)
            except StoreError:
                if self.keyring.key(id) is None:
                    raise

    def is_frozen(self) -> bool:
        """Whether the queue refuses changes, because it is being moved or its rules must be set."""
        return self.queue.rules().frozen is not None

    async def refuse_cost(self, caller: Caller, cost: float) -> None:
        """Refuse a cost below 1 that nobody allowed this customer."""
        if cost < 1:
            await self.call(refuse_cost, self.queue, caller, cost)

    def refuse_kind(self, caller: Caller, kind: str) -> None:
        """Refuse a kind that the caller may not submit; nobody may submit one whose payload names a path on the worker."""
        if kind == FORBIDDEN_KIND or (caller.customer is not None and kind not in self.kinds):
            raise Problem("bad-value", f"kind is {kind!r}; this key may submit: {', '.join(self.kinds)}")

    @contextlib.contextmanager
    def answering(self, holder: str) -> Iterator[None]:
        """Hold a slot for a request; raise a Problem if there is none."""
        slot = RequestSlot(self.requests, holder)
        SLOT.set(slot)
        try:
            yield
        finally:
            slot.end()

    @contextlib.contextmanager
    def while_waiting(self) -> Iterator[None]:
        """Count the request among those that wait, and not as active; a response that begins asks `refuse_waiting` before."""
        slot = SLOT.get()
        if slot is None:
            raise RuntimeError("only a request with a key can wait")
        slot.move(self.waiting)
        try:
            yield
        finally:
            slot.move(self.requests)

    def refuse_waiting(self) -> None:
        """Raise a Problem if the customer has too many requests that wait, or are streamed, already."""
        self.waiting.refuse_if_full(HOLDER.get())


def _progress_of(queue: Queue, running: list[tuple[str, str]]) -> dict[tuple[str, str], Progress]:
    """Read what handlers reported of running documents, by document and customer."""
    reported = {}
    for id, customer in running:
        with contextlib.suppress(Unknown):  # purged meanwhile
            if (progress := queue.progress(id)) is not None:
                reported[id, customer] = progress
    return reported
