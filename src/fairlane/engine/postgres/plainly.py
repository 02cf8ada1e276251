"""PostgreSQL's errors as ours: what was wrong, where, what to do; and which of them may simply be tried again."""

from __future__ import annotations

import psycopg
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout

from fairlane.core.errors import FairlaneError, StoreBusy, StoreError, StoreFull, StoreUnfit, Unknown

from .place import Place

BUSY_SECONDS = 30  # as the functions set lock_timeout
AGAIN = (errors.DeadlockDetected, errors.SerializationFailure)  # the server undid it: nothing was changed
UNKNOWN = (
    "the connection to {name} was lost in the middle of a call ({error}), so whether it took effect is not known; look, or "
    "submit again with the same key"
)
_GONE = (errors.UndefinedTable, errors.UndefinedFunction, errors.InvalidSchemaName)


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection went away under the call: then a commit may or may not have happened."""
    if isinstance(error, errors.AdminShutdown | errors.CrashShutdown | errors.IdleInTransactionSessionTimeout):
        return True
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and error.sqlstate is None


def told_plainly(error: psycopg.Error, place: Place) -> FairlaneError:
    """What a caller is told of an error."""
    name, reason = place.name, _first_line(error)
    match error:
        case PoolClosed():
            return StoreError(f"the queue at {name} was closed; open it again")
        case PoolTimeout():
            return StoreError(f"{name} cannot be reached, or all connections are in use ({reason}); nothing was changed: try again")
        case errors.LockNotAvailable():
            return StoreBusy(
                f"others held the queue at {name} for more than {BUSY_SECONDS} s; try again, and look for a session that keeps "
                "a transaction open: SELECT pid, state, query FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
            )
        case errors.DeadlockDetected() | errors.SerializationFailure():
            return StoreBusy(f"{name} undid the call again and again because of others ({reason}); nothing was changed: try again")
        case errors.DiskFull():
            return StoreFull(f"no room left to write at {name}; nothing was changed: make room on the server, then try again")
        case errors.TooManyConnections():
            return StoreBusy(f"{name} has no connection free ({reason}); raise max_connections, or put a pooler before it")
        case errors.InsufficientPrivilege():
            return StoreUnfit(f"{name} does not allow it ({reason}); {_grants(place)}")
        case errors.ReadOnlySqlTransaction():
            return StoreUnfit(f"{name} can only be read ({reason}); give the URL of the primary server")
        case errors.UniqueViolation():
            return StoreError(f"{name}: {reason}; a document's id is used once: submit with a new one")
        case _ if isinstance(error, _GONE):
            return Unknown(f"there is no queue at {name} ({reason}); open it with Queue(url), which makes it, or give another URL")
        case _ if is_lost(error):
            return StoreError(UNKNOWN.format(name=name, error=reason))
        case _:
            return StoreError(f"{name}: {reason}")


def not_connected(error: psycopg.Error, place: Place) -> FairlaneError:
    """Why a first connection could not be made, and what to do."""
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
    return StoreError(f"{place.name} cannot be reached: {reason}; {advice}")


def _grants(place: Place) -> str:
    return (
        f"let the owner of the database run GRANT CREATE ON DATABASE …, or make the schema for this role: "
        f'CREATE SCHEMA "{place.schema}" AUTHORIZATION …'
    )


def _first_line(error: BaseException) -> str:
    text = error.diag.message_primary if isinstance(error, psycopg.Error) and error.diag.message_primary else str(error)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__
