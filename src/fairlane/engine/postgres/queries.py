"""The statements of queries.sql by name, and the scripts that create the schema, for a schema of any name."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources

_NAME = re.compile(r"^-- (\w+): (.+)$", re.MULTILINE)
_FUNCTIONS = ("submit", "lanes", "claim", "settle", "admin", "transfer")


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def in_schema(text: str, schema: str) -> str:
    """Replace the schema's name `fairlane` in SQL by another one."""
    for pattern, replacement in (
        ("fairlane.", f'"{schema}".'),
        ("IF NOT EXISTS fairlane", f'IF NOT EXISTS "{schema}"'),
        ("'fairlane'::regnamespace", f"'\"{schema}\"'::regnamespace"),
        ("'fairlane_wake'", f"'{schema}_wake'"),
    ):
        text = text.replace(pattern, replacement)
    return text


class Queries:
    """`sql.submit` is the statement under the line `-- submit: …`."""

    def __init__(self, schema: str = "fairlane") -> None:
        parts = _NAME.split(_read("queries.sql"))
        self.sentences = dict(zip(parts[1::3], parts[2::3], strict=True))
        statements = {name: part.strip().rstrip(";") for name, part in zip(parts[1::3], parts[3::3], strict=True)}
        vars(self).update({name: in_schema(statement, schema) for name, statement in statements.items()})

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"queries.sql has no statement {name!r}")


queries = lru_cache(maxsize=64)(Queries)

_PARTS = ("schema_1.sql", *(f"functions_{part}.sql" for part in _FUNCTIONS), "planner_settings.sql")

SCHEMA_VERSIONS = ("\n".join(_read(part) for part in _PARTS),)
