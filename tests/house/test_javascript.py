"""The ruler for JavaScript finds long functions, whatever they are written as, and is not misled by text."""

from __future__ import annotations

import pytest

from .javascript import code_lines, functions_of, too_long

BODY = "".join(f"  work({number});\n" for number in range(60))
ARGUMENTS = "".join(f"  work({number}),\n" for number in range(60))
MISLEADING = r"""
// a comment with { and `
/* and
   another one ' { */
const braces = "{ not a block", others = '\'{', pattern = /[/{`"]\/{2}/g;
const text = `one { ${braces.map((brace) => `${brace} }`).join("{")} two`;
const half = braces.length / 2 / others.length;
"""


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("plain", f"export function plain(a, b = {{}}) {{\n{BODY}}}\n"),
        ("later", f"async function later() {{\n{BODY}}}\n"),
        ("method", f"class Thing {{\n  async method(a) {{\n{BODY}  }}\n}}\n"),
        ("block", f"const block = async (a) => {{\n{BODY}}};\n"),
        ("expression", f"const expression = (a) =>\n  all(\n{ARGUMENTS}  );\nnext();\n"),
        ("onclick", f'make("b", {{ onclick: (event) => {{\n{BODY}}} }});\n'),
        ("=>", f"list.map((item) => {{\n{BODY}}});\n"),
    ],
)
def test_a_long_function_is_found(name: str, script: str) -> None:
    assert [found.partition(":")[0] for found, _ in too_long(MISLEADING + script + MISLEADING, 50)] == [name]
    assert too_long(MISLEADING + script + MISLEADING, 70) == []


def test_a_block_that_is_no_function_is_none() -> None:
    script = f"if (a) {{\n{BODY}}}\nfor await (const a of b) {{\n{BODY}}}\nclass C {{\n{BODY}}}\nconst d = {{\n{ARGUMENTS}}};\n"
    assert functions_of(script) == []


def test_an_outer_function_holds_the_lines_of_its_inner_ones() -> None:
    script = f"function outer() {{\n  function inner() {{\n{BODY}  }}\n}}\n"
    assert too_long(script, 50) == [("outer:1", 64), ("inner:2", 62)]


def test_lines_of_code_are_without_comments_and_blank_lines() -> None:
    assert code_lines("// one\n\nconst a = 1; // more\n/* x\ny */\nconst b = `\n\n`;\n") == {3, 6, 7, 8}
    assert len(code_lines(MISLEADING)) == 3
