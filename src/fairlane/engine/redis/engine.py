"""The engine on a Redis or Valkey server, for many machines; acknowledgements are as durable as the server's settings.

Every verb is one Lua script, so it happens wholly or not at all, in the order in which the server runs them. The policy is
in lua/shared/policy.lua, the dispatch in lua/claim.lua; here values become arguments, and replies become values.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from fairlane.core.document import (
    ChangeRow,
    CheckRow,
    Claim,
    Customer,
    DocumentRow,
    Outcome,
    Outlook,
    PartRow,
    ReceiptRow,
    Record,
    Released,
    Submission,
    Totals,
)
from fairlane.core.errors import KeyConflict, StoreError, StoreUnfit, Unknown
from fairlane.core.eta import estimate_ahead
from fairlane.core.policy import KindLimit, Rules, Terms
from fairlane.engine.codec import encode_kind_limit, encode_rules, encode_terms
from fairlane.engine.errors import purged_feed_error, unknown_source_error
from fairlane.engine.limits import limit_error
from fairlane.engine.protocol import (
    DUE_MAX,
    SCAN_MAX,
    DocumentBody,
    DocumentFilter,
    DocumentPage,
    Finding,
    KindRow,
    Packed,
    Purged,
    ReadyKind,
    Removed,
    Reprioritized,
    Rewrite,
    TextPart,
)
from fairlane.engine.schema import Schema, mark_of

from . import codec, transfer
from .connection import RedisPool
from .diagnostics import diagnose
from .errors import NotReplicated
from .scripts import SCHEMA
from .server import FLAGS_SINCE, durability, read_server_info, refuse_unfit
from .url import parse_url

EXAMINED_MAX = 2000  # documents that one script reads to fill a page: nothing else runs meanwhile
COUNT_STEP = 500  # documents of an older form that one script counts
LINES_MAX = 2000  # lines of the feed that one script reads or sweeps
POLL_SECONDS = 5.0  # a signal may be lost: a waiter polls this often
POLL_UNSUBSCRIBED_SECONDS = 0.1  # and this often where signals cannot be received


class RedisEngine:
    """A queue on a Redis or Valkey server."""

    def __init__(self, url: str, create: bool = True, schema: Schema = SCHEMA) -> None:
        self._url = parse_url(url)
        self._schema = schema
        self.schema = schema.version
        self._pool = RedisPool(self._url, schema)
        try:
            self._server = read_server_info(self._pool)
            refuse_unfit(self._server, self._url.display)
            self._pool.has_flags = self._server.numbers[:2] >= FLAGS_SINCE
            if self._url.replicas:
                self._pool.execute("WAIT", 0, 1)  # refused now, if at all, and not after a write
            self._migrate(create)
        except BaseException:
            self._pool.close()
            raise

    @property
    def durability(self) -> str:
        return durability(self._server, self._url.replicas)

    def _migrate(self, create: bool) -> None:
        """Create the queue, or check that this version can read the one that exists."""
        rules = Rules()
        mode = "create" if create else "look"
        arguments = [mode, encode_rules(rules), *codec.rules_arguments(rules)]
        form, oldest = self._pool.run("migrate", arguments, "same")
        if form == 0:
            raise Unknown(
                f"there is no queue {self._url.queue!r} at {self._url.display}; submit or check something first, or give "
                "another --url"
            )
        if form < self._schema.first - 1:
            raise StoreUnfit(
                f"the queue at {self._url.display} was made by an older Fairlane (form {form}), in a layout that this one "
                "cannot read; move it with that version, or begin another queue with ?queue=NAME"
            )
        self._schema.refuse_newer(self._pool.name, mark_of(form, oldest))
        for script in self._schema.scripts_after(form):
            self._upgrade(form, script)
            form += 1
        while self._pool.run("count", [COUNT_STEP], "same"):
            pass
        self._pool.be_patient()
        self._sweep()

    def _upgrade(self, form: int, script: str) -> None:
        """Bring the queue to the next form: the script step by step, while others go on, and then the form in one step."""
        cursor = ""
        while cursor := self._pool.run_text(script, [cursor]):
            pass
        self._pool.run("upgrade", [form, form + 1, self._schema.oldest], "same")

    def store_schema(self) -> int:
        form, oldest = self._pool.run("migrate", ["look"], "same")
        return self._schema.refuse_newer(self._pool.name, mark_of(form, oldest))

    def close(self) -> None:
        self._pool.close()

    def diagnose(self) -> list[Finding]:
        return diagnose(self._pool, self.store_schema(), self._url.replicas)

    # -- documents ---------------------------------------------------------------------------------------------------

    def check(self, customer: str, cost: int, *, now_ms: int | None = None) -> CheckRow:
        return CheckRow(customer, *self._pool.run("check", [codec.time_argument(now_ms), customer, cost], "never"))

    def submit(self, submissions: Sequence[Submission], *, now_ms: int | None = None) -> list[ReceiptRow]:
        reply = self._pool.run("submit", codec.submit_arguments(submissions, now_ms), "marked")
        if reply and reply[0] == "unknown":
            raise unknown_source_error(codec.first_from(submissions, reply[1], reply[2]))
        if reply and reply[0] == "conflict":
            raise KeyConflict(*reply[1:])
        if reply and reply[0] == "over":
            raise limit_error(*reply[1:])
        return codec.receipts(submissions, reply)

    def claim(
        self,
        worker: str,
        limit: int,
        lease_ms: int,
        kinds: Mapping[str, int] | None = None,
        *,
        now_ms: int | None = None,
    ) -> list[Claim]:
        kinds_and_attempts = [-1] if kinds is None else [len(kinds), *(value for pair in kinds.items() for value in pair)]
        kind_set = codec.kind_set_text(kinds)
        arguments = [codec.time_argument(now_ms), worker, limit, lease_ms, DUE_MAX, kind_set, *kinds_and_attempts]
        return self._claim("claim", arguments, now_ms)

    def _claim(self, verb: str, arguments: list[Any], now_ms: int | None) -> list[Claim]:
        try:
            return codec.claims(self._pool.run(verb, arguments, "never"))
        except NotReplicated as error:  # nobody will work on them: give them back, so that no attempt is spent
            with suppress(StoreError):
                released = [(claim, Released()) for claim in codec.claims(error.reply)]
                self._pool.run("settle", codec.settle_arguments(released, now_ms), "marked", is_confirmed=False)
            raise

    def extend(self, claims: Sequence[Claim], lease_ms: int, *, now_ms: int | None = None) -> list[Claim]:
        arguments = [codec.time_argument(now_ms), lease_ms]
        for claim in claims:
            arguments += (codec.seq(claim.number), claim.id, claim.token)
        return [claims[index - 1] for index in self._pool.run("extend", arguments, "same")]

    def take_over(
        self, handed: Sequence[tuple[str, int]], worker: str, lease_ms: int, *, now_ms: int | None = None
    ) -> list[Claim | None]:
        if not handed:
            return []
        arguments = [codec.time_argument(now_ms), worker, lease_ms, *(value for each in handed for value in each)]
        taken = {(claim.id, claim.token - 1): claim for claim in self._claim("take_over", arguments, now_ms)}
        return [taken.pop(each, None) for each in handed]

    def settle(self, settlements: Sequence[tuple[Claim, Outcome]], *, now_ms: int | None = None) -> list[Claim]:
        lost = self._pool.run("settle", codec.settle_arguments(settlements, now_ms), "marked")
        return [settlements[index - 1][0] for index in lost]

    def reclaim(self, limit: int, *, now_ms: int | None = None) -> int:
        return int(self._pool.run("reclaim", [codec.time_argument(now_ms), limit], "same"))

    def cancel(self, ids: Sequence[str], *, now_ms: int | None = None) -> list[str]:
        return [ids[index - 1] for index in self._pool.run("cancel", [codec.time_argument(now_ms), *ids], "never")]

    def retry(self, id: str, *, as_customer: bool = False, now_ms: int | None = None) -> bool:
        reply = self._pool.run("retry", [codec.time_argument(now_ms), id, int(as_customer)], "never")
        if isinstance(reply, list):
            raise limit_error(*reply[1:])
        return bool(reply)

    def purge(self, age_ms: int, limit: int, *, now_ms: int | None = None) -> Purged:
        documents, changes = self._pool.run("purge", [codec.time_argument(now_ms), age_ms, limit], "same")
        return Purged([Removed(*document) for document in documents], changes)

    def wait(self, timeout_seconds: float, kinds: Sequence[str] | None = None) -> bool:
        deadline = time.monotonic() + timeout_seconds
        with self._pool.listener() as listener:
            while True:
                listener.subscribe()
                is_ready, due_in_ms = self._pool.run("ready", [""] if kinds is None else kinds, "same")
                if is_ready:
                    return True
                left = min(deadline - time.monotonic(), POLL_SECONDS)
                if left <= 0:
                    return False
                listener.wait(left if due_in_ms < 0 else min(left, due_in_ms / 1000), POLL_UNSUBSCRIBED_SECONDS)

    # -- customers and rules -----------------------------------------------------------------------------------------

    def rules(self) -> Rules:
        return codec.parse_rules(*self._pool.run("rules", [], "same"))

    def configure(self, rules: Rules, *, now_ms: int | None = None) -> Rules | None:
        made = replace(rules, version=rules.version + 1)
        arguments = [codec.time_argument(now_ms), rules.version, encode_rules(made), *codec.rules_arguments(made)]
        return made if self._pool.run("configure", arguments, "never") else None

    def tune(self, customer: str, terms: Terms, version: int, *, now_ms: int | None = None) -> int | None:
        arguments = [codec.time_argument(now_ms), customer, version, encode_terms(terms), *codec.terms_arguments(terms)]
        return self._pool.run("tune", arguments, "never") or None

    def limit_kind(self, kind: str, limit: KindLimit, version: int, *, now_ms: int | None = None) -> int | None:
        arguments = [codec.time_argument(now_ms), kind, version, codec.kind_limit_text(limit)]
        arguments += [*codec.kind_limit_arguments(limit), encode_kind_limit(kind, limit)]
        return self._pool.run("limit_kind", arguments, "never") or None

    def prioritize(self, ids: Sequence[str], priority: int, by: str, *, now_ms: int | None = None) -> list[str]:
        arguments = [codec.time_argument(now_ms), priority, json.dumps(by), *ids]
        return [ids[index - 1] for index in self._pool.run("prioritize", arguments, "never")]

    def reprioritize(self, customer: str, after: int, limit: int, *, recheck: bool, now_ms: int | None = None) -> Reprioritized:
        changed, left, last, position = 0, limit, after, after
        while True:  # a customer may keep many documents that do not wait: some are examined at a time
            arguments = [codec.time_argument(now_ms), customer, position, left, int(recheck), EXAMINED_MAX]
            step_changed, waiting, step_last, has_more, position = self._pool.run("reprioritize", arguments, "never")
            changed, left, last = changed + step_changed, left - waiting, step_last or last
            if has_more:
                return Reprioritized(changed, last)
            if position == 0:
                return Reprioritized(changed, None)

    def reset(self, customer: str, *, now_ms: int | None = None) -> None:
        self._pool.run("reset", [codec.time_argument(now_ms), customer], "never")

    def forget(self, customer: str, limit: int, *, now_ms: int | None = None) -> list[Removed]:
        erased, is_forgotten = self._pool.run("forget", [codec.time_argument(now_ms), customer, limit], "same")
        if is_forgotten:
            self._sweep()
        return [Removed(*document) for document in erased]

    def _sweep(self) -> None:
        """Empty the feed's lines of forgotten customers; readers do not get them any more."""
        while self._pool.run("sweep", [LINES_MAX], "same"):
            pass

    # -- reads -------------------------------------------------------------------------------------------------------

    def now(self) -> int:
        return int(self._pool.run("now", [], "same"))

    def customer(self, customer: str, *, now_ms: int | None = None) -> Customer:
        now_ms, version, rules, *rows = self._pool.run("customers", [codec.time_argument(now_ms), 1, customer], "same")
        return codec.customer(rows[0] if rows else codec.never_seen(customer), codec.parse_rules(rules, version), now_ms)

    def customers(self, after: str, limit: int, *, now_ms: int | None = None) -> list[Customer]:
        now_ms, version, rules, *rows = self._pool.run("customers", [codec.time_argument(now_ms), 0, after, limit], "same")
        return [codec.customer(row, codec.parse_rules(rules, version), now_ms) for row in rows]

    def document(self, id: str) -> DocumentRow | None:
        _, *rows = self._pool.run("documents", ["id", id], "same")
        return codec.document(rows[0]) if rows else None

    def documents(self, filter: DocumentFilter, before: int | None, limit: int, scan_max: int = SCAN_MAX) -> DocumentPage:
        customer, state, *others = ("" if value is None else value for value in filter)
        if filter.reason is not None and filter.state is None:
            state = "failed"  # no other has a reason
        by, below = "customer" if customer else "all", "" if before is None else before
        arguments = [by, customer, state, *others, below, limit, min(scan_max, EXAMINED_MAX)]
        following, *rows = self._pool.run("documents", arguments, "same")
        return DocumentPage([codec.document(row) for row in rows], following or None)

    def body(self, id: str) -> DocumentBody | None:
        reply = self._pool.run("body", [id], "same")
        return None if reply is None else DocumentBody(*reply)

    def parts(self, id: str) -> list[PartRow]:
        return [PartRow(codec.document(row), result) for row, result in self._pool.run("parts", [id], "same")]

    def outlook(self, id: str, *, now_ms: int | None = None) -> Outlook | None:
        reply = self._pool.run("outlook", [codec.time_argument(now_ms), id], "same")
        if reply is None:
            return None
        now, priority, before, others, other_lanes, own_before, hold, *totals = reply
        ahead = estimate_ahead(before, others, other_lanes, own_before)
        return Outlook(now, priority, ahead, hold, codec.totals(totals))

    def totals(self) -> Totals:
        return codec.totals(self._pool.run("totals", [], "same"))

    def kind(self, kind: str) -> KindRow:
        return codec.kind(self._pool.run("kinds", [1, kind], "same")[0])

    def kinds(self, after: str, limit: int) -> list[KindRow]:
        return [codec.kind(row) for row in self._pool.run("kinds", [0, after, limit], "same")]

    def ready_kinds(self, after: str, limit: int) -> list[ReadyKind]:
        return [ReadyKind(*row) for row in self._pool.run("ready_kinds", [after, limit], "same")]

    def changes(self, after: int | None, limit: int) -> list[ChangeRow]:
        changes: list[ChangeRow] = []
        next_after = after or 0
        while len(changes) < limit:
            left = limit - len(changes)
            floor, next_after, *rows = self._pool.run("changes", [next_after, left, min(LINES_MAX, left + 100)], "same")
            if after is not None and after < floor and not changes:
                raise purged_feed_error(floor, after)
            changes += [ChangeRow(*row) for row in rows]
            if next_after == 0:
                break
        return changes

    # -- records -----------------------------------------------------------------------------------------------------

    def records(self, group: str, after: str, limit: int) -> list[Record]:
        return [Record(group, *row) for row in self._pool.run("records", [group, 0, after, limit], "same")]

    def record(self, group: str, key: str) -> Record | None:
        rows = self._pool.run("records", [group, 1, key], "same")
        return Record(group, *rows[0]) if rows else None

    def put_record(self, group: str, key: str, value: str | None, version: int | None = None) -> int | None:
        arguments: list[Any] = [group, key, int(value is not None), value or "", "" if version is None else version]
        new_version = int(self._pool.run("put_record", arguments, "never"))
        return None if new_version < 0 else new_version

    def rewrite(self, part: TextPart, texts: Sequence[Rewrite]) -> int:
        values = [value for text in texts for value in (codec.seq(text.number), text.before, text.after)]
        return int(self._pool.run("rewrite", [part, *values], "same"))

    # -- moving to another store -------------------------------------------------------------------------------------

    def pack(self, cursor: str | None, limit: int) -> Packed:
        return transfer.pack(self._pool, cursor, limit)

    def unpack(self, packed: Packed) -> None:
        transfer.unpack(self._pool, packed)
