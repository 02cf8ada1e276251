"""Redis errors translated to Fairlane's: what was wrong, where, and what to do."""

from __future__ import annotations

from typing import Any

from fairlane.core.errors import StoreBusy, StoreError, StoreFrozen, StoreFull, StoreUnfit

from .url import RedisUrl

FROZEN = "FAIRLANE_FROZEN "  # followed by the reason

TRANSLATIONS: tuple[tuple[tuple[str, ...], type[StoreError], str], ...] = (
    # words of the server's error, our error, and the message
    (
        ("FAIRLANE_GONE",),
        StoreError,
        "the queue {queue!r} at {server} is not there any more: the server was flushed, or restarted without its data; restore "
        "the data, or open the queue again to begin with an empty one",
    ),
    (
        ("FAIRLANE_FORM",),
        StoreUnfit,
        "the queue {queue!r} at {server} was made by another Fairlane, in a layout this one cannot read; use the newer of both",
    ),
    (
        ("WRONGPASS", "NOAUTH", "invalid password", "no password is set", "without any password"),
        StoreUnfit,
        "the server at {server} refuses the user or password ({reason}); give the right ones in the URL: redis://user:password@host",
    ),
    (
        ("OOM command",),
        StoreFull,
        "the server at {server} has no memory left ({reason}); raise its maxmemory, or purge; nothing was changed",
    ),
    (
        ("MISCONF",),
        StoreFull,
        "the server at {server} cannot write its data to disk ({reason}); make room; nothing was changed",
    ),
    (
        ("BUSY ",),
        StoreBusy,
        "the server at {server} is busy with another script ({reason}); try again",
    ),
    (
        ("NOPERM", "permissions"),
        StoreUnfit,
        "the server at {server} does not allow its user what a queue needs ({reason}); allow it scripts, and all commands on "
        "keys and channels that begin with {prefix}",
    ),
    (
        ("READONLY", "MASTERDOWN"),
        StoreUnfit,
        "the server at {server} is a replica, which cannot be written; give the URL of its primary",
    ),
    (
        ("MOVED", "CLUSTERDOWN", "CROSSSLOT"),
        StoreUnfit,
        "the server at {server} is part of a cluster, which is not supported; give a single server",
    ),
)


class NotReplicated(StoreError):
    """The primary has done it, and too few replicas confirmed it in time."""

    def __init__(self, url: RedisUrl, verb: str, count: int, reply: Any) -> None:
        super().__init__(
            f"the primary at {url.display} has done {verb}, but only {count} of {url.replicas} replicas confirmed it within "
            f"{url.replicas_timeout:g} s: it is lost if the primary fails now; check the replicas, then look, or submit again "
            "with the same key, which returns the receipt once they have it"
        )
        self.reply = reply


def translate_error(error: Exception, url: RedisUrl) -> StoreError:
    """Translate an error that the server answered with."""
    reason = f"{getattr(error, 'status_code', None) or ''} {error}".strip()
    if FROZEN in reason:
        return StoreFrozen(reason.partition(FROZEN)[2])
    for words, error_type, message in TRANSLATIONS:
        if any(word in reason for word in words):
            return error_type(message.format(server=url.display, reason=reason, queue=url.queue, prefix=url.prefix))
    return StoreError(f"the server at {url.display} refused the call: {reason}; nothing was changed")
