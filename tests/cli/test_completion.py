"""What a shell offers while a command is typed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from fairlane import Queue
from tests.docs.snippets import snippet
from tests.terminal import bash

from .running import COMMAND, run


def offered(url: str, *words: str) -> list[str]:
    """What bash is result when the last word is being typed."""
    environment = {"COMP_WORDS": " ".join(("fairlane", *words)), "COMP_CWORD": str(len(words))}
    result = run(FAIRLANE_URL=url, _FAIRLANE_COMPLETE="bash_complete", **environment)
    assert result.exit_code == 0
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


def test_the_lines_of_the_docs_make_a_shell_complete(tmp_path: Path) -> None:
    of_bash, of_zsh, of_fish = snippet("docs/reference.md", 'eval "$(fairlane completion bash)"').splitlines()
    printed = bash(f"{of_bash}\ncomplete -p fairlane", tmp_path)
    assert "_fairlane_completion fairlane" in printed
    scripts = bash(of_zsh.replace("eval", "echo") + "\n" + of_fish.replace("| source", ""), tmp_path)  # bash cannot run these
    for words in (
        "_FAIRLANE_COMPLETE=zsh_complete",
        "compdef _fairlane_completion fairlane",
        "_FAIRLANE_COMPLETE=fish_complete",
    ):
        assert words in scripts


def test_commands_and_options_are_offered(url: str) -> None:
    assert offered(url, "pa") == ["pause"]
    assert offered(url, "tune", "acme", "--re") == ["--reset", "--reset-interval", "--retries-max"]
    assert offered(url, "tune", "acme", "--reset", "s") == ["sliding"]


def test_customers_are_offered(url: str) -> None:
    with Queue(url) as queue:
        for customer in ("abc", "acme", "acme-2", "bolt"):
            queue.check(customer)
        queue.reset("acme")
    assert offered(url, "pause", "a") == ["abc", "acme", "acme-2"]
    assert offered(url, "explain", "acme") == ["acme", "acme-2"]
    assert offered(url, "submit", "--customer", "b") == ["bolt"]
    assert offered(url, "status", "c") == []
    other = url + ".other"
    assert offered(other, "pause", "--url", url, "bo") == ["bolt"]
    assert offered(other, "pause", "a") == []


def test_completion_makes_no_queue_and_complains_of_none(tmp_path: Path) -> None:
    assert offered(f"sqlite:///{tmp_path}/none.db", "pause", "a") == []
    assert offered("mysql://", "pause", "a") == []
    assert list(tmp_path.iterdir()) == []


def test_completion_needs_a_shell_it_knows() -> None:
    result = subprocess.run([*COMMAND, "completion", "tcsh"], capture_output=True, text=True, check=False)
    assert (result.returncode, "is not one of 'bash', 'zsh', 'fish'" in result.stderr) == (2, True)
