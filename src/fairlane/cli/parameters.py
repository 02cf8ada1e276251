"""How are values told on the command line? Durations with a unit, and `none` for what is as everybody's."""

from __future__ import annotations

import re
from collections.abc import Callable
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
_DURATION = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|h|d|w|)")


class _Duration(ParamType):
    """Seconds, told with a unit or as a bare number of seconds."""

    name = "duration"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        told = _DURATION.fullmatch(str(value).strip().lower())
        if told is None:
            self.fail(f"{value!r} is not a duration; write it as 90s, 15m, 24h or 7d", parameter, context)
        return float(told[1]) * _UNIT_SECONDS[told[2]]


class _Cost(ParamType):
    """A number of documents, or `pages`: as many as the file has."""

    name = "number|pages"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Cost:
        try:
            return PAGES if value == PAGES else float(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {PAGES!r}", parameter, context)


class OrNone(ParamType):
    """Another type, or `none`; an option that is not given keeps what there is."""

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
        told = self.type.get_metavar(param, ctx)
        return f"{told[:-1]}|none]" if told and told.endswith("]") else None


class _Told(ParamType):
    """A function that reads the text and says what is wrong with it."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self.read = read

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        return self.read(value)


def _thresholds(told: str) -> tuple[float, ...]:
    try:
        return tuple(float(one) if "." in one else int(one) for one in told.split(","))
    except ValueError:
        raise BadValue("--thresholds", told, "numbers with commas between them, as in --thresholds=-2,-4,-6") from None


DURATION = _Duration()
THRESHOLDS = _Told("list", _thresholds)
COST = _Cost()
