"""Verification of a store: recompute every recorded check from the change feed and compare it with what is stored.

Laws:
- The feed has the history in order; the policy code is that of production; nothing in the store is changed.
- A customer that retries a document, and an operator who resets a customer with its backlog, give documents another check,
  which takes the place of the one before: the feed has both.
- The priority of a document is that of its check, of the document it was made from, or one to which the feed says it was set.
- What a customer has and keeps (documents that wait and run, documents and bytes in all) is counted again from its documents.
- Checks under a reset that is gone cannot be repeated, nor those after it until the customer's next reset: they are skipped.
- If the feed was purged, a customer's state at its beginning is unknown; the customer is followed from its first reset on,
  because a counter of 0 after a check means a reset. Earlier checks count as skipped, never as correct.
- The queue may be in use meanwhile: a customer that changed during the comparison is compared again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fairlane.core.document import WAITING, ChangeRow, CheckRow, Customer, DocumentRow
from fairlane.core.errors import StoreError, Unknown
from fairlane.core.policy import (
    Rules,
    Standing,
    Terms,
    from_thousandths,
    operator_reset,
    step_of,
    weight_of,
)
from fairlane.engine import Engine
from fairlane.engine.codec import decode_rules, decode_terms, is_reset_gone, names_gone_reset
from fairlane.engine.protocol import DocumentFilter
from fairlane.engine.walk import walk_documents
from fairlane.queue import PAGE_SIZE, Queue

TRIES = 100  # to read a customer that keeps changing
USAGE_TRIES = 5  # to count the documents of such a customer
CHECKED_AGAIN = ("revived", "rechecked")
USAGE = ("waiting", "running", "documents kept", "bytes kept")


class Difference(NamedTuple):
    """A stored value that differs from the recomputed one."""

    customer: str
    what: str
    document: str | None
    stored: object
    replayed: object

    def __str__(self) -> str:
        subject = f"document {self.document}" if self.document else f"customer {self.customer!r}"
        return f"{subject}: {self.what} is {self.stored}; by the rules it should be {self.replayed}"


class Verification(NamedTuple):
    """What was compared, and the differences."""

    checks: int
    skipped: int  # checks whose beginning or rules lie before the kept feed, or whose rules are gone
    customers: int
    differences: tuple[Difference, ...]


def _usage(customer: Customer) -> tuple[int, ...]:
    return customer.waiting, customer.running, customer.documents, customer.bytes


def _count_usage(engine: Engine, customer: str) -> tuple[int, ...]:
    """Count what `_usage` returns from the documents themselves."""
    waiting = running = documents = size = 0
    for document in walk_documents(engine, DocumentFilter(customer=customer)):
        waiting += document.state in WAITING
        running += document.state == "running"
        documents, size = documents + 1, size + document.bytes
    return waiting, running, documents, size


def _check_from(customer: str, values: dict[str, int], checked_ms: int) -> CheckRow:
    """Return a check from its values in the feed."""
    return CheckRow(customer, values["priority"], values["counter"], checked_ms, values["policy"], values["terms"])


class _FeedIndex(NamedTuple):
    """Facts from the whole feed that are needed before it is replayed from its beginning."""

    is_complete: bool  # the feed goes back to the first change
    costs: dict[str, int]  # of documents whose cost was corrected: the cost at the check
    first_checks: dict[str, dict[str, int]]  # of documents that were checked again: the check of their submission
    newest_checks: dict[str, int]  # of the same documents: the change with the newest check
    priorities: dict[str, set[int]]  # of documents whose priority was changed without a check: all that they had
    tuned: set[str]  # customers whose terms changed
    rules_changed: bool


class _ReplayedCustomer:
    """A customer's state as recomputed from the feed."""

    __slots__ = ("standing", "terms", "terms_version")

    def __init__(self, standing: Standing | None, terms: Terms | None, terms_version: int) -> None:
        self.standing = standing  # None: unknown so far
        self.terms = terms  # None: unknown so far
        self.terms_version = terms_version


