"""Does the store say what the rules say? Every recorded check is made again and compared.

Laws:
- The feed tells what happened, in order; the policy is the one of production; nothing in the store is moved.
- Where a beginning is not known, because the feed was purged up to there, a customer is followed from its first reset on:
  a counter of 0 right after a check comes from nothing else. What comes before is counted as skipped, never as right.
- A queue may be in use meanwhile: a customer that moved while it was compared is compared again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fairlane.core.document import ChangeRow, CheckRow, Customer, DocumentRow
from fairlane.core.errors import StoreError, Unknown
from fairlane.core.policy import Policy, Rules, Standing, Terms, correct_counter, from_thousandths, operator_reset, step_of
from fairlane.engine.codec import decode_rules, decode_terms
from fairlane.queue import PAGE_SIZE, Queue

TRIES = 100  # looks at a customer that keeps moving


class Difference(NamedTuple):
    """One figure of the store that is not what the rules say."""

    customer: str
    what: str
    document: str | None
    stored: object
    replayed: object

    def __str__(self) -> str:
        where = f"document {self.document}" if self.document else f"customer {self.customer!r}"
        return f"{where}: {self.what} is {self.stored}, the rules say {self.replayed}"


class Verdict(NamedTuple):
    """What was compared, and what was found."""

    checks: int
    skipped: int  # checks whose beginning or rules lie before the kept feed
    customers: int
    differences: tuple[Difference, ...]


class _Index(NamedTuple):
    """What must be known before the feed is followed from its beginning."""

    whole: bool  # the feed goes back to the first change
    costs: dict[str, int]  # of documents whose cost was corrected: what it was at the check
    tuned: set[str]  # customers whose terms changed
    configured: bool  # the rules changed


class _Life:
    """A customer as the feed tells it."""

    __slots__ = ("standing", "terms", "terms_version")

    def __init__(self, standing: Standing | None, terms: Terms | None, terms_version: int) -> None:
        self.standing = standing  # None: not known yet
        self.terms = terms  # None: not known yet
        self.terms_version = terms_version


def verify(queue: Queue, progress: Callable[[int], None] = lambda _: None) -> Verdict:
    """Make every recorded check again; `progress` is told how many changes were followed since its last call."""
    try:
        return _Verification(queue, progress).verdict()
    except Unknown as error:
        raise StoreError("changes were purged while they were followed; run verify again") from error


class _Verification:
    def __init__(self, queue: Queue, progress: Callable[[int], None]) -> None:
        self.queue = queue
        self.progress = progress
        self.lives: dict[str, _Life] = {}
        self.checked: dict[
            str, tuple[int, int]
        ] = {}  # of documents that are or may be corrected: (resets, weight) at their check
        self.differences: list[Difference] = []
        self.checks = self.skipped = self.compared = 0
        self.moved: set[str] = set()  # customers that moved since a page of them was read
        self.index = _Index(self._is_whole(), {}, set(), False)
        self.followed = self.indexed = 0 if self.index.whole else None  # the last change that was followed, and read
        self._read_on()
        self.began, self.erased = self.indexed or 0, False  # the last change before us; whether documents were erased since
        self.rules: Rules | None = self._first_rules()

    def verdict(self) -> Verdict:
        self._follow()
        self._compare_customers()
        return Verdict(self.checks, self.skipped, self.compared, tuple(self.differences))

    # -- before the beginning ----------------------------------------------------------------------------------------

    def _is_whole(self) -> bool:
        try:
            self.queue.changes(0, 1)
        except Unknown:
            return False
        return True

    def _first_rules(self) -> Rules | None:
        if self.index.whole:
            return Rules()
        rules = self.queue.rules()
        self._read_on()  # rules that were changed before they were read are in the index
        return None if self.index.configured else rules

    def _life(self, customer: str) -> _Life:
        life = self.lives.get(customer)
        if life is None:
            if self.index.whole:
                life = _Life(Standing(), Terms(), 0)
            else:
                known = self.queue.engine.customer(customer)
                self._read_on()  # as for rules
                life = _Life(None, None if customer in self.index.tuned else known.terms, known.terms_version)
            self.lives[customer] = life
        return life

    def _read_on(self) -> None:
        """Index what was added to the feed since the last time."""
        while page := self.queue.changes(self.indexed, PAGE_SIZE):
            for change in page:
                if change.what == "forgotten" or (change.what == "corrected" and change.document is None):
                    self.erased = True
                elif change.what == "corrected" and change.document and change.note:
                    self.index.costs.setdefault(change.document, int(change.note.split()[0]))
                elif change.what == "tuned" and change.customer:
                    self.index.tuned.add(change.customer)
                elif change.what == "configured":
                    self.index = self.index._replace(configured=True)
            self.indexed = page[-1].number

    # -- following ---------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Follow the feed to its end, and note the customers that moved."""
        while page := self.queue.changes(self.followed, PAGE_SIZE):
            documents = {one.document: self._document(one) for one in page if one.what == "submitted"}
            self._read_on()  # after the documents were read: a cost that was corrected before that is in the index ...
            if self.erased:  # ... unless its document was erased in between
                documents, self.erased = {}, False
            for change in page:
                if change.customer is not None:
                    self.moved.add(change.customer)
                self._fold(change, documents.get(change.document))
            self.followed = page[-1].number
            self.progress(len(page))

    def _document(self, change: ChangeRow) -> DocumentRow | None:
        return None if change.document is None else self.queue.engine.document(change.document)

    def _fold(self, change: ChangeRow, document: DocumentRow | None) -> None:
        what, customer, note = change.what, change.customer, change.note or ""
        if what == "configured":
            version = self.rules.version + 1 if self.rules else 0
            self.rules = decode_rules(note, version)
        elif what == "forgotten" and change.number > self.began:  # who it was is not told: follow everybody anew
            self.index = self.index._replace(whole=False)
            self.lives.clear()
            self.checked.clear()
        if customer is None:
            return
        life = self._life(customer)
        if what == "tuned":
            life.terms, life.terms_version = decode_terms(note), life.terms_version + 1
        elif what == "reset":
            life.standing = operator_reset(life.standing or Standing())
        elif what == "checked":
            told = json.loads(note)
            check = CheckRow(customer, told["priority"], told["counter"], change.at_ms, told["policy"], told["terms"])
            self._check(life, check, told["cost"], None)
        elif what == "corrected":
            self._correct(life, change.document, note)
        elif what == "submitted" and change.note is None:
            self._submitted(life, document)
        elif what == "submitted":
            self._inherited(customer, document, note)

    def _submitted(self, life: _Life, document: DocumentRow | None) -> None:
        if document is None:  # erased meanwhile: what its check did is not known
            life.standing = None
            self.skipped += 1
            return
        self._check(life, document.check, self.index.costs.get(document.id, document.cost), document.id)
        correctable = document.id in self.index.costs or document.state not in ("done", "cancelled")
        if correctable and life.standing is not None and life.terms is not None:
            self.checked[document.id] = life.standing.resets, life.terms.weight_thousandths

    def _check(self, life: _Life, stored: CheckRow, cost: int, document: str | None) -> None:
        """Make a check again, compare it, and go on from what the rules say."""
        if self.rules is None or life.terms is None:
            life.standing = None
            self.skipped += 1
            return
        policy = life.terms.policy(self.rules.policy)
        if life.standing is None:
            self.skipped += 1
            if stored.counter_thousandths == 0:
                life.standing = Standing(0, stored.checked_ms, stored.checked_ms)
            return
        step = step_of(cost, life.terms.weight_thousandths)
        life.standing = policy.check(life.standing, stored.checked_ms, step)
        self.checks += 1
        self._compare(stored, life, policy, document)

    def _compare(self, stored: CheckRow, life: _Life, policy: Policy, document: str | None) -> None:
        assert life.standing is not None
        counter = life.standing.counter
        figures = [
            ("counter", stored.counter, from_thousandths(counter)),
            ("priority", stored.priority, policy.level(counter)),
        ]
        if self.index.whole and self.rules is not None:
            figures += [
                ("policy version", stored.policy_version, self.rules.version),
                ("terms version", stored.terms_version, life.terms_version),
            ]
        for what, said, replayed in figures:
            self._found(stored.customer, what, document, said, replayed)

    def _found(self, customer: str, what: str, document: str | None, stored: object, replayed: object) -> None:
        if stored != replayed:
            self.differences.append(Difference(customer, what, document, stored, replayed))

    def _inherited(self, customer: str, document: DocumentRow | None, source: str) -> None:
        made_from = self.queue.engine.document(source)
        if document is None or made_from is None:
            self.skipped += 1
            return
        self.checks += 1
        self._found(customer, "priority", document.id, document.priority, made_from.priority)

    def _correct(self, life: _Life, document: str | None, note: str) -> None:
        if document is None:  # erased meanwhile: which check it belongs to is not known
            life.standing = None
        if life.standing is None or document not in self.checked:
            return
        resets, weight = self.checked[document]
        before, after = (step_of(int(cost), weight) for cost in note.split())
        life.standing = correct_counter(life.standing, resets, before, after)

    # -- at the end --------------------------------------------------------------------------------------------------

    def _compare_customers(self) -> None:
        for page in self._pages():
            self._follow()
            for known in page:
                if known.id in self.moved:
                    again = self._at_rest(known.id)
                    if again is None:
                        continue
                    known = again
                self._compare_customer(known)

    def _pages(self) -> Iterator[list[Customer]]:
        after = ""
        self.moved.clear()
        while page := self.queue.engine.customers(after, PAGE_SIZE):
            yield page
            after = page[-1].id
            self.moved.clear()

    def _at_rest(self, customer: str) -> Customer | None:
        """A customer as it stood when the feed was followed to its end; None if it never stands still."""
        for _ in range(TRIES):
            self.moved.discard(customer)
            known = self.queue.engine.customer(customer)
            self._follow()
            if customer not in self.moved:
                return known
        return None

    def _compare_customer(self, known: Customer) -> None:
        life = self._life(known.id)
        if life.standing is None:
            return
        self.compared += 1
        self._found(known.id, "counter", None, known.counter, from_thousandths(life.standing.counter))
        self._found(known.id, "last update", None, known.standing.updated_ms, life.standing.updated_ms)
        if self.index.whole:
            self._found(known.id, "last reset", None, known.standing.reset_ms, life.standing.reset_ms)
            self._found(known.id, "terms", None, known.terms, life.terms)
