"""`Queue`: the verbs a program uses to submit and manage documents.

Arguments are validated here before an engine sees them.
"""

from __future__ import annotations

import json
import os
import time
from asyncio import AbstractEventLoop
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, BinaryIO, Self

from fairlane.blobs.gc import GRACE_SECONDS, SweepResult
from fairlane.core.document import BATCH_MAX, ENDED, DocumentRow, State, validate_text
from fairlane.core.errors import BadValue, StoreError, Unknown, WrongState
from fairlane.core.policy import TIME_MAX_MS, Dispatch, Reset, Rules, Standing, Terms, Turns, to_milliseconds
from fairlane.encryption import inner_engine, join_store_transaction, load_keyring, open_store
from fairlane.engine import Engine, vacuum_queue_file
from fairlane.engine.protocol import ATTEMPTS, ATTEMPTS_KEPT, PROGRESS
from fairlane.engine.walk import walk_documents
from fairlane.settings import DEFAULT_URL

from .bulk import Action, BulkChange, BulkStep, bulk_step
from .contents import ContentVerbs
from .explain import Explanation, explain_customer, explain_document
from .files import Input, QueueFiles, submit_files, validate_inputs
from .forget import Forgotten, OnProgress, forget_customer
from .history import history_of, last_delay
from .models import (
    KEEP,
    Attempt,
    Change,
    Check,
    Document,
    Exported,
    HistoryEntry,
    Keep,
    Look,
    Progress,
    Receipt,
    UnservedKind,
    WorkerStatus,
    attempt_from,
    change_from,
    check_from,
    document_from,
    look_from,
    receipts_from,
)
from .rules import change_rules, change_terms
from .start_samples import read_calibration
from .steering import SteeringVerbs
from .validation import (
    DEFAULT_KIND,
    FILE_KIND,
    PAGES,
    Cost,
    SubmitOptions,
    cost_thousandths,
    document_filter,
    document_id,
    first_kind,
    make_pipeline,
    new_ids,
    now_milliseconds,
    payload_text,
    to_seconds,
)
from .wait import wait_pauses
from .workers import Fleet, read_workers, unserved_kinds

PAGE_SIZE = 1000  # documents, customers or changes in one call to the engine


