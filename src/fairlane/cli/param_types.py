"""Types of options: durations and sizes with a unit, costs, thresholds, and `none` for the value that everybody has."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from fairlane.core.errors import BadValue
from fairlane.queue import PAGES, Cost, Keep

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    ParamType = click.ParamType[Any]  # generic only in newer versions of click
else:
    ParamType = click.ParamType

_UNIT_SECONDS = {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_UNIT_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?b|)")
_DURATION = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|h|d|w|)")


class _DurationType(ParamType):
    """Seconds, written with a unit or as a bare number."""

    name = "duration"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        match = _DURATION.fullmatch(str(value).strip().lower())
        if match is None:
            self.fail(f"{value!r} is not a duration; write it as 90s, 15m, 24h or 7d", parameter, context)
        return float(match[1]) * _UNIT_SECONDS[match[2]]


class _ExpiryType(ParamType):
    """A duration, or `never`; an option that is left out may keep what there is."""

    name = "duration|never"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float | Keep | None:
        if isinstance(value, Keep):
            return value
        return None if str(value).strip().lower() == "never" else DURATION.convert(value, parameter, context)


class _SizeType(ParamType):
    """Bytes, written with a unit or as a bare number."""

    name = "size"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        match = _SIZE.fullmatch(str(value).strip().lower())
        if match is None:
            self.fail(f"{value!r} is not a size; write it as 500MB, 50GB or 1.5TB, or as a number of bytes", parameter, context)
        return round(float(match[1]) * _UNIT_BYTES[match[2]])


class _MomentType(ParamType):
    """A moment: a date, a date and a time, or a duration before now; without a zone it is UTC."""

    name = "time"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        if _DURATION.fullmatch(str(value).strip().lower()):
            return datetime.now(UTC) - timedelta(seconds=DURATION.convert(value, parameter, context))
        try:
            moment = datetime.fromisoformat(str(value).strip())
        except ValueError:
            self.fail(f"{value!r} is not a time; write it as 24h (ago), 2026-11-18 or 2026-11-18T07:30", parameter, context)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


class _CostType(ParamType):
    """A number of documents, or `pages`: the number of pages of the file."""

    name = "number|pages"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Cost:
        try:
            return PAGES if value == PAGES else float(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {PAGES!r}", parameter, context)


class _ThresholdsType(ParamType):
    """Numbers separated by commas."""

    name = "list"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> tuple[float, ...]:
        try:
            return tuple(float(number) if "." in number else int(number) for number in value.split(","))
        except ValueError:
            raise BadValue("--thresholds", value, "numbers separated by commas, as in --thresholds=-2,-4,-6") from None


class OptionalType(ParamType):
    """Another type, or `none`; an option that is left out keeps the current value."""

    def __init__(self, type: ParamType) -> None:
        self.type = type
        self.name = type.name

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if isinstance(value, Keep):
            return value
        return None if str(value).lower() == "none" else self.type.convert(value, parameter, context)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return self.type.shell_complete(ctx, param, incomplete)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        metavar = self.type.get_metavar(param, ctx)
        return f"{metavar[:-1]}|none]" if metavar and metavar.endswith("]") else None


DURATION = _DurationType()
EXPIRY = _ExpiryType()
MOMENT = _MomentType()
SIZE = _SizeType()
THRESHOLDS = _ThresholdsType()
COST = _CostType()
