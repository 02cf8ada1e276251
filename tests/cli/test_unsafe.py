"""Giving up that files read nothing else: only by its full name, only where that cannot be had, and loudly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlane.core.errors import BadValue
from fairlane.settings import load_settings
from tests.api.running import Server, until
from tests.sandbox.harness import open_folder

from .running import run

OPTION, VARIABLE, SETTING = (
    "--unsafe-files-may-read-everything",
    "FAIRLANE_UNSAFE_FILES_MAY_READ_EVERYTHING",
    "unsafe_files_may_read_everything",
)
# As a container on a host without Landlock: the kernel refuses both ways to keep other files from being read.
BARE = """
import errno, os, platform, struct, sys
from fairlane.procs import syscalls
unshare = 272 if platform.machine() == "x86_64" else 97
instructions = [(0x20, 0, 0, 0)]
for number in (unshare, 444):  # unshare, landlock_create_ruleset
    instructions += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | errno.EPERM)]
instructions.append((0x06, 0, 0, 0x7FFF0000))
syscalls.set_no_new_privileges()
syscalls.load_seccomp_filter(b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions))
os.execv(sys.argv[1], sys.argv[1:])
"""
BARE_START = (sys.executable, "-c", BARE)
REFUSED = "the sandbox cannot keep what it promises: reads nothing else; missing is mount namespace ("
UNSAFE = "a file that takes over its parser can read everything that this user can read: other customers' files"


def run_bare(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command where neither Landlock nor a mount namespace can be had."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    command = [*BARE_START, sys.executable, "-P", "-m", "fairlane", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment | variables, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can read: without both layers, root's attempts have the rights of another user."""
    with open_folder() as folder:
        (folder / "inbox" / "acme").mkdir(parents=True)
        (folder / "inbox" / "acme" / "a.txt").write_text("one two three")
        yield folder


def test_without_the_setting_no_file_is_opened(folder: Path) -> None:
    ended = run_bare(folder, "process", "inbox")
    assert ended.returncode == 2
    assert REFUSED in ended.stderr
    assert "what to do: use Linux 5.13 or newer with landlock" in ended.stderr


def set_in_file(folder: Path) -> tuple[list[str], dict[str, str]]:
    (folder / "fairlane.toml").write_text(f'{SETTING} = "yes"\n')
    return [], {}


WAYS: dict[str, Callable[[Path], tuple[list[str], dict[str, str]]]] = {
    "option": lambda _: ([OPTION], {}),
    "environment": lambda _: ([], {VARIABLE: "yes"}),
    "file": set_in_file,
}


@pytest.mark.parametrize("way", WAYS)
def test_with_the_setting_files_are_read_and_it_is_said_aloud(folder: Path, way: str) -> None:
    options, variables = WAYS[way](folder)
    ended = run_bare(folder, "process", "inbox", "--out", "results", *options, **variables)
    assert ended.returncode == 0, ended.stderr
    assert (folder / "results" / "acme" / "a.txt.md").read_text() == "one two three"
    assert f"UNSAFE: {UNSAFE}" in ended.stderr


@pytest.mark.parametrize("is_json", [False, True])
def test_a_worker_says_it_when_it_starts(folder: Path, is_json: bool) -> None:
    url = f"sqlite:///{folder}/queue.db"
    refused = run_bare(folder, "work", "--until-empty", "--url", url)
    assert (refused.returncode, REFUSED in refused.stderr) == (2, True)
    ended = run_bare(folder, "work", "--until-empty", "--url", url, OPTION, *(["--json"] if is_json else []))
    assert ended.returncode == 0, ended.stderr
    first, second, *_ = ended.stdout.splitlines()
    if is_json:
        assert json.loads(first)["event"] == "started"
        said = json.loads(second)
        assert (said["event"], UNSAFE in said["reason"]) == ("unsafe", True)
    else:
        assert second.startswith(f"UNSAFE: {UNSAFE}")


def test_doctor_calls_it_bad_and_without_need_a_warning(folder: Path) -> None:
    url = f"sqlite:///{folder}/queue.db"
    run("migrate", "--url", url)
    variables = {VARIABLE: "yes"}
    refused, unsafe = (
        json.loads(run_bare(folder, "doctor", "--url", url, "--json", **environment).stdout)[-1]
        for environment in ({}, variables)
    )
    assert (refused["level"], REFUSED in refused["told"]) == ("bad", True)
    assert (unsafe["level"], unsafe["told"].startswith(f"UNSAFE: {UNSAFE}")) == ("bad", True)
    assert unsafe["advice"] == f"have one of these layers, then remove the setting {SETTING}"
    result = run("doctor", "--url", url, "--json", **variables)
    unneeded = json.loads(result.stdout)[-1]
    assert (result.exit_code, unneeded["level"]) == (0, "warning")
    assert unneeded["told"] == f"the setting {SETTING} is not needed here: nothing else is read"


def test_where_files_read_nothing_else_the_setting_changes_nothing(folder: Path) -> None:
    result = run("process", str(folder / "inbox"), OPTION)
    assert (result.exit_code, "UNSAFE" in result.output) == (0, False)


def test_the_service_passes_it_on_to_its_worker_and_logs_it(folder: Path) -> None:
    server = Server(folder, OPTION, work=True, prefix=BARE_START)
    try:
        said = until(lambda: [line["said"] for line in server.logged() if line["event"] == "worker"], "a line of the worker")
        assert (said[0]["event"], UNSAFE in said[0]["reason"]) == ("unsafe", True)
    finally:
        server.close()


@pytest.mark.parametrize("value", ["", "1", "true", "YES", "no"])
def test_nothing_but_yes_is_taken_for_it(tmp_path: Path, value: str) -> None:
    with pytest.raises(BadValue, match=VARIABLE):
        load_settings(None, {VARIABLE: value}, tmp_path)
    (tmp_path / "fairlane.toml").write_text(f'{SETTING} = "{value}"\n')
    with pytest.raises(BadValue, match=f"{SETTING} in .*fairlane.toml"):
        load_settings(None, {}, tmp_path)


def test_it_is_off_unless_it_is_set() -> None:
    assert load_settings(None, {}, Path("/nowhere")).unsafe_files_may_read_everything is False
    assert load_settings(None, {VARIABLE: "yes"}, Path("/nowhere")).unsafe_files_may_read_everything is True
    assert load_settings(None, {}, Path("/nowhere"), is_unsafe=True).unsafe_files_may_read_everything is True


def test_a_worker_of_a_module_does_not_take_the_option(tmp_path: Path) -> None:
    result = run("work", "tasks:worker", OPTION)
    assert (result.exit_code, f"leave {OPTION} out" in result.stderr) == (2, True)
