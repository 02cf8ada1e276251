"""What cannot be read in one sitting is not finished: ceilings on files, functions and the core."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

from .javascript import code_lines as javascript_lines
from .javascript import too_long
from .sql_and_lua import code_lines as statement_lines
from .sql_and_lua import lua_units, sql_units

ROOT = Path(__file__).parents[2]
FILE_MAX, FUNCTION_MAX, CORE_MAX = 400, 50, 770
UNIT_MAX = 80  # a function in SQL or Lua, a query, a script
MEMBERS_MAX = 25  # public ones of a class
# One object that callers hold, with every verb: what a user types against, and the engine contract, whose laws say why.
FACADES = {"Queue", "Client", "MemoryEngine", "PostgresEngine", "RedisEngine", "SqliteEngine"}
SQL = sorted((ROOT / "src").rglob("*.sql"))
LUA = sorted((ROOT / "src").rglob("*.lua"))
JAVASCRIPT = sorted((ROOT / "src").rglob("*.js"))
CODE = sorted(path for folder in ("src", "tests", "bench", "chaos") for path in (ROOT / folder).rglob("*.py"))
IGNORED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def docstring_lines(tree: ast.AST) -> set[int]:
    """The lines that docstrings take."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def code_lines(text: str) -> set[int]:
    """The lines that hold code: no docstrings, comments or blank lines."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in IGNORED:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - docstring_lines(ast.parse(text))


def functions_of(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_the_ruler_counts_code_and_nothing_else() -> None:
    text = '"""Doc\nmore."""\n\n# comment\nx = 1\n\n\ndef f() -> str:\n    """Doc."""\n    return """a\nb"""\n'
    assert len(code_lines(text)) == 4


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_can_be_read_in_one_sitting(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = code_lines(text)
    assert len(lines) <= FILE_MAX
    for function in functions_of(ast.parse(text)):
        own = [line for line in lines if function.lineno <= line <= (function.end_lineno or function.lineno)]
        assert len(own) <= FUNCTION_MAX, function.name


def test_the_rulers_of_sql_and_lua_count_each_unit() -> None:
    sql = (
        "-- read: All.\nSELECT 1\nFROM x;\n\n-- Adds.\nCREATE FUNCTION fairlane.add(a int) RETURNS int AS $$\nBEGIN\nEND $$;\n"
    )
    assert sql_units(sql) == {"read": 2, "add": 3}
    lua = "-- Adds.\nlocal function add(a)\n  if a then\n    return 1\n  end\nend\n\nreturn add(1)\n"
    assert lua_units(lua) == {"add": 5, "script": 1}


@pytest.mark.parametrize("path", [*SQL, *LUA], ids=lambda path: str(path.relative_to(ROOT)))
def test_sql_and_lua_can_be_read_in_one_sitting(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(statement_lines(text)) <= FILE_MAX
    units = sql_units(text) if path.suffix == ".sql" else lua_units(text)
    assert {name: lines for name, lines in units.items() if lines > UNIT_MAX} == {}


@pytest.mark.parametrize("path", [*SQL, *LUA], ids=lambda path: str(path.relative_to(ROOT)))
def test_sql_and_lua_begin_with_a_sentence(path: Path) -> None:
    assert re.match(r"-- \S.*\w", path.read_text(encoding="utf-8"))


def test_no_class_has_more_public_members_than_one_can_keep_in_mind() -> None:
    large = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                members = [member.name for member in node.body if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)]
                if sum(not name.startswith("_") for name in members) > MEMBERS_MAX:
                    large.add(node.name)
    assert large <= FACADES


@pytest.mark.parametrize("path", JAVASCRIPT, ids=lambda path: str(path.relative_to(ROOT)))
def test_javascript_can_be_read_in_one_sitting(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(javascript_lines(text)) <= FILE_MAX
    assert too_long(text, FUNCTION_MAX) == []
    assert re.match(r"// [A-Z`].*\.", text), "it begins with a sentence"


def test_the_core_is_twenty_minutes_reading() -> None:
    assert sum(len(code_lines(path.read_text())) for path in (ROOT / "src/fairlane/core").glob("*.py")) <= CORE_MAX


def test_no_test_sleeps() -> None:
    sleepers = [path.name for path in (ROOT / "tests").rglob("*.py") if "sleep" + "(" in path.read_text()]
    assert sleepers == []


def test_nothing_is_pickled() -> None:
    importing = re.compile(r"^\s*(import|from) (c?pickle|marshal|shelve|dill)\b", re.MULTILINE)
    assert [path.name for path in (ROOT / "src").rglob("*.py") if importing.search(path.read_text())] == []
