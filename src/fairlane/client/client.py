"""`Client`: the verbs of the queue over HTTP.

Laws:
- A submission always carries an idempotency key, the same for all its retries: nothing is submitted twice.
- The API key is sent to the server and shown nowhere.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Self
from urllib.parse import quote, urlencode
from weakref import WeakSet

from fairlane.atomic_file import atomic_file
from fairlane.core.document import State, validate_text
from fairlane.core.errors import BadValue, Unknown, WrongState
from fairlane.core.policy import Dispatch, Reset, Rules, Terms, Turns, plain_seconds
from fairlane.engine.protocol import DocumentFilter
from fairlane.queue import (
    DEFAULT_KIND,
    KEEP,
    Attempt,
    Check,
    Cost,
    Document,
    Exported,
    HistoryEntry,
    Input,
    Keep,
    Look,
    Receipt,
    Step,
    UnservedKind,
    WorkerStatus,
)
from fairlane.queue.bulk import Action, BulkStep
from fairlane.queue.explain import Explanation
from fairlane.queue.files import display_name
from fairlane.queue.forget import OnProgress
from fairlane.queue.validation import (
    document_filter,
    document_id,
    first_kind,
    make_pipeline,
    payload_text,
    to_seconds,
    validate_priority,
)

from . import models
from .events import Events
from .models import Batch, BatchReceipt, Me, member, members
from .retries import RetryingTransport
from .steering import ClientSteering
from .transport import Transport, UploadCallback, json_body
from .uploads import upload_body

DOCUMENTS, BATCHES, CUSTOMERS, WORKERS = "/v1/documents", "/v1/batches", "/v1/customers", "/v1/workers"
PAGE_SIZE = 500
WAIT_SECONDS = 30.0  # of one request that waits for the end of a document
TIMEOUT_MAX_MS = 24 * 3600 * 1000


class Client(ClientSteering):
    """A server at an address, as in `http://127.0.0.1:8000`, used with an API key; may be used by many threads at once."""

    def __init__(self, url: str, key: str, *, timeout: float | timedelta = 30.0, patience: float | timedelta = 60.0) -> None:
        timeout_seconds = to_seconds("timeout", timeout, 1, TIMEOUT_MAX_MS)
        patience_seconds = to_seconds("patience", patience, 0, TIMEOUT_MAX_MS)
        self._http = RetryingTransport(Transport(url, key, timeout_seconds), timeout_seconds, patience_seconds)
        self._streams: WeakSet[Events] = WeakSet()

    def __repr__(self) -> str:
        return f"Client({self._http.transport.address!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; streams of events end."""
        self._http.close()
        for stream in list(self._streams):
            stream.close()

    # -- submitting ----------------------------------------------------------------------------------------------------

    def submit(
        self,
        payload: Any = None,
        *,
        path: str | os.PathLike[str] | None = None,
        content: bytes | BinaryIO | None = None,
        name: str | None = None,
        kind: str | None = None,
        key: str | None = None,
        cost: Cost = 1,
        delay: float | timedelta = 0,
        no_better_than: int | None = None,
        steps: Sequence[str] | None = None,
        slices: int | None = None,
        customer: str | None = None,
        progress: UploadCallback | None = None,
    ) -> Receipt:
        """Submit one document: JSON, or a file that is streamed from a path or from content; `progress` is called as it goes.

        Its kind is "extract" with a file and "default" without, unless you name one. A repeated `key` returns the first
        receipt; without one a key is made, so that a retry after a lost connection submits nothing twice. `no_better_than` is
        the best priority that it may get. With `steps` it passes through these kinds; a long file may be read in `slices` of so
        many pages. An operator names the customer with `customer`.
        """
        kind = None if kind is None and steps is None else first_kind(kind, steps, DEFAULT_KIND)
        headers = {"Idempotency-Key": _idempotency_key(key)}
        options: dict[str, Any] = {"kind": kind, "cost": cost, "delay": plain_seconds(delay), "no_better_than": no_better_than,
                   "customer": customer}  # fmt: skip
        options = {name: value for name, value in options.items() if value is not None}
        make_pipeline(steps, slices)  # which refuses bad ones
        if path is None and content is None and name is None:
            if slices is not None:
                raise BadValue("slices", slices, "left out for a document without a file: it has no pages")
            options |= {} if steps is None else {"steps": list(steps)}
            content_json = _json({"payload": _validate_payload(payload), **options})
            response = self._http.request("POST", DOCUMENTS, json_body(content_json.encode()), headers)
            return models.receipt(json.loads(response.body))
        file_name = display_name(Input(path, None, name))
        query = {**options, **({} if file_name is None else {"name": file_name})}
        query |= {} if steps is None else {"steps": ",".join(steps)}
        query |= {} if slices is None else {"slices": slices}
        if payload is not None:
            query["payload"] = payload_text(payload)
        with upload_body(path, content, progress) as body:
            response = self._http.request("POST", f"{DOCUMENTS}?{urlencode(query)}", body, headers)
        return models.receipt(json.loads(response.body))

    def submit_many(
        self,
        payloads: Iterable[Any],
        *,
        kind: str | None = None,
        key: str | None = None,
        cost: float = 1,
        delay: float | timedelta = 0,
        no_better_than: int | None = None,
        steps: Sequence[str] | None = None,
        customer: str | None = None,
    ) -> BatchReceipt:
        """Submit many documents of one customer as a batch: as many checks, all or none; a repeated `key` returns it again."""
        if isinstance(payloads, str | bytes | dict) or not isinstance(payloads, Iterable):
            raise BadValue("payloads", payloads, "a list of payloads")
        options: dict[str, Any] = {"kind": first_kind(kind, steps, DEFAULT_KIND), "delay": plain_seconds(delay)}
        options |= {} if steps is None else {"steps": list(steps)}
        options |= {
            name: value for name, value in (("no_better_than", no_better_than), ("customer", customer)) if value is not None
        }
        documents = [{"payload": _validate_payload(payload), "cost": cost} for payload in payloads]
        content = _json({"documents": documents, **options})
        headers = {"Idempotency-Key": _idempotency_key(key)}
        response = self._http.request("POST", BATCHES, json_body(content.encode()), headers)
        return models.batch_receipt(json.loads(response.body))

    def check(self, customer: str | None = None, *, cost: float = 1) -> Check:
        """Charge a customer: make one check without a document, which moves its counter; never retried by itself."""
        options = {"cost": cost, **({} if customer is None else {"customer": customer})}
        return models.parse(Check, self._http.send("POST", "/v1/checks", options, is_idempotent=False))

    # -- reading -------------------------------------------------------------------------------------------------------

    def me(self) -> Me:
        """Return whose key this is, and where that customer stands."""
        return models.me(self._http.get("/v1/me"))

    def look(self, customer: str | None = None) -> Look:
        """Return where a customer stands, by default the key's own; moves nothing."""
        if customer is not None:
            try:
                return models.look(self._http.get(_customer(customer)))
            except Unknown:  # a customer's key has no access to this path, but it may read its own standing
                pass
        me = self.me()
        if me.standing is None or customer not in (None, me.customer):
            raise Unknown(
                "name a customer: this is an operator's key"
                if customer is None
                else f"this key may not read customer {customer!r}; use an operator's key"
            )
        return me.standing

    def customers(self) -> Iterator[Look]:
        """Yield where every customer stands, by id; with a customer's key only that customer."""
        me = self.me()
        if me.standing is not None:
            yield me.standing
            return
        yield from map(models.look, self._pages(f"{CUSTOMERS}?limit={PAGE_SIZE}", "customers"))

    def document(self, id: str) -> Document:
        """Return one document as it is now."""
        return models.document(self._http.get(_document(id)))

    def documents(
        self,
        customer: str | None = None,
        state: State | None = None,
        *,
        kind: str | None = None,
        reason: str | None = None,
        since: float | datetime | None = None,
        until: float | datetime | None = None,
    ) -> Iterator[Document]:
        """Yield documents for which everything holds that is given, newest first.

        `reason` is a part of the reason for which they failed. They were submitted at `since` or later, and before `until`.
        """
        query = _filter_query(document_filter(customer, state, kind, reason, since, until)) | {"limit": PAGE_SIZE}
        return map(models.document, self._pages(f"{DOCUMENTS}?{urlencode(query)}", "documents"))

    def wait(self, id: str, timeout: float | timedelta | None = None) -> Document:
        """Wait until a document has ended and return it; after `timeout` seconds return it as it is."""
        deadline = None if timeout is None else time.monotonic() + to_seconds("timeout", timeout)
        while True:
            left = WAIT_SECONDS if deadline is None else min(WAIT_SECONDS, max(0.0, deadline - time.monotonic()))
            document = models.document(self._http.get(f"{_document(id)}?wait={left:.3f}", left))
            if document.is_ended or (deadline is not None and time.monotonic() >= deadline):
                return document

    def result(self, id: str) -> Any:
        """Return the result of a document that is done."""
        return self._http.get(f"{_document(id)}/result")

    def file(self, id: str) -> BinaryIO:
        """Download the file that was submitted, to a temporary file; close it, or use it in a `with`."""
        content: BinaryIO = TemporaryFile()  # noqa: SIM115 - handed to the caller
        try:
            self._http.download(f"{_document(id)}/file", content)
        except BaseException:
            content.close()
            raise
        return content

    def export(self, customer: str, path: str | os.PathLike[str], *, on_progress: OnProgress = lambda *_: None) -> Exported:
        """Download everything that is kept of a customer to a new tar archive, which has its name only when it is complete."""
        from fairlane.queue.export_archive import read_summary

        address = f"{CUSTOMERS}/{quote(validate_text('customer', customer), safe='')}/export"
        with atomic_file(path) as file:
            self._http.download(address, file, lambda size: on_progress("bytes", size, 0))
            summary = read_summary(file)
            return Exported(**{**summary, "bytes": file.tell(), "missing_documents": tuple(summary["missing_documents"])})

    def text(self, id: str) -> str:
        """Return the extracted text of a document that is done."""
        return self._result_file(id, "text").decode()

    def thumbnail(self, id: str) -> bytes:
        """Return the thumbnail of a document that is done."""
        return self._result_file(id, "thumbnail")

    def _result_file(self, id: str, name: str) -> bytes:
        return self._http.request("GET", f"{_document(id)}/{name}").body

    def batch(self, id: str) -> Batch:
        """Return how far a batch is."""
        return models.batch(self._http.get(f"{BATCHES}/{quote(validate_text('batch id', id), safe='')}"))

    def attempts(self, id: str) -> list[Attempt]:
        """Return what is kept of a document's last failed attempts, oldest first; for operators."""
        return list(map(models.attempt, member(self._http.get(f"{_document(id)}/attempts"), "attempts")))

    def history(self, id: str) -> list[HistoryEntry]:
        """Return what happened to a document, oldest first, as far as the server's feed still has it."""
        return list(map(models.history_entry, member(self._http.get(f"{_document(id)}/history"), "history")))

    def steps(self, id: str) -> list[Step]:
        """Return the kinds that a document passes through, in order; only staff sees what each returned."""
        return [models.parse(Step, value) for value in member(self._http.get(f"{_document(id)}/steps"), "steps")]

    def parts(self, id: str) -> list[Document]:
        """Return the parts into which a document was split last, in order."""
        return list(map(models.document, member(self._http.get(f"{_document(id)}/parts"), "parts")))

    def explain(self, id: str) -> Explanation:
        """Explain why a document has its priority, about how much is ahead of it, and about when it will start."""
        return _explanation(self._http.get(f"{_document(id)}/explain"))

    def explain_customer(self, customer: str) -> Explanation:
        """Explain where a customer stands, when that changes and its own terms; for operators."""
        return _explanation(self._http.get(f"{_customer(customer)}/explain"))

    def workers(self) -> list[WorkerStatus]:
        """Return the workers of the queue by name, each with the documents that run on it; for operators."""
        return [models.worker(value) for value in member(self._http.get(WORKERS), "workers")]

    def unserved_kinds(self) -> list[UnservedKind]:
        """Return the kinds of which documents wait although no worker takes them; for operators."""
        return [models.parse(UnservedKind, value) for value in member(self._http.get(WORKERS), "unserved")]

    def events(self, after: int | None = None) -> Events:
        """Return the events as they happen: from now on, or after an event's number, 0 for all that are kept."""
        stream = Events(self._http, after)
        self._streams.add(stream)
        return stream

    # -- changing ------------------------------------------------------------------------------------------------------

    def cancel(self, id: str) -> bool:
        """End a document that has not ended; False if it already has."""
        try:
            self._http.send("DELETE", _document(id), is_idempotent=True)
        except WrongState:
            return False
        return True

    def retry(self, id: str) -> None:
        """Give a failed document another round of attempts; with a customer's key a check, as for a new document."""
        self._http.send("POST", f"{_document(id)}/retry", is_idempotent=False)

    def bulk(
        self,
        action: Action,
        *,
        customer: str | None = None,
        state: State | None = None,
        kind: str | None = None,
        reason: str | None = None,
        since: float | datetime | None = None,
        until: float | datetime | None = None,
        cursor: str | None = None,
        dry_run: bool = False,
        priority: int | None = None,
    ) -> BulkStep:
        """Cancel, retry or (operators) prioritize the next documents that match, or count them; go on with `cursor=step.next`
        until that is None."""
        filter = _filter_query(document_filter(customer, state, kind, reason, since, until))
        body: dict[str, Any] = {"filter": filter, "cursor": cursor, "dry_run": dry_run}
        if action == "prioritize":
            path, body["priority"] = f"{DOCUMENTS}/prioritize", validate_priority("priority", priority)
        elif priority is not None:
            raise BadValue("priority", priority, "left out, unless the action is prioritize")
        else:
            path, body["action"] = f"{DOCUMENTS}/bulk", action
        return models.bulk_step(self._http.send("POST", path, body, is_idempotent=True))

    def pause(self, customer: str) -> None:
        """Serve nothing of a customer until it is resumed; for operators, like all verbs below."""
        self.tune(customer, paused=True)

    def resume(self, customer: str) -> None:
        """Serve a paused customer again."""
        self.tune(customer, paused=False)

    def tune(
        self,
        customer: str,
        *,
        weight: float | Keep = KEEP,
        cap: int | Keep | None = KEEP,
        paused: bool | Keep = KEEP,
        reset_interval: float | timedelta | Keep | None = KEEP,
        thresholds: tuple[float, ...] | Keep | None = KEEP,
        reset: Reset | Keep | None = KEEP,
        waiting_max: int | Keep | None = KEEP,
        descendants_max: int | Keep | None = KEEP,
        documents_max: int | Keep | None = KEEP,
        bytes_max: int | Keep | None = KEEP,
        retries_max: int | Keep | None = KEEP,
        cost_min: float | Keep = KEEP,
    ) -> Terms:
        """Give a customer its own weight, cap, pause, policy or limits; what is not named stays, None is everybody's rule."""
        options = {
            "weight": weight, "cap": cap, "paused": paused, "reset_interval": plain_seconds(reset_interval),
            "thresholds": thresholds, "reset": reset, "waiting_max": waiting_max, "descendants_max": descendants_max,
            "documents_max": documents_max, "bytes_max": bytes_max, "retries_max": retries_max, "cost_min": cost_min,
        }  # fmt: skip
        changes = {name: value for name, value in options.items() if value is not KEEP}
        if not changes:
            return self.terms(customer)
        return models.terms(member(self._http.send("PATCH", _customer(customer), changes, is_idempotent=True), "terms"))

    def terms(self, customer: str) -> Terms:
        """Return a customer's own terms."""
        return models.terms(member(self._http.get(_customer(customer)), "terms"))

    def rules(self) -> Rules:
        """Return the policy, the dispatch, the turns and the open-turn share that hold for everybody, with their version."""
        return models.rules(self._http.get("/v1/policy"))

    def configure(
        self,
        *,
        reset_interval: float | timedelta | None = None,
        thresholds: tuple[float, ...] | None = None,
        reset: Reset | None = None,
        dispatch: Dispatch | None = None,
        turns: Turns | None = None,
        open_turn_every: int | None = None,
        waiting_max: int | Keep | None = KEEP,
        descendants_max: int | Keep | None = KEEP,
        documents_max: int | Keep | None = KEEP,
        bytes_max: int | Keep | None = KEEP,
        retries_max: int | Keep | None = KEEP,
    ) -> Rules:
        """Change the rules for everybody from the next check or claim; what is not named stays, a limit of None is none."""
        options = {
            "reset_interval": plain_seconds(reset_interval), "thresholds": thresholds, "reset": reset, "dispatch": dispatch,
            "turns": turns, "open_turn_every": open_turn_every,
        }  # fmt: skip
        limits = {
            "waiting_max": waiting_max, "descendants_max": descendants_max, "documents_max": documents_max,
            "bytes_max": bytes_max, "retries_max": retries_max,
        }  # fmt: skip
        changes: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        changes |= {name: value for name, value in limits.items() if value is not KEEP}
        return models.rules(self._http.send("PUT", "/v1/policy", changes, is_idempotent=True)) if changes else self.rules()


def _idempotency_key(key: str | None) -> str:
    return secrets.token_hex(16) if key is None else validate_text("key", key)


def _validate_payload(payload: Any) -> Any:
    payload_text(payload)
    return payload


def _json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadValue("a value", value, f"JSON ({error})") from None


def _filter_query(filter: DocumentFilter) -> dict[str, Any]:
    """Return a filter as the query of an address; times are seconds there."""
    *texts, since_ms, until_ms = filter
    seconds = (None if value is None else value / 1000 for value in (since_ms, until_ms))
    values = dict(zip(("customer", "state", "kind", "reason", "since", "until"), (*texts, *seconds), strict=True))
    return {name: value for name, value in values.items() if value is not None}


def _document(id: str) -> str:
    return f"{DOCUMENTS}/{quote(document_id(id), safe='')}"


def _customer(customer: str) -> str:
    return f"{CUSTOMERS}/{quote(validate_text('customer', customer), safe='')}"


def _explanation(value: Any) -> Explanation:
    facts = dict(members(value))
    return Explanation(str(member(facts, "sentence")), {name: value for name, value in facts.items() if name != "sentence"})
