"""Records of `logging` that a handler makes: from a child process to the worker, and there to the logger of their name.

Laws:
- The worker's own logging configuration decides what becomes of a record; a child has no handlers but the one that sends.
- A record has the attributes RECORD_FIELDS, which name its document.
- No logger is created for a record: one of an unknown name goes to its nearest ancestor, which is what configuration means.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from .claims import ActiveClaim
from .output import LINE_LENGTH_MAX, storable_text

MESSAGE_LENGTH_MAX = 2 * LINE_LENGTH_MAX
EXTRAS_MAX = 20
EXTRA_LENGTH_MAX = 1000
RECORD_FIELDS = ("fairlane_document", "fairlane_customer", "fairlane_attempt")

_SENT = ("name", "levelno", "pathname", "lineno", "funcName", "created", "msecs", "threadName", "process", "processName")
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_formatter = logging.Formatter()
_log = logging.getLogger("fairlane.worker")


def encode_record(record: logging.LogRecord) -> dict[str, Any]:
    """Encode a record as JSON members: its message is complete, its exception is text."""
    fields = {name: getattr(record, name, None) for name in _SENT}
    fields["msg"] = _cut(record.getMessage(), MESSAGE_LENGTH_MAX)
    exception = _formatter.formatException(record.exc_info) if record.exc_info else record.exc_text
    fields["exc_text"] = exception and _newest(exception, MESSAGE_LENGTH_MAX)
    fields["stack_info"] = record.stack_info and _newest(record.stack_info, MESSAGE_LENGTH_MAX)
    extras = [(name, value) for name, value in vars(record).items() if name not in _STANDARD][:EXTRAS_MAX]
    return fields | {name[:100]: _extra(value) for name, value in extras}


def _extra(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    return _cut(value if isinstance(value, str) else repr(value), EXTRA_LENGTH_MAX)


def _cut(text: str, length_max: int) -> str:
    text = storable_text(text)
    return text if len(text) <= length_max else text[: length_max - 1] + "…"


def _newest(text: str, length_max: int) -> str:
    text = storable_text(text)
    return text if len(text) <= length_max else "…" + text[1 - length_max :]


def document_fields(active: ActiveClaim) -> dict[str, Any]:
    """Return the attributes of records that name a document."""
    return dict(zip(RECORD_FIELDS, (active.claim.id, active.claim.customer, active.claim.attempts), strict=True))


def handle_record(fields: Mapping[str, Any], active: ActiveClaim) -> None:
    """Give a record of a child to the logger of its name, as if it had been made here."""
    record = logging.makeLogRecord({**fields, **document_fields(active)})
    record.levelname = logging.getLevelName(record.levelno)
    record.filename = os.path.basename(record.pathname)
    record.module = os.path.splitext(record.filename)[0]
    logger = _logger_named(record.name)
    try:
        if logger.isEnabledFor(record.levelno):
            logger.handle(record)
    except Exception:  # noqa: BLE001 - filters and handlers are the user's code
        _log.exception("a record of the logger %r could not be handled", record.name)


def _logger_named(name: str) -> logging.Logger:
    known = logging.root.manager.loggerDict
    while name:
        if isinstance(logger := known.get(name), logging.Logger):
            return logger
        name = name.rpartition(".")[0]
    return logging.root
