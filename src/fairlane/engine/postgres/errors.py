"""PostgreSQL's errors translated to Fairlane's: what was wrong, where, what to do; and which calls may be repeated."""

from __future__ import annotations

import psycopg
from psycopg import errors

from fairlane.core.errors import (
    FairlaneError,
    StoreBusy,
    StoreError,
    StoreFrozen,
    StoreFull,
    StoreUnfit,
    StoreUnreachable,
    Unknown,
)

from .url import PostgresUrl

BUSY_SECONDS = 20  # the functions' lock_timeout, see planner_settings.sql; less than a call may take
FROZEN = "FLFRZ"  # SQLSTATE that `refuse_frozen` raises; the message is the reason
RETRYABLE = (errors.DeadlockDetected, errors.SerializationFailure)  # the server rolled back: nothing was changed
UNKNOWN = (
    "the connection to {name} was lost in the middle of a call ({reason}), so whether it took effect is not known; look, or "
    "submit again with the same key"
)


def is_rolled_back(error: psycopg.Error) -> bool:
    """Whether the server rolled the call back because of others, and it may be repeated."""
    # An upgrade replaces the functions: a call that had begun with one that is gone ends in the middle.
    is_replaced = isinstance(error, psycopg.InternalError) and "cache lookup failed for function" in str(error)
    return is_replaced or isinstance(error, RETRYABLE)


def is_connection_lost(error: psycopg.Error) -> bool:
    """Whether the connection was lost during the call: then a commit may or may not have happened."""
    if isinstance(error, errors.AdminShutdown | errors.CrashShutdown | errors.IdleInTransactionSessionTimeout):
        return True
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and error.sqlstate is None


# psycopg's errors, ours, and the message
TRANSLATIONS: tuple[tuple[tuple[type[psycopg.Error], ...], type[FairlaneError], str], ...] = (
    (
        (errors.LockNotAvailable,),
        StoreBusy,
        f"others held the queue at {{name}} for more than {BUSY_SECONDS} s; try again, and look in pg_stat_activity for a "
        "session that is idle in transaction",
    ),
    (
        RETRYABLE,
        StoreBusy,
        "{name} rolled the call back again and again because of others ({reason}); nothing was changed: try again",
    ),
    (
        (errors.DiskFull,),
        StoreFull,
        "no room left to write at {name} ({reason}); nothing was changed: make room on the server, then try again",
    ),
    (
        (errors.TooManyConnections,),
        StoreBusy,
        "{name} has no connection free ({reason}); raise max_connections, or put a pooler before it",
    ),
    (
        (errors.InsufficientPrivilege,),
        StoreUnfit,
        "{name} does not allow it ({reason}); let the owner of the database run GRANT CREATE ON DATABASE … TO this role, or "
        'make the schema for it: CREATE SCHEMA "{schema}" AUTHORIZATION …',
    ),
    (
        (errors.ReadOnlySqlTransaction,),
        StoreUnfit,
        "{name} can only be read ({reason}); give the URL of the primary server",
    ),
    (
        (errors.FeatureNotSupported,),
        StoreUnfit,
        "{name} cannot take a document in this way ({reason}): a queue needs READ COMMITTED; begin the transaction with it, or "
        "set default_transaction_isolation of the role",
    ),
    (
        (errors.UniqueViolation,),
        StoreError,
        "{name}: {reason}; a document's id is used once: submit with a new one",
    ),
    (
        (errors.UndefinedTable, errors.UndefinedFunction, errors.InvalidSchemaName),
        Unknown,
        "there is no queue at {name} ({reason}); open it with Queue(url), which makes it, or give another URL",
    ),
)


def translate_error(error: psycopg.Error, url: PostgresUrl) -> FairlaneError:
    """Translate an error of psycopg."""
    if error.sqlstate == FROZEN:
        return StoreFrozen(_first_line(error))
    values = {"name": url.display, "reason": _first_line(error), "schema": url.schema}
    for theirs, ours, message in TRANSLATIONS:
        if isinstance(error, theirs):
            return ours(message.format(**values))
    return StoreError((UNKNOWN if is_connection_lost(error) else "{name}: {reason}").format(**values))


def lost_transaction_error(error: psycopg.Error, url: PostgresUrl) -> StoreError:
    """Return the error for a caller's connection that was lost in an open transaction, which the server then rolls back."""
    return StoreError(
        f"the connection of your transaction at {url.display} was lost ({_first_line(error)}), so nothing of it takes effect; "
        "begin it again, on another connection"
    )


def silent_error(url: PostgresUrl) -> StoreUnreachable:
    """Return the error for a server that was asked for something to read and did not answer."""
    return StoreUnreachable(
        f"{url.display} did not answer within {url.timeout:g} s; nothing was changed: check the server and the network to it"
    )


def connect_error(error: Exception | None, url: PostgresUrl) -> StoreUnreachable:
    """Explain why no connection could be made, and what to do."""
    if error is None:
        return StoreUnreachable(
            f"all connections of this process to {url.display} were in use for {url.timeout:g} s; nothing was changed: try "
            "again, and look in pg_stat_activity for calls that take long"
        )
    reason = _first_line(error)
    advice = "check that the server runs and that its host and port are right"
    if "password" in reason or "authentication" in reason or "role" in reason:
        advice = "check the user and the password in the URL, and the server's pg_hba.conf"
    elif "database" in reason and "does not exist" in reason:
        advice = "create the database (createdb), or give another one in the URL"
    elif "starting up" in reason or "shutting down" in reason or "recovery" in reason:
        advice = "wait a moment and try again"
    elif "too many" in reason or "remaining connection slots" in reason:
        advice = "raise max_connections, or put a pooler before the server"
    elif "SSL" in reason or "certificate" in reason:
        advice = "check sslmode in the URL and the server's certificate"
    return StoreUnreachable(f"{url.display} cannot be reached, so nothing was changed: {reason}; {advice}")


def _first_line(error: BaseException) -> str:
    text = error.diag.message_primary if isinstance(error, psycopg.Error) and error.diag.message_primary else str(error)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__
