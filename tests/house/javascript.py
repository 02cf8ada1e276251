"""A ruler for JavaScript: the lines of code of a file, and of every function in it.

It splits a script into tokens (strings, template literals, regular expressions and comments are understood) and finds function
bodies by their brackets. It expects formatted code with semicolons; it is no parser and does not look for syntax errors.
"""

from __future__ import annotations

import re
from typing import NamedTuple

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
STRING = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
REGEX = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
WORD = re.compile(r"[\w$#]+")
SYMBOL = re.compile(r"=>|\?\.|\S")
OPENING, CLOSING = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
CONTROL = {"if", "for", "while", "switch", "catch", "await", "with"}  # words before a parenthesis that is no parameter list
BEFORE_REGEX = {"return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "await", "yield", "else", "do"}


class Token(NamedTuple):
    """A piece of code and the lines it covers."""

    text: str
    first: int
    last: int


class Function(NamedTuple):
    """A function: its name, or what stands before its parameters, and its lines."""

    name: str
    first: int
    last: int


def tokens_of(text: str) -> list[Token]:
    """Split a script into tokens; comments are left out, a template literal is one token of text for each of its parts."""
    tokens: list[Token] = []
    templates: list[int] = []  # for each open `${`: how many braces are open inside it
    position = 0
    while position < len(text):
        kind, end = _next(text, position, tokens, templates)
        if kind:
            first = text.count("\n", 0, position) + 1
            tokens.append(Token(kind, first, first + text.count("\n", position, end)))
        position = end
    return tokens


def _next(text: str, at: int, tokens: list[Token], templates: list[int]) -> tuple[str, int]:
    """The token that begins here, empty for space and comments, and where it ends."""
    character = text[at]
    if character.isspace():
        return "", at + 1
    if comment := COMMENT.match(text, at):
        return "", comment.end()
    if character == "`" or (character == "}" and templates and templates[-1] == 0):
        if character == "}":
            templates.pop()
        return _template(text, at + 1, templates)
    if string := STRING.match(text, at):
        return '""', string.end()
    if character == "/" and _may_be_regex(tokens) and (regex := REGEX.match(text, at)):
        return "//", regex.end()
    if templates and character in "{}":
        templates[-1] += 1 if character == "{" else -1
    match = WORD.match(text, at) or SYMBOL.match(text, at)
    assert match is not None
    return match.group(), match.end()


def _template(text: str, at: int, templates: list[int]) -> tuple[str, int]:
    """Skip a part of a template literal, up to its end or to the next `${`."""
    while at < len(text) and text[at] != "`":
        if text.startswith("${", at):
            templates.append(0)
            return "``", at + 2
        at += 2 if text[at] == "\\" else 1
    return "``", at + 1


def _may_be_regex(tokens: list[Token]) -> bool:
    """Whether a slash begins a regular expression: after a value it divides."""
    if not tokens:
        return True
    before = tokens[-1].text
    return before in BEFORE_REGEX or not (WORD.fullmatch(before) or before in (")", "]", "}", '""', "``", "//"))


def code_lines(text: str) -> set[int]:
    """The lines that hold code: no comments or blank lines."""
    return {line for token in tokens_of(text) for line in range(token.first, token.last + 1)}


def functions_of(text: str) -> list[Function]:
    """Every function, method and arrow function, nested ones too."""
    tokens = tokens_of(text)
    partners = _partners(tokens)
    functions = []
    for index, token in enumerate(tokens):
        if token.text == "=>":
            start = _start_of_arrow(tokens, partners, index)
            last = _last_line_of_arrow(tokens, partners, index)
            functions.append(Function(_name_of_arrow(tokens, start), tokens[start].first, last))
        elif token.text == "{" and index and tokens[index - 1].text == ")" and index in partners:
            start = partners.get(index - 1, 0)
            name = tokens[start - 1].text if start else ""
            if name not in CONTROL:
                functions.append(Function(name, tokens[start].first, tokens[partners[index]].last))
    return functions


def _partners(tokens: list[Token]) -> dict[int, int]:
    """The index of the partner of every bracket."""
    partners: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.text in OPENING:
            opened.append(index)
        elif token.text in CLOSING and opened:
            partners[index] = opened.pop()
            partners[partners[index]] = index
    return partners


def _start_of_arrow(tokens: list[Token], partners: dict[int, int], arrow: int) -> int:
    """The index of the first token of the parameters before an arrow."""
    return partners.get(arrow - 1, arrow - 1) if tokens[arrow - 1].text == ")" else arrow - 1


def _name_of_arrow(tokens: list[Token], start: int) -> str:
    start -= tokens[start - 1].text == "async"
    return tokens[start - 2].text if start > 1 and tokens[start - 1].text in ("=", ":") else "=>"


def _last_line_of_arrow(tokens: list[Token], partners: dict[int, int], arrow: int) -> int:
    """The last line of an arrow function: the end of its block, or of the expression after the arrow."""
    index = arrow + 1
    if index < len(tokens) and tokens[index].text == "{":
        return tokens[partners.get(index, index)].last
    while index < len(tokens) and tokens[index].text not in (",", ";") and tokens[index].text not in CLOSING:
        index = partners.get(index, index) + 1
    return tokens[index - 1].last


def too_long(text: str, function_max: int) -> list[tuple[str, int]]:
    """The functions with more lines of code than that, and how many they have."""
    lines = code_lines(text)
    sizes = [(function, sum(function.first <= line <= function.last for line in lines)) for function in functions_of(text)]
    return [(f"{function.name}:{function.first}", size) for function, size in sizes if size > function_max]