def verify(queue: Queue, progress: Callable[[int], None] = lambda _: None) -> Verification:
    """Recompute every recorded check; call `progress` with the number of changes replayed since its last call."""
    try:
        return _Verifier(queue, progress).result()
    except Unknown as error:
        raise StoreError("changes were purged while they were read; run verify again") from error


class _Verifier:
    def __init__(self, queue: Queue, progress: Callable[[int], None]) -> None:
        self.queue = queue
        self.progress = progress
        self.customers: dict[str, _ReplayedCustomer] = {}
        # (time, resets, weight) of the check, of documents whose cost was or may be corrected
        self.checked: dict[str, tuple[int, int, int]] = {}
        self.rechecked: dict[str, int] = {}  # the newest priority of documents that were checked again
        self.differences: list[Difference] = []
        self.checks = self.skipped = self.compared = 0
        self.changed: set[str] = set()  # customers that changed since a page of them was read
        self.index = _FeedIndex(self._is_complete(), {}, {}, {}, {}, set(), False)
        self.followed = self.indexed = 0 if self.index.is_complete else None  # the last change replayed, and indexed
        self._extend_index()
        self.began, self.has_erasures = self.indexed or 0, False  # the last change at the start; were documents erased since
        self.rules: Rules | None = self._first_rules()  # None: unknown so far, or gone
        self.rules_version = 1

    def result(self) -> Verification:
        self._follow_feed()
        self._compare_customers()
        return Verification(self.checks, self.skipped, self.compared, tuple(self.differences))

    # -- the state at the beginning ----------------------------------------------------------------------------------

    def _is_complete(self) -> bool:
        try:
            self.queue.engine.changes(0, 1)
        except Unknown:
            return False
        return True

    def _first_rules(self) -> Rules | None:
        if self.index.is_complete:
            return Rules()
        rules = self.queue.rules()
        self._extend_index()  # after reading the rules: a change before the read is then in the index
        return None if self.index.rules_changed or is_reset_gone(rules) else rules

    def _customer(self, customer: str) -> _ReplayedCustomer:
        state = self.customers.get(customer)
        if state is None:
            if self.index.is_complete:
                state = _ReplayedCustomer(Standing(), Terms(), 0)
            else:
                stored = self.queue.engine.customer(customer)
                self._extend_index()  # as for rules
                state = _ReplayedCustomer(None, None if customer in self.index.tuned else stored.terms, stored.terms_version)
            self.customers[customer] = state
        return state

    def _extend_index(self) -> None:
        """Index the changes that were added to the feed since the last call."""
        while page := self.queue.engine.changes(self.indexed, PAGE_SIZE):
            for change in page:
                if change.what == "forgotten" or (change.what == "corrected" and change.document is None):
                    self.has_erasures = True
                elif change.what == "corrected" and change.document and change.note:
                    self.index.costs.setdefault(change.document, int(change.note.split()[0]))
                elif change.what in CHECKED_AGAIN and change.document and change.note:
                    self.index.first_checks.setdefault(change.document, json.loads(change.note)["before"])
                    self.index.newest_checks[change.document] = change.number
                elif change.what == "prioritized" and change.document and change.note:
                    values = json.loads(change.note)
                    self.index.priorities.setdefault(change.document, set()).update((values["from"], values["to"]))
                elif change.what == "tuned" and change.customer:
                    self.index.tuned.add(change.customer)
                elif change.what == "configured":
                    self.index = self.index._replace(rules_changed=True)
            self.indexed = page[-1].number

    # -- replaying the feed ------------------------------------------------------------------------------------------

    def _follow_feed(self) -> None:
        """Replay the feed to its end, and record the customers that changed."""
        while page := self.queue.engine.changes(self.followed, PAGE_SIZE):
            documents = {
                change.document: self._document(change) for change in page if change.what in ("submitted", *CHECKED_AGAIN)
            }
            self._extend_index()  # after reading the documents: a cost that was corrected before is then in the index ...
            if self.has_erasures:  # ... unless its document was erased in between
                documents, self.has_erasures = {}, False
            for change in page:
                if change.customer is not None:
                    self.changed.add(change.customer)
                self._apply(change, documents.get(change.document))
            self.followed = page[-1].number
            self.progress(len(page))

    def _document(self, change: ChangeRow) -> DocumentRow | None:
        return None if change.document is None else self.queue.engine.document(change.document)

    def _apply(self, change: ChangeRow, document: DocumentRow | None) -> None:
        what, customer, note = change.what, change.customer, change.note or ""
        if what == "configured":
            self.rules_version += 1
            self.rules = None if names_gone_reset(note) else decode_rules(note, self.rules_version)
        elif what == "forgotten" and change.number > self.began:  # without the customer's id: forget all states
            self.index = self.index._replace(is_complete=False)
            self.customers.clear()
            self.checked.clear()
        if customer is None:
            return
        state = self._customer(customer)
        if what == "tuned":
            state.terms, state.terms_version = self._terms(note), state.terms_version + 1
        elif what == "reset":
            state.standing = operator_reset(state.standing or Standing())
        elif what in ("checked", *CHECKED_AGAIN) and note:
            self._checked(state, change, document, json.loads(note))
        elif what == "corrected":
            self._correct(state, change.document, note)
        elif what == "submitted" and change.note is None:
            self._submitted(state, document)
        elif what == "submitted":
            self._inherited(customer, document, note)

    def _terms(self, note: str) -> Terms | None:
        return None if names_gone_reset(note) else decode_terms(note)

    def _submitted(self, state: _ReplayedCustomer, document: DocumentRow | None) -> None:
        if document is None:  # erased meanwhile: its check is unknown
            state.standing = None
            self.skipped += 1
            return
        self._compare_priority(document, set())
        first = self.index.first_checks.get(document.id)
        check = document.check if first is None else _check_from(document.customer, first, document.submitted_ms)
        self._check(state, check, self.index.costs.get(document.id, document.cost), document.id, document.no_better_than)
        correctable = document.id in self.index.costs or document.state not in ("done", "cancelled")
        if correctable and state.standing is not None and state.terms is not None:
            self.checked[document.id] = check.checked_ms, state.standing.resets, weight_of(state.terms)

    def _checked(
        self, state: _ReplayedCustomer, change: ChangeRow, document: DocumentRow | None, stored: dict[str, int]
    ) -> None:
        """Recompute a check without a document, or of one that its customer retried: it has its newest check, too."""
        check = _check_from(change.customer or "", stored, change.at_ms)
        self._check(state, check, stored["cost"], change.document, None if document is None else document.no_better_than)
        if change.document is not None and state.standing is not None and state.terms is not None:
            self.checked[change.document] = check.checked_ms, state.standing.resets, weight_of(state.terms)
        if change.document is not None:
            self.rechecked[change.document] = check.priority
        if document is not None and self.index.newest_checks.get(document.id) == change.number:
            self._compare_values(check.customer, "counter", document.id, document.check.counter, check.counter)
            self._compare_values(check.customer, "priority", document.id, document.check.priority, check.priority)

    def _check(
        self, state: _ReplayedCustomer, stored: CheckRow, cost: int, document: str | None, no_better_than: int | None
    ) -> None:
        """Recompute a check, compare it, and continue from the recomputed state."""
        if self.rules is None or state.terms is None:
            state.standing = None
            self.skipped += 1
            return
        policy, step = state.terms.policy(self.rules.policy), step_of(cost, weight_of(state.terms))
        if state.standing is None:
            self.skipped += 1
            if stored.counter_thousandths == 0:
                state.standing = policy.check(Standing(), stored.checked_ms, step)
            return
        state.standing = policy.check(state.standing, stored.checked_ms, step)
        self.checks += 1
        priority = max(policy.level(state.standing.counter), no_better_than or 1)
        self._compare(stored, state, priority, document)

    def _compare(self, stored: CheckRow, state: _ReplayedCustomer, priority: int, document: str | None) -> None:
        assert state.standing is not None
        figures = [
            ("counter", stored.counter, from_thousandths(state.standing.counter)),
            ("priority", stored.priority, priority),
        ]
        if self.index.is_complete and self.rules is not None:
            figures += [
                ("policy version", stored.policy_version, self.rules.version),
                ("terms version", stored.terms_version, state.terms_version),
            ]
        for what, value, replayed in figures:
            self._compare_values(stored.customer, what, document, value, replayed)

    def _compare_values(self, customer: str, what: str, document: str | None, stored: object, replayed: object) -> None:
        if stored != replayed:
            self.differences.append(Difference(customer, what, document, stored, replayed))

    def _inherited(self, customer: str, document: DocumentRow | None, source: str) -> None:
        parent = self.queue.engine.document(source)
        if document is None or parent is None:
            self.skipped += 1
            return
        self.checks += 1
        self._compare_values(customer, "priority", document.id, self._priority_then(document), self._priority_then(parent))
        self._compare_priority(document, {parent.priority, *self.index.priorities.get(parent.id, ())})

    def _compare_priority(self, document: DocumentRow, inherited: set[int]) -> None:
        """Compare the priority with which a document waits, or waited: that of its check, unless it was set."""
        known = {document.check.priority, *self.index.priorities.get(document.id, ())} | inherited
        if document.priority not in known:
            self._compare_values(document.customer, "priority", document.id, document.priority, document.check.priority)

    def _priority_then(self, document: DocumentRow) -> int:
        """Return a document's priority at the change that is replayed now."""
        first = self.index.first_checks.get(document.id)
        return self.rechecked.get(document.id, document.check.priority if first is None else first["priority"])

    def _correct(self, state: _ReplayedCustomer, document: str | None, note: str) -> None:
        if document is None:  # erased meanwhile: its check is unknown
            state.standing = None
        if state.standing is None or document not in self.checked:
            return
        if self.rules is None or state.terms is None:
            state.standing = None
            return
        checked_ms, resets, weight = self.checked[document]
        before, after = (step_of(int(cost), weight) for cost in note.split())
        policy = state.terms.policy(self.rules.policy)
        state.standing = policy.correct(state.standing, checked_ms, resets, after - before)

    # -- comparing customers -----------------------------------------------------------------------------------------

    def _compare_customers(self) -> None:
        for page in self._pages():
            self._follow_feed()
            for customer in page:
                stored = self._read_unchanged(customer.id) if customer.id in self.changed else customer
                if stored is not None:
                    self._compare_customer(stored)
                self._compare_usage(customer.id)

    def _pages(self) -> Iterator[list[Customer]]:
        after = ""
        self.changed.clear()
        while page := self.queue.engine.customers(after, PAGE_SIZE):
            yield page
            after = page[-1].id
            self.changed.clear()

    def _read_unchanged(self, id: str) -> Customer | None:
        """Read a customer that does not change while the feed is replayed to its end; None if it changes at every try."""
        for _ in range(TRIES):
            self.changed.discard(id)
            customer = self.queue.engine.customer(id)
            self._follow_feed()
            if id not in self.changed:
                return customer
        return None

    def _compare_usage(self, id: str) -> None:
        """Count a customer's documents, unless they change meanwhile at every try."""
        for _ in range(USAGE_TRIES):
            self.changed.discard(id)
            before, counted = self.queue.engine.customer(id), _count_usage(self.queue.engine, id)
            stored = self.queue.engine.customer(id)
            self._follow_feed()
            if id not in self.changed and _usage(before) == _usage(stored):  # a purge is not in the feed
                for what, value, recounted in zip(USAGE, _usage(stored), counted, strict=True):
                    self._compare_values(id, what, None, value, recounted)
                return

    def _compare_customer(self, stored: Customer) -> None:
        state = self._customer(stored.id)
        if state.standing is None:
            return
        self.compared += 1
        self._compare_values(stored.id, "counter", None, stored.counter, from_thousandths(state.standing.counter))
        self._compare_values(stored.id, "last update", None, stored.standing.updated_ms, state.standing.updated_ms)
        if self.index.is_complete:
            self._compare_values(stored.id, "sent lately", None, stored.standing.parts, state.standing.parts)
            if state.terms is not None:
                self._compare_values(stored.id, "terms", None, stored.terms, state.terms)
