"""The tutorial and the how-to pages as a reader follows them: their programs and commands run, in order, in an empty folder.

A block with a title is a file. Of a `console` block each line after `$` is run, and what follows is what it prints, whatever
the numbers. Blocks of `sh` have names to fill in: their commands and options must exist.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from fairlane.cli import main
from tests.servers.postgres import free_port
from tests.terminal import bash

from .snippets import PAGES, ROOT, blocks

DOCS = ROOT / "docs"
GUIDES = [DOCS / "tutorial.md", *sorted((DOCS / "how-to").glob("*.md"))]
MARK = "@@ command"
SERVE = """(fairlane serve --port {port} > serve.log 2>&1 & echo $! > serve.pid)
until curl -sf http://127.0.0.1:{port}/readyz; do :; done"""


def steps(text: str) -> list[tuple[str, str]]:
    """Split a console block into commands and what each prints."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    assert not parts[0], f"a console block begins with a command: {text}"
    return list(zip(parts[1::2], parts[2::2], strict=True))


def without_numbers(text: str) -> list[str]:
    return [re.sub(r"\d+", "0", line.rstrip()) for line in text.strip().splitlines()]


def follow(page: Path, folder: Path) -> dict[str, str]:
    """Do what a page says; return what each command printed."""
    port, expected = free_port(), []
    script = ["stop() { [ ! -f serve.pid ] || kill $(cat serve.pid); }", "trap stop EXIT"]
    if page.parent.name == "how-to":
        script.append("fairlane migrate")  # whoever looks something up has a queue
    for block in blocks(page):
        if block.title:
            script.append(f"cat > {block.title} <<'END OF FILE'\n{block.text}END OF FILE")
        elif block.language == "console":
            for command, printed in steps(block.text):
                run = SERVE.format(port=port) if command == "fairlane serve" else command.replace("8000", str(port))
                script += [f"echo '{MARK}'", run]
                expected.append((command, printed))
    script = [line.replace(":8000", f":{port}") for line in script]
    outputs = bash("\n".join(script), folder).split(f"{MARK}\n")[1:]
    assert len(outputs) == len(expected)
    for (command, printed), output in zip(expected, outputs, strict=True):
        if printed.strip():
            assert without_numbers(output) == without_numbers(printed), command
    return {command: output for (command, _), output in zip(expected, outputs, strict=True)}


@pytest.mark.parametrize("page", GUIDES, ids=[page.stem for page in GUIDES])
def test_what_a_guide_says_can_be_done_and_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    printed = follow(page, tmp_path)
    if page.stem == "tutorial":
        (ended,) = re.findall(r"\[(\d+), (\d+)\]", printed["python order.py"])
        assert max(map(int, ended)) <= 10  # as it says: among the first ten
        assert "About" in printed[next(command for command in printed if "explain" in command)]


def test_output_that_is_not_what_the_page_shows_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo four 4\nfour 5\n```\n")
    assert follow(page, tmp_path) == {"echo four 4": "four 4\n"}
    page.write_text("```console\n$ echo four\nfive\n```\n")
    with pytest.raises(AssertionError, match="echo four"):
        follow(page, tmp_path)
    page.write_text("```console\n$ false\n```\n")
    with pytest.raises(AssertionError):
        follow(page, tmp_path)


def commands(page: Path) -> list[str]:
    """Return every line of a page's code blocks that runs fairlane, joined where it goes on."""
    text = "\n".join(block.text for block in blocks(page) if block.language in ("sh", "console", "cron"))
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in (re.sub(r"^\$ ", "", line.strip()) for line in lines) if line.startswith("fairlane ")]


def parse(line: str) -> None:
    """Find the command and its options; raise UsageError if there is no such thing."""
    words = shlex.split(re.split(r" (?:[|&>]|2>)", line)[0], comments=True)[1:]
    command: click.Command = main
    context: click.Context | None = None
    while isinstance(command, click.Group):
        if not words or words[0].startswith("-"):
            return
        name = words.pop(0)
        found = command.commands.get(name)
        if found is None:
            assert context is not None or name.isupper(), f"no command {name}: {line}"
            return
        context = click.Context(command, parent=context, info_name=name)
        command = found
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    unknown = {word.partition("=")[0] for word in words if word.startswith("--") and len(word) > 2} - known
    assert not unknown, f"no option {', '.join(sorted(unknown))}: {line}"


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_command_on_a_page_exists_with_its_options(page: Path) -> None:
    for line in commands(ROOT / page):
        parse(line)


def test_a_command_or_an_option_that_does_not_exist_is_found() -> None:
    parse("fairlane submit --customer acme --kind scan FILE")
    with pytest.raises(AssertionError, match="no option --custommer"):
        parse("fairlane submit --custommer acme FILE")
    with pytest.raises(AssertionError, match="no command sumbit"):
        parse("fairlane sumbit FILE")
