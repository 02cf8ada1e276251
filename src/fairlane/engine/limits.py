"""Limits of customers: which hold for one, what a call would add, and the error for what does not fit.

Laws:
- Limits are checked where documents are added, in the same step: all of a call fits, or nothing is changed.
- Only new documents count: one whose key is known gets its receipt, whatever the limits say.
- A family is a document and everything that came out of it, generation after generation. Its descendants are counted once for
  all, also after the first document was purged, until nothing of the family is left.
- Results are kept even beyond a quota, so that no work is lost; the customer's next document is refused. Only texts that grow
  far beyond the file they were read from are refused (extract/handler.py): small files must not fill the store.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

from fairlane.core.document import Customer, Submission
from fairlane.core.errors import BadValue, LimitReached, QueueFull, QuotaFull, RetriesSpent, TooManyDescendants
from fairlane.core.policy import NO_LIMITS, CustomerLimits, Rules, Terms

LIMIT_MAX = 10**15

# Where the JSON of payloads and results says how large their files are, see blobs/envelope.py.
_FILE_SIZE = re.compile(r'\{"fairlane\.file":\{.*?"size": (\d+)')
_RESULT_FILES = re.compile(r'"fairlane\.results":(\{(?:"\w+":\{"size":\d+,"sha256":"\w+"\},?)+\})')
_SIZE = re.compile(r'"size":(\d+)')

_ERRORS: Mapping[str, tuple[type[LimitReached], str]] = {
    "waiting_max": (
        QueueFull,
        "customer {name!r} has {used:,} of at most {most:,} documents waiting (waiting_max), so {adding:,} more cannot be "
        "taken; submit again when some are done, or have an operator raise the limit",
    ),
    "descendants_max": (
        TooManyDescendants,
        "{adding:,} more documents cannot come out of document {name}: of its family, archives in archives included, there are "
        "{used:,} of at most {most:,} (descendants_max); split the file, or have an operator raise the limit",
    ),
    "documents_max": (
        QuotaFull,
        "customer {name!r} keeps {used:,} of at most {most:,} documents (documents_max), so {adding:,} more cannot be taken; "
        "have an operator purge old ones, or raise the limit",
    ),
    "bytes_max": (
        QuotaFull,
        "customer {name!r} keeps {used:,} of at most {most:,} bytes (bytes_max), so {adding:,} more cannot be taken; have an "
        "operator purge old documents, or raise the limit",
    ),
    "retries_max": (
        RetriesSpent,
        "document {name} was retried by its customer {used:,} times of at most {most:,} (retries_max); submit it again as a "
        "new document, or have an operator retry it",
    ),
}


class Usage(NamedTuple):
    """What a customer has."""

    waiting: int
    documents: int  # kept, in any state
    bytes: int  # of their payloads, results and files


class Additions:
    """What the new documents of a call add, by customer and by family, in the order of the call."""

    def __init__(self, new: Sequence[Submission], root_of: Callable[[Submission], int | None] | None = None) -> None:
        self._new = new
        self.customers: dict[str, int] = {}
        self.families: dict[int, list[Submission]] = {}  # by the number of the first document
        for submission in new:
            self.customers[submission.customer] = self.customers.get(submission.customer, 0) + 1
            if root_of is not None and source_of(submission) is not None and (root := root_of(submission)) is not None:
                self.families.setdefault(root, []).append(submission)

    def bytes_of(self, customer: str) -> int:
        """Return the bytes that a customer's new documents take."""
        return sum(submission_bytes(submission) for submission in self._new if submission.customer == customer)


def new_submissions(submissions: Sequence[Submission], known: Container[tuple[str, str]]) -> Sequence[Submission]:
    """Return the submissions that make a document: their (customer, key) is not known, and comes for the first time."""
    if all(submission.key is None for submission in submissions):
        return submissions
    new, in_batch = [], set[tuple[str, str]]()
    for submission in submissions:
        key = None if submission.key is None else (submission.customer, submission.key)
        if key is None or (key not in known and key not in in_batch):
            new.append(submission)
        if key is not None:
            in_batch.add(key)
    return new


