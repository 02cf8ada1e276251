"""SQL files: the statements of a queries.sql by name."""

from __future__ import annotations

import re
from importlib import resources

_NAME = re.compile(r"^-- (\w+): (.+)$", re.MULTILINE)


def read_sql(package: str, name: str) -> str:
    """Return the text of an SQL file that a package carries."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


class Queries:
    """`queries.submit` is the statement under the line `-- submit: What it does.` of the text."""

    def __init__(self, text: str) -> None:
        parts = _NAME.split(text)
        self.sentences = dict(zip(parts[1::3], parts[2::3], strict=True))
        vars(self).update({name: sql.strip().rstrip(";") for name, sql in zip(parts[1::3], parts[3::3], strict=True)})

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"queries.sql has no statement {name!r}")
