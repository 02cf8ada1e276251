"""What a shell offers while a command is typed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fairlane import Queue

from .running import COMMAND, run


def offered(url: str, *words: str) -> list[str]:
    """What bash is result when the last word is being typed."""
    environment = {"COMP_WORDS": " ".join(("fairlane", *words)), "COMP_CWORD": str(len(words))}
    result = run(FAIRLANE_URL=url, _FAIRLANE_COMPLETE="bash_complete", **environment)
    assert result.exit_code == 0
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_fairlane(shell: str) -> None:
    script = run("completion", shell).stdout
    assert f"_FAIRLANE_COMPLETE={shell}_complete" in script


def test_bash_accepts_the_script() -> None:
    script = run("completion", "bash").stdout
    result = subprocess.run(["bash", "-c", f"{script}\ncomplete -p fairlane"], capture_output=True, text=True, check=True)
    assert "_fairlane_completion fairlane" in result.stdout


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
