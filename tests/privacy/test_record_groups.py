"""The table of record groups: every group that some module uses is in it, and in the table of docs/privacy.md."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import fairlane
from fairlane.queue.record_groups import GROUPS

SOURCE = Path(fairlane.__file__).parent
VERBS = ("put_record", "record", "records")


def groups_in(path: Path) -> set[str]:
    """Return the groups that a module passes to verbs of an engine, by name or as text."""
    module = importlib.import_module(".".join(("fairlane", *path.relative_to(SOURCE).with_suffix("").parts)))
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call) and node.args]
    found = set()
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in VERBS and "engine" in ast.unparse(call.func.value):
            match call.args[0]:
                case ast.Constant(value=str(name)):
                    found.add(name)
                case ast.Name(id=name) if isinstance(getattr(module, name, None), str):
                    found.add(getattr(module, name))
    return found


def used_groups() -> set[str]:
    modules = [path for path in SOURCE.rglob("*.py") if "engine" not in path.relative_to(SOURCE).parts]
    texts = [path for path in modules if any(f".{verb}(" in path.read_text() for verb in VERBS)]
    return {group for path in texts for group in groups_in(path)}


def test_every_group_is_in_the_table() -> None:
    used = used_groups()
    assert used >= {"keys", "sessions", "webhooks", "batches", "progress", "workers"}  # the search finds something
    names = {group.name for group in GROUPS}
    assert used <= names
    assert {group.follows for group in GROUPS if group.follows} <= names


def test_every_group_is_in_the_docs() -> None:
    page = (SOURCE.parents[1] / "docs/privacy.md").read_text()
    assert [group.name for group in GROUPS if f"`{group.name}`" not in page] == []
