"""The words of the code: the field's own, one for one idea, in plain sentences."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = sorted((ROOT / "src").rglob("*.py"))
CODE = sorted(path for folder in ("src", "tests", "bench", "chaos", "requirements") for path in (ROOT / folder).rglob("*.py"))

# A name of one of these says that something was said or done, not what it holds.
RIDDLES = {
    "told", "asked", "asking", "heard", "given", "there", "plainly", "ordinary", "lives", "wall", "edge", "shift", "keeper",
    "keeping", "holdings", "courses", "shapes", "outward", "intake", "nobody", "somebody",
}  # fmt: skip
CROSSING = RIDDLES | {"one", "place", "held", "other_one"}  # and these, where a value crosses a function


def names_of(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that the code makes: modules aside, functions, classes, parameters, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def crossing_names_of(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The names by which functions, classes and modules meet: definitions, parameters and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
            arguments = node.args
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                yield argument.arg, argument.lineno
        elif isinstance(node, ast.ClassDef):
            yield node.name, node.lineno
            for child in node.body:
                if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
                    yield child.target.id, child.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def riddles_in(text: str) -> list[str]:
    """Names of a file that a reader cannot guess, with their lines."""
    tree = ast.parse(text)
    found = {(line, name) for name, line in names_of(tree) if name.lower().strip("_") in RIDDLES}
    found |= {(line, name) for name, line in crossing_names_of(tree) if name.lower().strip("_") in CROSSING}
    return [f"{line}: {name}" for line, name in sorted(found)]


def sentences_of(text: str) -> Iterator[tuple[int, str]]:
    """Docstrings and comments of a file."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield getattr(node, "lineno", 1), docstring
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def questions_in(text: str) -> list[str]:
    """Docstrings and comments that ask instead of saying; code in backticks does not count."""
    return [
        f"{line}: {said[:80]}" for line, said in sentences_of(text) if re.search(r"\w\?(\s|$)", re.sub(r"`[^`]*`", "", said))
    ]


def test_the_ruler_finds_what_it_is_for() -> None:
    assert riddles_in("def f(one, told): ...\nclass Wall: ...\nself.held = 1\nfor one in range(3): ...\n") == [
        "1: one", "1: told", "2: Wall", "3: held",
    ]  # fmt: skip
    assert questions_in('"""Who renews the leases? The keeper."""\nx = 1  # why?\n') == [
        "1: Who renews the leases? The keeper.",
        "2: # why?",
    ]
    assert questions_in('"""Match with `a?` or `b? `."""\n') == []


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_say_what_they_hold(path: Path) -> None:
    assert riddles_in(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_docstring_and_no_comment_asks(path: Path) -> None:
    assert questions_in(path.read_text(encoding="utf-8")) == []


def test_no_module_has_a_riddle_for_a_name() -> None:
    assert [str(path) for path in CODE if set(path.stem.split("_")) & RIDDLES] == []


def test_no_two_classes_of_the_package_have_the_same_name() -> None:
    names = Counter(
        node.name
        for path in SOURCE
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    # Each queue that people already have has its adapter, and users find it under the same name everywhere.
    assert {name for name, count in names.items() if count > 1} - {"Fairlane"} == set()


@pytest.mark.parametrize("path", SOURCE, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_begins_with_what_it_is(path: Path) -> None:
    """A docstring that is a sentence; an empty __init__.py needs none."""
    text = path.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(text)) or ""
    assert not text.strip() or re.match(r"[A-Z`].*[.:]$", docstring.split("\n\n")[0].replace("\n", " ")), docstring
