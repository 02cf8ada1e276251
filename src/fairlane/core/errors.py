"""The errors that Fairlane raises, as one tree, grouped by who is at fault.

FairlaneError
├── Mistake            the call cannot succeed: change it
│   ├── BadValue       a value is out of its range (also a ValueError)
│   ├── KeyConflict    an idempotency key was used before with another body
│   ├── LimitReached   a customer has reached a limit: wait, or have an operator raise it
│   │   ├── QueueFull           as many of its documents wait as may: try again when some are done
│   │   ├── QuotaFull           it keeps as many documents or bytes as it may
│   │   ├── RetriesSpent        the customer has retried the document as often as it may
│   │   └── TooManyDescendants  as many documents came out of one, archives in archives included, as may
│   ├── Unknown        no such document, customer or queue
│   └── WrongState     the document is not in a state that allows this
└── StoreError         the store could not do it; a submission may be repeated with the same key
    ├── BlobDamaged    the bytes of a document are not those that were submitted: restore them from a copy
    ├── StoreBusy      other processes locked the store for too long: try again
    ├── StoreFull      the disk is full: free space, then try again
    ├── StoreFrozen    nothing new may begin here: the queue is being moved, was moved, or has rules that are gone
    ├── StoreUnfit     this store must not or cannot be used: network disk, old library, newer schema
    └── StoreUnreachable  no connection could be made in time: nothing was changed, try again later

Every message says what was wrong, with which value, and what to do.
A lost claim is not an error: engines return it as a value.
"""

from __future__ import annotations

from reprlib import Repr


class _ShortRepr(Repr):
    """Shows the beginning of a value: it may be huge or deeply nested."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 60
        self.maxtuple = self.maxlist = 12

    def repr_int(self, value: int, level: int) -> str:
        return f"a number of about {value.bit_length() // 3} digits" if value.bit_length() > 200 else repr(value)


_short = _ShortRepr()


class FairlaneError(Exception):
    """The base class: catch it to catch every error that Fairlane raises on purpose."""


class Mistake(FairlaneError):
    """The call cannot succeed as it is; the store was not changed."""


class BadValue(Mistake, ValueError):
    """A value is out of its range."""

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(f"{name} is {_short.repr(value)}; it must be {expected}")
        self.name = name
        self.value = value


class KeyConflict(Mistake):
    """An idempotency key was used before with another body."""

    def __init__(self, customer: str, key: str, document: str) -> None:
        super().__init__(
            f"key {key!r} of customer {customer!r} already belongs to document {document}, which has another body; "
            "send the same body to get its receipt again, or choose a new key"
        )
        self.document = document


class LimitReached(Mistake):
    """A customer has reached a limit, as in `waiting_max`; nothing was changed. `name` is that of the customer or document."""

    limit, name, used, adding, most = "", "", 0, 0, 0

    def __init__(self, message: str, limit: str, name: str, used: int, adding: int, most: int) -> None:
        super().__init__(message)
        self.limit, self.name, self.used, self.adding, self.most = limit, name, used, adding, most


class QueueFull(LimitReached):
    """As many of the customer's documents wait as may."""


class QuotaFull(LimitReached):
    """The customer keeps as many documents or bytes as it may."""


class RetriesSpent(LimitReached):
    """The customer has retried the document as often as it may."""


class TooManyDescendants(LimitReached):
    """As many documents came out of one, archives in archives included, as may."""


class Unknown(Mistake, LookupError):
    """No such document, customer or queue."""


class WrongState(Mistake):
    """The document is not in a state that allows this."""


class StoreError(FairlaneError):
    """The store failed; nothing was changed or, when the disk itself failed, that is not known."""


class BlobDamaged(StoreError):
    """The bytes of a document are not those that were written."""

    def __init__(self, document: str, expected: str, actual: str) -> None:
        super().__init__(
            f"the bytes of document {document} are damaged: there should be {expected}, and there are {actual}; "
            "see to the disk, and bring them back from a copy or submit the document again"
        )
        self.document = document


class StoreBusy(StoreError):
    """Other processes locked the store for too long."""


class StoreFull(StoreError):
    """There is no space left to write."""


class StoreUnfit(StoreError):
    """This store must not or cannot be used as it is."""


class StoreUnreachable(StoreError):
    """No connection to the store could be made in time; nothing was changed."""


class StoreFrozen(StoreError):
    """Nothing new may begin in this queue; running documents may still end."""

    def __init__(self, why: str) -> None:
        super().__init__(f"this queue {why}; nothing was changed")
