"""An attempt's root folder has what it may open at the same paths, by the same links, and nothing else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fairlane import sandbox
from fairlane.core.errors import Mistake
from fairlane.sandbox.grants import Link, list_grants, list_links

from .harness import NOBODY_UID, QUICK, Caller, call_in_fork, error_name, offered_layers, outcome

USERS = [0, NOBODY_UID] if os.geteuid() == 0 else [os.geteuid()]
pytestmark = pytest.mark.parametrize("user", USERS)


@pytest.fixture(autouse=True)
def skip_without_mounts(user: int) -> None:
    if "mount namespace" not in offered_layers(user):
        pytest.skip(f"this machine refuses mount namespaces to user {user}")


def tree(folder: str = "/") -> list[str]:
    """Every path down to the first folder that is a mount."""
    found = []
    for entry in os.scandir(folder):
        found.append(entry.path)
        if entry.is_dir(follow_symlinks=False) and entry.stat().st_dev == os.stat("/").st_dev:
            found += tree(entry.path)
    return found


def test_there_is_nothing_but_what_was_granted_and_what_leads_there(user: int, folder: Path) -> None:
    input_file = folder / "input"
    input_file.write_text("content")
    (folder / "other").write_text("other")
    caller = Caller(user, frozenset({"landlock"}))  # which would not let the root be listed
    code, found = outcome(caller, tree, readable=(input_file,))
    assert code == "value"
    granted = {grant.path for grant in list_grants([str(input_file)], [])} | {link.path for link in list_links(())}
    for path in found:
        assert any(f"{known}/".startswith(f"{path}/") for known in granted), path
    assert str(input_file) in found
    assert not {str(folder / "other"), "/proc", "/sys", "/etc/passwd"} & {*found}


def test_nothing_in_it_can_be_written_even_where_the_filter_would_allow_it(user: int, folder: Path) -> None:
    """Every mount is read-only by itself."""
    (folder / "input").mkdir()
    (folder / "input").chmod(0o777)

    def flags() -> list[bool]:
        return [
            bool(os.statvfs(path).f_flag & os.ST_RDONLY) for path in ("/", "/usr", sys.prefix, folder / "input", "/dev/null")
        ]

    assert outcome(Caller(user, frozenset()), flags, readable=(folder / "input",)) == ["value", [True] * 5]


def test_paths_with_links_in_them_lead_where_they_lead_outside(user: int, folder: Path) -> None:
    real = folder / "real" / "library"
    real.mkdir(parents=True)
    (real / "module.py").write_text("content")
    (folder / "absolute").symlink_to(folder / "real")
    (folder / "relative").symlink_to("absolute/library")
    named = folder / "relative"

    def call() -> object:
        response = sandbox.run(lambda: [(named / "module.py").read_text(), os.readlink(named)], QUICK, libraries=[str(named)])
        return response.value

    assert call_in_fork(Caller(user, frozenset()), call) == ["content", "absolute/library"]
    links = list_links((str(named),))
    assert {Link(str(named), "absolute/library"), Link(str(folder / "absolute"), str(folder / "real"))} <= {*links}


def test_a_folder_may_be_read_and_an_input_inside_a_library_too(user: int, folder: Path) -> None:
    inside = folder / "library" / "deep" / "input"
    inside.parent.mkdir(parents=True)
    inside.write_text("content")
    (folder / "readable").mkdir()
    (folder / "readable" / "file").write_text("also")

    def work() -> list[object]:
        return [inside.read_text(), (folder / "readable" / "file").read_text(), os.listdir(folder / "readable")]

    def call() -> object:
        return sandbox.run(work, QUICK, [inside, folder / "readable"], [str(folder / "library")]).value

    assert call_in_fork(Caller(user, frozenset()), call) == ["content", "also", ["file"]]


def test_what_is_missing_is_left_out_and_an_input_that_is_missing_is_named(user: int, folder: Path) -> None:
    def call() -> object:
        value = sandbox.run(lambda: "went on", QUICK, libraries=[str(folder / "none")]).value
        with pytest.raises(Mistake, match=f"cannot reach {folder}/none"):
            sandbox.run(lambda: None, QUICK, [folder / "none"])
        return value

    assert call_in_fork(Caller(user, frozenset()), call) == "went on"


def test_a_loop_of_links_ends(user: int, folder: Path) -> None:
    (folder / "a").symlink_to(folder / "b")
    (folder / "b").symlink_to(folder / "a")
    assert {link.path for link in list_links((str(folder / "a"),))} >= {str(folder / "a"), str(folder / "b")}
    assert error_name(os.stat, folder / "a") == "ELOOP"
