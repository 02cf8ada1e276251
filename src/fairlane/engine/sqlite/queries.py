"""The statements of queries.sql by name, and the schema's versions in order."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import resources
from typing import Any

Execute = Callable[..., Any]  # how a connection runs a statement; rows come back as plain tuples

_NAME = re.compile(r"^-- (\w+): (.+)$", re.MULTILINE)


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


class _Queries:
    """`sql.read_queue` is the statement under the line `-- read_queue: …`."""

    def __init__(self, text: str) -> None:
        parts = _NAME.split(text)
        self.sentences = dict(zip(parts[1::3], parts[2::3], strict=True))
        self._statements = {name: part.strip() for name, part in zip(parts[1::3], parts[3::3], strict=True)}
        vars(self).update(self._statements)

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"queries.sql has no statement {name!r}")


sql = _Queries(_read("queries.sql"))
SCHEMA_VERSIONS = (_read("schema_1.sql"),)
