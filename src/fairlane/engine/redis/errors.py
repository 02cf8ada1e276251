"""What does a server refuse, and what is to be done about it?"""

from __future__ import annotations

from fairlane.core.errors import StoreBusy, StoreError, StoreFrozen, StoreFull, StoreUnfit

from .url import Place

FROZEN = "FAIRLANE_FROZEN "  # and why

REFUSALS: tuple[tuple[tuple[str, ...], type[StoreError], str], ...] = (
    # words of the server's answer, what it is here, and what to do
    (
        ("FAIRLANE_GONE",),
        StoreError,
        "the queue {queue!r} at {at} is not there any more: the server was flushed, or restarted without its data; restore the "
        "data, or open the queue again to begin with an empty one",
    ),
    (
        ("FAIRLANE_FORM",),
        StoreUnfit,
        "the queue {queue!r} at {at} was made by another Fairlane, in a layout this one cannot read; use the newer of both",
    ),
    (
        ("WRONGPASS", "NOAUTH", "invalid password", "no password is set", "without any password"),
        StoreUnfit,
        "the server at {at} refuses the user or password ({told}); give the right ones in the URL: redis://user:password@host",
    ),
    (
        ("OOM command",),
        StoreFull,
        "the server at {at} has no memory left ({told}); raise its maxmemory, or purge; nothing was changed",
    ),
    (
        ("MISCONF",),
        StoreFull,
        "the server at {at} cannot write its data to disk ({told}); make room; nothing was changed",
    ),
    (
        ("BUSY ",),
        StoreBusy,
        "the server at {at} is busy with another script ({told}); try again",
    ),
    (
        ("NOPERM", "permissions"),
        StoreUnfit,
        "the server at {at} does not allow its user what a queue needs ({told}); allow it scripts, and all commands on keys "
        "and channels that begin with {prefix}",
    ),
    (
        ("READONLY", "MASTERDOWN"),
        StoreUnfit,
        "the server at {at} is a replica, which cannot be written; give the URL of its primary",
    ),
    (
        ("MOVED", "CLUSTERDOWN", "CROSSSLOT"),
        StoreUnfit,
        "the server at {at} is part of a cluster, which is not supported; give a single server",
    ),
)


def told_plainly(error: Exception, place: Place) -> StoreError:
    """What a server refuses, said as what to do about it."""
    told, at = f"{getattr(error, 'status_code', None) or ''} {error}".strip(), place.shown
    if FROZEN in told:
        return StoreFrozen(told.partition(FROZEN)[2])
    for words, kind, message in REFUSALS:
        if any(word in told for word in words):
            return kind(message.format(at=at, told=told, queue=place.queue, prefix=place.prefix))
    return StoreError(f"the server at {at} refused it: {told}; nothing was changed")