class Queue(ContentVerbs, SteeringVerbs):
    """A queue at a URL: `memory://`, `sqlite:///fairlane.db`, `postgresql://user@host/database` or `redis://localhost`."""

    def __init__(
        self, url: str = DEFAULT_URL, *, create: bool = True, blobs: str | None = None, encryption_key_file: str | None = None
    ) -> None:
        self.url = url
        self.keyring = load_keyring(encryption_key_file)
        self.engine: Engine = open_store(url, create, self.keyring)
        self.files = QueueFiles(self.engine, url, blobs, self.keyring)
        self._in_transaction = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store."""
        self.engine.close()

    def within(self, transaction: object) -> Queue:
        """Return this queue inside a transaction that you have open on its PostgreSQL database.

        A document exists exactly if your transaction commits. It may be a psycopg connection, a connection or session of
        SQLAlchemy, or `django.db.connection`.
        """
        return self._join(transaction)

    def _join(self, transaction: object, loop: AbstractEventLoop | None = None) -> Queue:
        inside = copy(self)
        inside.engine = join_store_transaction(self.engine, transaction, loop)
        inside._in_transaction = True
        return inside

    # -- submitting --------------------------------------------------------------------------------------------------

    def submit(
        self,
        customer: str,
        payload: Any = None,
        *,
        path: str | os.PathLike[str] | None = None,
        content: bytes | BinaryIO | None = None,
        name: str | None = None,
        kind: str | None = None,
        key: str | None = None,
        cost: Cost = 1,
        delay: float | timedelta = 0,
        made_from: str | None = None,
        no_better_than: int | None = None,
        steps: Sequence[str] | None = None,
        slices: int | None = None,
        now: float | datetime | None = None,
    ) -> Receipt:
        """Submit one document.

        With a path or content it has a file. Its kind is "extract" then, for the built-in handler, and "default" without a
        file, unless you name one. A repeated `key` returns the first receipt. A document made from another one inherits its
        priority. `no_better_than` is the best priority that it may get: for bulk imports that shall not compete with the rest.
        With `steps`, a list of kinds, it passes through all of them, one after the other. A long file may be read in `slices`
        of so many pages, by several workers at once.
        """
        if path is not None or content is not None or name is not None:
            common: dict[str, Any] = {"cost": cost, "delay": delay, "made_from": made_from, "no_better_than": no_better_than}
            common |= {"steps": steps, "slices": slices}
            return self.submit_files(customer, [Input(path, content, name, payload, key)], kind=kind, now=now, **common)[0]
        if slices is not None:
            raise BadValue("slices", slices, "left out for a document without a file: it has no pages")
        first, pipeline = first_kind(kind, steps, DEFAULT_KIND), make_pipeline(steps, None)
        options = SubmitOptions.validate(customer, first, cost, delay, made_from, no_better_than, pipeline)
        ids = new_ids(1)
        submission = options.submission(ids[0], payload_text(payload, pipeline), key)
        return receipts_from(self.engine.submit([submission], now_ms=now_milliseconds(now)), ids)[0]

    def submit_many(
        self,
        customer: str,
        payloads: Iterable[Any],
        *,
        kind: str | None = None,
        keys: Iterable[str] | None = None,
        cost: float = 1,
        delay: float | timedelta = 0,
        made_from: str | None = None,
        no_better_than: int | None = None,
        steps: Sequence[str] | None = None,
        now: float | datetime | None = None,
    ) -> list[Receipt]:
        """Submit many documents of one customer: as many checks, one commit, all or none."""
        if isinstance(payloads, str | bytes | dict) or not isinstance(payloads, Iterable):
            raise BadValue("payloads", payloads, "a list of payloads")
        payload_list = list(payloads)
        count = len(payload_list)
        key_list: list[str] | list[None] = [None] * count if keys is None else list(keys)
        if count > BATCH_MAX:
            raise BadValue("payloads", f"a list of {count:,}", f"at most {BATCH_MAX:,} long; submit them in parts")
        if len(key_list) != count:
            raise BadValue("keys", f"a list of {len(key_list):,}", f"as long as payloads, {count:,}")
        first, pipeline = first_kind(kind, steps, DEFAULT_KIND), make_pipeline(steps, None)
        options = SubmitOptions.validate(customer, first, cost, delay, made_from, no_better_than, pipeline)
        if not payload_list:
            return []
        ids = new_ids(count)
        rows = zip(ids, payload_list, key_list, strict=True)
        submissions = [options.submission(id, payload_text(payload, pipeline), key) for id, payload, key in rows]
        return receipts_from(self.engine.submit(submissions, now_ms=now_milliseconds(now)), ids)

    def submit_files(
        self,
        customer: str,
        files: Iterable[Input],
        *,
        kind: str | None = None,
        cost: Cost = 1,
        delay: float | timedelta = 0,
        made_from: str | None = None,
        no_better_than: int | None = None,
        steps: Sequence[str] | None = None,
        slices: int | None = None,
        now: float | datetime | None = None,
    ) -> list[Receipt]:
        """Submit many documents of one customer, each with a file: as many checks, one commit, all or none."""
        inputs, now_ms, is_by_pages = validate_inputs(files), now_milliseconds(now), cost == PAGES
        first, pipeline = first_kind(kind, steps, FILE_KIND), make_pipeline(steps, slices)
        options = SubmitOptions.validate(
            customer, first, 1 if is_by_pages else cost, delay, made_from, no_better_than, pipeline
        )
        if not inputs:
            return []
        return submit_files(self.engine, self.files.open(), options, inputs, is_by_pages, now_ms)

    def check(self, customer: str, *, cost: float = 1, now: float | datetime | None = None) -> Check:
        """Charge a customer: make one check without a document, which moves its counter. For use beside another queue."""
        return check_from(
            self.engine.check(validate_text("customer", customer), cost_thousandths(cost), now_ms=now_milliseconds(now))
        )

    # -- reading -----------------------------------------------------------------------------------------------------

    def look(self, customer: str, *, now: float | datetime | None = None) -> Look:
        """Return where a customer stands; moves nothing."""
        return look_from(self.engine.customer(validate_text("customer", customer), now_ms=now_milliseconds(now)))

    def customers(self, *, now: float | datetime | None = None) -> Iterator[Look]:
        """Yield where every customer stands, by id."""
        now_ms = now_milliseconds(now)
        after = ""
        while page := self.engine.customers(after, PAGE_SIZE, now_ms=now_ms):
            yield from map(look_from, page)
            after = page[-1].id

    def document(self, id: str) -> Document:
        """Return one document as it is now."""
        row = self._row(id)
        return document_from(row, self._progress(row))

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
        filter = document_filter(customer, state, kind, reason, since, until)
        return map(document_from, walk_documents(self.engine, filter))

    def progress(self, id: str) -> Progress | None:
        """Return what the handler reported in the newest attempt; None if nothing, or if the document is done."""
        return self._progress(self._row(id))

    def _progress(self, row: DocumentRow) -> Progress | None:
        record = self.engine.record(PROGRESS, row.id) if row.attempts and row.state != "done" else None
        report = None if record is None else json.loads(record.value)
        if report is None or report["token"] != row.token:  # from a worker that has lost the document since
            return None
        return Progress(report["attempt"], report["progress"], report["partial"])

    def workers(self) -> list[WorkerStatus]:
        """Return the workers of this queue by name, each with the documents that run on it."""
        return read_workers(self.engine)

    def attempts(self, id: str) -> list[Attempt]:
        """Return what is kept of a document's last failed attempts, oldest first: tracebacks, and the end of the output."""
        prefix = f"{self._row(id).id}:"
        records = self.engine.records(ATTEMPTS, prefix, ATTEMPTS_KEPT)
        return [attempt_from(record) for record in records if record.key.startswith(prefix)]

    def unserved_kinds(self) -> list[UnservedKind]:
        """Return the kinds of which documents wait although no worker takes them, or only workers that are draining."""
        return unserved_kinds(self.engine)

    def history(self, id: str) -> list[HistoryEntry]:
        """Return what happened to a document, oldest first, as far as the feed still has it."""
        return history_of(self.engine, self._row(id))

    def explain(self, id: str, *, for_customer: bool = False, now: float | datetime | None = None) -> Explanation:
        """Explain why a document has its priority, about how much is ahead of it, and about when it will start.

        An explanation for a customer names neither workers nor stores.
        """
        outlook = self.engine.outlook(document_id(id), now_ms=now_milliseconds(now))
        row = self._row(id)
        service = "served" if outlook is None else Fleet(self.engine).service_of(row.kind)
        delay = last_delay(self.engine, row)
        calibration = None if outlook is None else read_calibration(self.engine)
        return explain_document(row, self.engine.rules(), outlook, service, delay, calibration, for_customer=for_customer)

    def explain_customer(self, customer: str, *, now: float | datetime | None = None) -> Explanation:
        """Explain where a customer stands, when that changes and its own terms; raise Unknown for one never seen."""
        known = self.engine.customer(validate_text("customer", customer), now_ms=now_milliseconds(now))
        if known.standing == Standing() and known.terms_version == 0:
            raise Unknown(f"there is no customer {customer!r}; it never sent a document here, or it was forgotten")
        return explain_customer(known, self.engine.rules())

    def changes(self, after: int | None = None, limit: int | None = None) -> Iterator[Change]:
        """Yield what changed after a change number up to now, oldest first, at most `limit`; None: from the oldest kept."""
        if after is not None and not (type(after) is int and 0 <= after <= TIME_MAX_MS):
            raise BadValue("after", after, "the number of a change, 0 for all, or None for all that are kept")
        if limit is not None and (type(limit) is not int or limit < 1):
            raise BadValue("limit", limit, "a whole number from 1, or None for all")
        return islice(self._changes(after, limit or PAGE_SIZE), limit)

    def _changes(self, after: int | None, page_size: int) -> Iterator[Change]:
        while page := self.engine.changes(after, min(page_size, PAGE_SIZE)):
            yield from map(change_from, page)
            after = page[-1].number

    def wait(self, id: str, timeout: float | timedelta | None = None) -> Document:
        """Wait until a document has ended and return it; after `timeout` seconds return it as it is."""
        for pause in wait_pauses(timeout):
            if self._row(id).state in ENDED:
                break
            time.sleep(pause)
        return self.document(id)

    def export(self, customer: str, path: str | os.PathLike[str], *, on_progress: OnProgress = lambda *_: None) -> Exported:
        """Write everything that is kept of a customer to a new tar archive, gzipped if its name ends so."""
        from .export import CustomerExport, write_export

        export = CustomerExport(self.engine, self.files, validate_text("customer", customer), on_progress)
        return write_export(export, path)

    # -- changing ----------------------------------------------------------------------------------------------------

    def cancel(self, id: str) -> bool:
        """End a document that has not ended; False if it already has."""
        if self.engine.cancel([document_id(id)]):
            return True
        self._row(id)  # raises if there is none
        return False

    def retry(self, id: str, *, as_customer: bool = False) -> None:
        """Give a failed document another round of attempts, at its priority; as its customer with a check, as for a new one."""
        if not self.engine.retry(document_id(id), as_customer=as_customer):
            row = self._row(id)
            if row.state == "failed":
                raise WrongState(f"document {id} is a part of {row.whole}; retry that one: its parts that are not done go on")
            raise WrongState(f"document {id} is {row.state}; only a failed one can be retried")

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
        as_customer: bool = False,
    ) -> BulkStep:
        """Cancel, retry or prioritize the next documents that match, or count them.

        Go on with `cursor=step.next` until that is None."""
        filter = document_filter(customer, state, kind, reason, since, until)
        change = BulkChange(action, priority, self._by(), as_customer)
        return bulk_step(self.engine, change, filter, cursor, is_dry_run=dry_run)

    def pause(self, customer: str) -> None:
        """Serve nothing of a customer until it is resumed; it may go on submitting."""
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
        """Give a customer its own weight, cap, pause, policy or limits; what is not named stays, None is everybody's rule.

        Over the API its keys may give a document a cost from `cost_min` on, which is 1 at first.
        """
        options: dict[str, Any] = {
            "weight": weight, "cap": cap, "paused": paused, "reset_interval": reset_interval, "thresholds": thresholds,
            "reset": reset, "waiting_max": waiting_max, "descendants_max": descendants_max, "documents_max": documents_max,
            "bytes_max": bytes_max, "retries_max": retries_max, "cost_min": cost_min,
        }  # fmt: skip
        return change_terms(self.engine, customer, options)

    def terms(self, customer: str) -> Terms:
        """Return a customer's own terms."""
        return self.engine.customer(validate_text("customer", customer)).terms

    def rules(self) -> Rules:
        """Return the policy, the dispatch, the turns and the open-turn share that hold for everybody, with their version."""
        return self.engine.rules()

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
        rules = {"reset_interval": reset_interval, "thresholds": thresholds, "reset": reset, "dispatch": dispatch,
                 "turns": turns, "open_turn_every": open_turn_every}  # fmt: skip
        limits = {"waiting_max": waiting_max, "descendants_max": descendants_max, "documents_max": documents_max,
                  "bytes_max": bytes_max, "retries_max": retries_max}  # fmt: skip
        return change_rules(self.engine, {name: value for name, value in rules.items() if value is not None} | limits)

    def purge(self, older_than: float | timedelta, *, now: float | datetime | None = None) -> int:
        """Delete what ended longer ago than that many seconds, with its files, and the feed up to then; return how many."""
        age_ms, now_ms = to_milliseconds("older_than", older_than, 0, TIME_MAX_MS), now_milliseconds(now)
        total = 0
        while any(purged := self.engine.purge(age_ms, PAGE_SIZE, now_ms=now_ms)):
            total += len(purged.documents)
            files = self.files.open_configured() if purged.documents else None
            if files is not None and not self._in_transaction and not self.files.are_held():
                files.remove_documents(purged.documents)  # if the process is killed before, the sweep does it
        return total

    def forget(self, customer: str, *, vacuum: bool = True, on_progress: OnProgress = lambda *_: None) -> Forgotten:
        """Erase a customer: its documents and their files, its counter, terms, keys, webhook, batches and lines of the feed.

        The file of a queue in a file is rewritten then, unless `vacuum` is False. If it is interrupted, call it again.
        """
        validate_text("customer", customer)
        forgotten = forget_customer(self.engine, self.files, customer, self._in_transaction, on_progress)
        try:
            if vacuum:
                on_progress("rewriting the file", 0, 0)
                self.vacuum()
        except StoreError as error:
            return forgotten._replace(not_rewritten=str(error))
        return forgotten

    def vacuum(self) -> bool:
        """Rewrite the file of a queue in a file, so that nothing is left in it of what was deleted; others wait meanwhile.

        Return False for a queue on a server, which does that in its own time.
        """
        return vacuum_queue_file(inner_engine(self.engine))

    def sweep(
        self, *, grace: float | timedelta = GRACE_SECONDS, timeout: float | timedelta | None = None, after: str | None = None
    ) -> SweepResult:
        """Remove files older than the grace period that no document owns; stop after the timeout, and return where."""
        grace_seconds = to_seconds("grace", grace)
        timeout_seconds = None if timeout is None else to_seconds("timeout", timeout)
        files = self.files.open_existing()
        if files is None:
            return SweepResult(0, 0, 0, None)
        return self.files.run_sweep(self.files.begin_sweep(files, grace_seconds, after), timeout_seconds)
