"""The engine on a Redis or Valkey server: many machines, one Lua script a verb, acknowledged as the server's settings say.

Every verb is one script, so it happens wholly or not at all, in the order in which the server runs them. What fair means is
in lua/basis.lua and lua/claim.lua; here values become arguments, and answers become values.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fairlane.core.dispatch import Pace, estimate_ahead
from fairlane.core.document import (
    Change,
    Check,
    Claim,
    Customer,
    Document,
    Outcome,
    Outlook,
    Receipt,
    Record,
    State,
    Submission,
)
from fairlane.core.errors import KeyConflict, StoreUnfit, Unknown
from fairlane.core.policy import Rules, Terms
from fairlane.engine.codec import encode_rules, encode_terms
from fairlane.engine.errors import purged_feed_error, unknown_source_error
from fairlane.engine.protocol import DUE_MAX, DocumentBody, Finding, Packed, Purged

from . import codec, transfer
from .connection import PATIENCE_SECONDS, Link
from .diagnostics import diagnose
from .server import FLAGS_SINCE, durability, inspect, refuse_unfit
from .url import place_of

FORM = 3
LOOKS_MAX = 2000  # documents that one script looks at to fill a page
LINES_MAX = 2000  # lines of the feed that one script reads or sweeps
LOOK_AGAIN_SECONDS = 5.0  # a signal may be lost; whoever waits looks again after so long
ALONE_SECONDS = 0.1  # and after so long where signals cannot be heard at all


class RedisEngine:
    """A queue on a server."""

    def __init__(self, url: str, create: bool = True) -> None:
        self._place = place_of(url)
        self._create = create
        self._link = Link(self._place)
        try:
            self._server = inspect(self._link)
            refuse_unfit(self._server, self._place.shown)
        except BaseException:
            self._link.close()
            raise
        self._link.has_flags = self._server.numbers[:2] >= FLAGS_SINCE

    @property
    def durability(self) -> str:
        return durability(self._server)

    def migrate(self) -> None:
        everybody = Rules()
        wanted = "create" if self._create else "look"
        arguments = [wanted, encode_rules(everybody), *codec.rules_arguments(everybody)]
        form = self._link.run("migrate", arguments, "plain")
        if form == 0:
            raise Unknown(
                f"there is no queue {self._place.queue!r} at {self._place.shown}; submit or check something first, or give "
                "another --url"
            )
        if form < FORM:
            raise StoreUnfit(
                f"the queue at {self._place.shown} was made by an older Fairlane (form {form}), in a layout that this one "
                "cannot read; move it with that version, or begin another queue with ?queue=NAME"
            )
        if form > FORM:
            raise StoreUnfit(f"the queue at {self._place.shown} was made by a newer Fairlane (form {form}); upgrade this one")
        self._link.patience_seconds = PATIENCE_SECONDS
        self._sweep()

    def close(self) -> None:
        self._link.close()

    def diagnose(self) -> list[Finding]:
        return diagnose(self._link, FORM)

    # -- documents ---------------------------------------------------------------------------------------------------

    def check(self, customer: str, cost: int, *, now_ms: int | None = None) -> Check:
        return Check(customer, *self._link.run("check", [codec.moment(now_ms), customer, cost], "never"))

    def submit(self, submissions: Sequence[Submission], *, now_ms: int | None = None) -> list[Receipt]:
        if codec.is_plain(submissions):
            answer = self._link.run("submit_one", codec.submit_one_arguments(submissions[0], now_ms), "told")
            return codec.receipts(submissions, answer)
        answer = self._link.run("submit", codec.submit_arguments(submissions, now_ms), "told")
        if answer and answer[0] == "unknown":
            raise unknown_source_error(codec.first_from(submissions, answer[1], answer[2]))
        if answer and answer[0] == "conflict":
            raise KeyConflict(*answer[1:])
        return codec.receipts(submissions, answer)

    def claim(
        self,
        worker: str,
        limit: int,
        lease_ms: int,
        kinds: Mapping[str, int] | None = None,
        *,
        now_ms: int | None = None,
    ) -> list[Claim]:
        wanted = [-1] if kinds is None else [len(kinds), *(value for pair in kinds.items() for value in pair)]
        answer = self._link.run("claim", [codec.moment(now_ms), worker, limit, lease_ms, DUE_MAX, *wanted], "never")
        return codec.claims(answer)

    def extend(self, claims: Sequence[Claim], lease_ms: int, *, now_ms: int | None = None) -> list[Claim]:
        arguments = [codec.moment(now_ms), lease_ms]
        for one in claims:
            arguments += (codec.place(one.number), one.id, one.token)
        return [claims[place - 1] for place in self._link.run("extend", arguments, "plain")]

    def settle(self, settlements: Sequence[tuple[Claim, Outcome]], *, now_ms: int | None = None) -> list[Claim]:
        lost = self._link.run("settle", codec.settle_arguments(settlements, now_ms), "told")
        return [settlements[place - 1][0] for place in lost]

    def reclaim(self, limit: int, *, now_ms: int | None = None) -> int:
        return int(self._link.run("reclaim", [codec.moment(now_ms), limit], "plain"))

    def cancel(self, ids: Sequence[str], *, now_ms: int | None = None) -> list[str]:
        return [ids[place - 1] for place in self._link.run("cancel", [codec.moment(now_ms), *ids], "never")]

    def retry(self, id: str, *, now_ms: int | None = None) -> bool:
        return bool(self._link.run("retry", [codec.moment(now_ms), id], "never"))

    def purge(self, age_ms: int, limit: int, *, now_ms: int | None = None) -> Purged:
        return Purged(*self._link.run("purge", [codec.moment(now_ms), age_ms, limit], "plain"))

    def wait(self, timeout_seconds: float, kinds: Sequence[str] | None = None) -> bool:
        deadline = time.monotonic() + timeout_seconds
        with self._link.listener() as listener:
            while True:
                listener.begin()
                is_ready, due_in_ms = self._link.run("ready", [""] if kinds is None else kinds, "plain")
                if is_ready:
                    return True
                left = min(deadline - time.monotonic(), LOOK_AGAIN_SECONDS)
                if left <= 0:
                    return False
                listener.listen(left if due_in_ms < 0 else min(left, due_in_ms / 1000), ALONE_SECONDS)

    # -- customers and rules -----------------------------------------------------------------------------------------

    def rules(self) -> Rules:
        return codec.rules_of(*self._link.run("rules", [], "plain"))

    def configure(self, rules: Rules, *, now_ms: int | None = None) -> Rules | None:
        made = replace(rules, version=rules.version + 1)
        arguments = [codec.moment(now_ms), rules.version, encode_rules(made), *codec.rules_arguments(made)]
        return made if self._link.run("configure", arguments, "never") else None

    def tune(self, customer: str, terms: Terms, version: int, *, now_ms: int | None = None) -> int | None:
        arguments = [codec.moment(now_ms), customer, version, encode_terms(terms), *codec.terms_arguments(terms)]
        return self._link.run("tune", arguments, "never") or None

    def reset(self, customer: str, *, now_ms: int | None = None) -> None:
        self._link.run("reset", [codec.moment(now_ms), customer], "never")

    def forget(self, customer: str, limit: int, *, now_ms: int | None = None) -> int:
        erased, is_gone = self._link.run("forget", [codec.moment(now_ms), customer, limit], "plain")
        if is_gone:
            self._sweep()
        return int(erased)

    def _sweep(self) -> None:
        """Empty the lines of the feed that forgotten customers left, which nobody is shown any more."""
        while self._link.run("sweep", [LINES_MAX], "plain"):
            pass

    # -- looking: moves nothing --------------------------------------------------------------------------------------

    def customer(self, customer: str, *, now_ms: int | None = None) -> Customer:
        now_ms, version, rules, *rows = self._link.run("customers", [codec.moment(now_ms), 1, customer], "plain")
        return codec.customer(rows[0] if rows else codec.never_seen(customer), codec.rules_of(rules, version), now_ms)

    def customers(self, after: str, limit: int, *, now_ms: int | None = None) -> list[Customer]:
        now_ms, version, rules, *rows = self._link.run("customers", [codec.moment(now_ms), 0, after, limit], "plain")
        return [codec.customer(row, codec.rules_of(rules, version), now_ms) for row in rows]

    def document(self, id: str) -> Document | None:
        _, *rows = self._link.run("documents", ["id", id, "", "", 1, 1], "plain")
        return codec.document(rows[0]) if rows else None

    def documents(self, customer: str | None, state: State | None, before: int | None, limit: int) -> list[Document]:
        found: list[Document] = []
        by, subject = ("all", "") if customer is None else ("customer", customer)
        below = "" if before is None else before
        while len(found) < limit:
            looks = max(limit - len(found), LOOKS_MAX)
            arguments = [by, subject, state or "", below, limit - len(found), min(looks, 5 * LOOKS_MAX)]
            below, *rows = self._link.run("documents", arguments, "plain")
            found += map(codec.document, rows)
            if below == 0:
                break
        return found

    def body(self, id: str) -> DocumentBody | None:
        answer = self._link.run("body", [id], "plain")
        return None if answer is None else DocumentBody(*answer)

    def outlook(self, id: str, *, now_ms: int | None = None) -> Outlook | None:
        answer = self._link.run("outlook", [codec.moment(now_ms), id], "plain")
        if answer is None:
            return None
        now, before, others, other_lanes, own_before, is_blocked, dispatches, *pace, oldest = answer
        ahead = estimate_ahead(before, others, other_lanes, own_before)
        return Outlook(now, ahead, bool(is_blocked), *Pace(*pace).recent(now, dispatches), oldest)

    def changes(self, after: int | None, limit: int) -> list[Change]:
        found: list[Change] = []
        go_on = after or 0
        while len(found) < limit:
            left = limit - len(found)
            floor, go_on, *rows = self._link.run("changes", [go_on, left, min(LINES_MAX, left + 100)], "plain")
            if after is not None and after < floor and not found:
                raise purged_feed_error(floor, after)
            found += [Change(*row) for row in rows]
            if go_on == 0:
                break
        return found

    # -- records -----------------------------------------------------------------------------------------------------

    def records(self, group: str, after: str, limit: int) -> list[Record]:
        return [Record(group, *row) for row in self._link.run("records", [group, 0, after, limit], "plain")]

    def record(self, group: str, key: str) -> Record | None:
        rows = self._link.run("records", [group, 1, key], "plain")
        return Record(group, *rows[0]) if rows else None

    def put_record(self, group: str, key: str, value: str | None, version: int | None = None) -> int | None:
        arguments: list[Any] = [group, key, int(value is not None), value or "", "" if version is None else version]
        made = int(self._link.run("put_record", arguments, "never"))
        return None if made < 0 else made

    # -- moving to another store -------------------------------------------------------------------------------------

    def pack(self, cursor: str | None, limit: int) -> Packed:
        return transfer.pack(self._link, cursor, limit)

    def unpack(self, packed: Packed) -> None:
        transfer.unpack(self._link, packed)