def source_of(submission: Submission) -> str | None:
    """Return the document that a submission comes out of."""
    return submission.made_from or submission.parent


def text_bytes(text: str | None) -> int:
    """Return how many bytes a text takes in UTF-8."""
    return 0 if text is None else len(text) if text.isascii() else len(text.encode())


def stored_bytes(payload: str, result: str | None) -> int:
    """Return the bytes of a stored payload and result, and of the files that they name."""
    file = _FILE_SIZE.match(payload)
    files = _RESULT_FILES.search(result) if result else None
    sizes = [int(file[1])] if file else []
    sizes += [int(size) for size in _SIZE.findall(files[1])] if files else []
    return text_bytes(payload) + text_bytes(result) + sum(sizes)


def submission_bytes(submission: Submission) -> int:
    """Return the bytes of a submission's payload and file."""
    return text_bytes(submission.payload) + submission.file_bytes


def limits_of(terms: Terms, rules: Rules) -> CustomerLimits:
    """Return the limits that hold for a customer: its own, else everybody's."""
    own = terms.limits
    if own == NO_LIMITS:
        return rules.limits
    return CustomerLimits(*(most if value is None else value for value, most in zip(own, rules.limits, strict=True)))


def change_limits(limits: CustomerLimits, changes: Mapping[str, Any]) -> CustomerLimits:
    """Return the limits with some changed; raise BadValue for a value that is none."""
    for name, value in changes.items():
        if value is not None and (type(value) is not int or not 0 <= value <= LIMIT_MAX):
            raise BadValue(name, value, f"a whole number from 0 to {LIMIT_MAX:,}, or None")
    return limits._replace(**changes)


def refuse_family(members: Sequence[Submission], used: int, limits: CustomerLimits) -> None:
    """Raise TooManyDescendants if a family would have more than may come out of one document."""
    _refuse("descendants_max", source_of(members[0]) or "", used, len(members), limits.descendants_max)


def refuse_customer(customer: str, additions: Additions, usage: Usage, limits: CustomerLimits) -> None:
    """Raise QueueFull or QuotaFull if a customer would have more than it may."""
    adding = additions.customers[customer]
    _refuse("waiting_max", customer, usage.waiting, adding, limits.waiting_max)
    _refuse("documents_max", customer, usage.documents, adding, limits.documents_max)
    if limits.bytes_max is not None:
        _refuse("bytes_max", customer, usage.bytes, additions.bytes_of(customer), limits.bytes_max)


def refuse_full(customer: Customer, documents: int, size: int) -> None:
    """Raise QueueFull or QuotaFull if a customer, as it was read, could not take so many documents and bytes more."""
    _refuse("waiting_max", customer.id, customer.waiting, documents, customer.limits.waiting_max)
    _refuse("documents_max", customer.id, customer.documents, documents, customer.limits.documents_max)
    refuse_bytes(customer, size)


def refuse_bytes(customer: Customer, size: int) -> None:
    """Raise QuotaFull if a customer, as it was read, could not keep so many bytes more."""
    _refuse("bytes_max", customer.id, customer.bytes, size, customer.limits.bytes_max)


def refuse_retry(id: str, customer: str, retries: int | None, waiting: Callable[[], int], limits: CustomerLimits) -> None:
    """Raise an error if a document may not wait again; `retries` by its customer so far, None: an operator retries it."""
    if retries is not None:
        _refuse("retries_max", id, retries, 1, limits.retries_max)
    if limits.waiting_max is not None:
        _refuse("waiting_max", customer, waiting(), 1, limits.waiting_max)


def _refuse(limit: str, name: str, used: int, adding: int, most: int | None) -> None:
    if most is not None and used + adding > most:
        raise limit_error(limit, name, used, adding, most)


def limit_error(limit: str, name: str, used: int, adding: int, most: int) -> LimitReached:
    """Return the error of a limit that `used` and `adding` together exceed, for a customer or a document."""
    error, message = _ERRORS[limit]
    return error(message.format(name=name, used=used, adding=adding, most=most), limit, name, used, adding, most)
