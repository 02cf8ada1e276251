"""What cannot be read in one sitting is not finished: ceilings on files, functions and the core."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE_MAX, FUNCTION_MAX, CORE_MAX = 400, 50, 600
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


def test_the_core_is_twenty_minutes_reading() -> None:
    assert sum(len(code_lines(path.read_text())) for path in (ROOT / "src/fairlane/core").glob("*.py")) <= CORE_MAX


def test_no_test_sleeps() -> None:
    sleepers = [path.name for path in (ROOT / "tests").rglob("*.py") if "sleep" + "(" in path.read_text()]
    assert sleepers == []


def test_nothing_is_pickled() -> None:
    assert [path.name for path in (ROOT / "src").rglob("*.py") if "pickle" in path.read_text()] == []
