"""What a folder promises beyond every store: permissions, syncs, full disks, links, dead writers."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlane.blobs import open_blobs
from fairlane.blobs.envelope import File
from fairlane.blobs.files import Files, open_content
from fairlane.core.errors import BadValue, Mistake, StoreError, StoreUnfit
from fairlane.queue import new_ids
from tests.conftest import as_nobody, missing

ROOT = Path(__file__).parents[2]
Program = Callable[[str], str]
NAMESPACE = "0123456789abcdef"


def put(folder: Path, content: bytes = b"one two") -> tuple[Files, str, File]:
    files, (id,) = Files(str(folder), NAMESPACE), new_ids(1)
    return files, id, File(None, *files.put_input("acme", id, content))


def test_files_and_folders_belong_to_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        put(tmp_path / "deep" / "blobs")
    finally:
        os.umask(before)
    for path in (tmp_path / "deep" / "blobs", *(tmp_path / "deep" / "blobs").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_below_a_folder_that_its_group_may_write_the_group_shares_everything(tmp_path: Path, mask: int) -> None:
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    blobs.chmod(0o2770)
    before = os.umask(mask)
    try:
        put(blobs)
    finally:
        os.umask(before)
    for path in (blobs, *blobs.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o2770 if path.is_dir() else 0o660), path


def test_a_namespace_that_is_open_to_others_is_closed_when_it_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Brought back with cp, say; the folder around it may be the user's own, and is left as it is."""
    _, id, file = put(tmp_path / "blobs")
    opened = [tmp_path / "blobs", tmp_path / "blobs" / NAMESPACE, tmp_path / "blobs" / "unfinished"]
    for folder in opened:
        folder.chmod(0o755)
    again = Files(str(tmp_path / "blobs"), NAMESPACE)
    again.open_input("acme", id, file).close()
    again.open_input("acme", id, file).close()
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in opened] == [0o755, 0o700, 0o700]
    (record,) = caplog.records
    assert record.getMessage() == f"{opened[1]} was open to other users of this machine (mode 755); it has mode 700 now"


def test_nothing_is_made_before_the_first_file(tmp_path: Path) -> None:
    files = Files(str(tmp_path / "blobs"), NAMESPACE)
    assert list(files.list_files()) == []
    files.remove_inputs("acme", new_ids(1))
    assert files.blobs.remove_unfinished(0) == 0
    assert list(tmp_path.iterdir()) == []


def test_no_results_make_no_folder(tmp_path: Path) -> None:
    assert Files(str(tmp_path / "not" / "there"), NAMESPACE).put_results("acme", new_ids(1)[0], 1) == {}
    assert list(tmp_path.iterdir()) == []


def test_empty_folders_do_not_stay(tmp_path: Path) -> None:
    files, id, _ = put(tmp_path / "blobs")
    files.remove_inputs("acme", [id])
    assert [path.name for path in (tmp_path / "blobs").rglob("*")] == ["unfinished"]


PUT = """
import sys
from fairlane.blobs.files import Files
from fairlane.queue import new_ids
files = Files(sys.argv[1], "0123456789abcdef")
for content in (b"warm", b"one"):
    files.put_input("acme", new_ids(1)[0], content)
    print("written", flush=True)
"""


def steps_of(script: str, tmp_path: Path, program: Program) -> list[str]:
    """Return what the second `put` of a script did to the disk, and when it returned."""
    log = tmp_path / "trace"
    command = [sys.executable, "-c", script, str(tmp_path / "blobs")]
    traced = [program("strace"), "-f", "-y", "-e", "trace=fsync,rename,write", "-o", str(log), *command]
    subprocess.run(traced, check=True, cwd=ROOT, capture_output=True)
    steps = [
        "synced " + found[1]
        if (found := re.search(r"fsync\(\d+<([^>]*)>", line))
        else "renamed"
        if "rename(" in line
        else "returned"
        for line in log.read_text().splitlines()
        if "sync(" in line or ("rename(" in line and "ENOENT" not in line) or '"written' in line
    ]
    put_steps = steps[steps.index("returned") + 1 :]
    return [re.sub(r"[0-9a-f-]{32,}", "_", step.replace(str(tmp_path), "")) for step in put_steps]


def test_the_file_and_every_folder_above_it_are_synced_before_put_returns(tmp_path: Path, program: Program) -> None:
    folders = [f"synced /blobs/{NAMESPACE}{folder}" for folder in ("/_/_", "/_", "")]
    put_steps = steps_of(PUT, tmp_path, program)
    assert put_steps == ["synced /blobs/unfinished/_", "renamed", *folders, "synced /blobs", "synced ", "returned"]


RESULTS = PUT.replace(
    'put_input("acme", new_ids(1)[0], content)', 'put_results("acme", new_ids(1)[0], 1, text=content, facts=1)'
)


def test_several_results_are_synced_each_and_their_folders_once(tmp_path: Path, program: Program) -> None:
    put_steps = steps_of(RESULTS, tmp_path, program)
    folders = [f"synced /blobs/{NAMESPACE}{folder}" for folder in ("/_/_", "/_", "")]
    assert put_steps == ["synced /blobs/unfinished/_"] * 2 + ["renamed"] * 2 + [
        *folders,
        "synced /blobs",
        "synced ",
        "returned",
    ]


SIBLING = PUT.replace(
    'put_input("acme", new_ids(1)[0], content)', 'put_results("acme", id, 1, text=content, facts=1, has_input=True)'
)
SIBLING = SIBLING.replace("for content", 'id = new_ids(1)[0]\nfiles.put_input("acme", id, b"zero")\nfor content')


def test_results_beside_what_was_handed_in_sync_no_folder_above_theirs(tmp_path: Path, program: Program) -> None:
    put_steps = steps_of(SIBLING, tmp_path, program)
    assert put_steps == ["synced /blobs/unfinished/_"] * 2 + ["renamed"] * 2 + [f"synced /blobs/{NAMESPACE}/_/_", "returned"]


def test_results_whose_input_is_gone_sync_every_folder(tmp_path: Path, program: Program) -> None:
    gone = SIBLING.replace("    files.put_results", '    files.remove_inputs("acme", [id])\n    files.put_results')
    put_steps = steps_of(gone, tmp_path, program)
    assert [step for step in put_steps if "synced" in step][-5:] == [
        *(f"synced /blobs/{NAMESPACE}{folder}" for folder in ("/_/_", "/_", "")), "synced /blobs", "synced ",
    ]  # fmt: skip


@pytest.mark.parametrize("when", range(1, 7))
def test_a_sync_that_fails_is_a_clear_error(tmp_path: Path, program: Program, when: int) -> None:
    command = [sys.executable, "-c", PUT, str(tmp_path / "blobs")]
    inject = f"inject=fsync:error=EIO:when={when}"
    traced = [program("strace"), "-f", "-o", "/dev/null", "-e", "trace=fsync", "-e", inject, *command]
    ran = subprocess.run(traced, check=False, cwd=ROOT, capture_output=True, text=True)
    assert "written" not in ran.stdout
    assert f"StoreError: the disk under {tmp_path}/blobs failed: Input/output error" in ran.stderr
    assert list((tmp_path / "blobs" / "unfinished").iterdir()) == []


FILL = """
import json, os, pathlib, subprocess, sys
disk = pathlib.Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(disk)], check=True)
from fairlane import Queue, StoreFull
queue = Queue(f"sqlite:///{sys.argv[2]}/queue.db", blobs=str(disk / "blobs"))
first = queue.submit("acme", content=b"x" * 3_000_000)
error = None
try:
    queue.submit("acme", content=b"y" * 3_000_000)
except StoreFull as full:
    error = str(full)
names = sorted(path.name for path in disk.rglob("*") if path.is_file())
counter = queue.look("acme").counter
queue.forget("acme")
again = queue.submit("acme", content=b"z" * 3_000_000)
with queue.file(again.id) as file:
    size = len(file.read())
print(json.dumps([error, names, counter, size]))
"""


def test_a_full_disk_is_a_clear_error_that_leaves_nothing(tmp_path: Path, program: Program) -> None:
    unshare = [program("unshare"), "--mount", "--map-root-user"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        missing("this system does not allow a private mount, so a full disk cannot be made")
    (tmp_path / "disk").mkdir()
    command = [*unshare, sys.executable, "-c", FILL, str(tmp_path / "disk"), str(tmp_path)]
    ran = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    error, names, counter, size = json.loads(ran.stdout)
    assert "no room left to write in" in error
    assert "make room on its disk, then try again" in error
    assert (names, counter, size) == (["input"], 0, 3_000_000)


def test_a_folder_that_may_not_be_written_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "closed").mkdir(mode=0o555)
    (tmp_path / "file").write_text("")
    with as_nobody(), pytest.raises(StoreUnfit, match="cannot be used for files: Permission denied; name a folder"):
        Files("closed/blobs", NAMESPACE).put_input("acme", new_ids(1)[0], b"")
    for wrong in ("file", "file/blobs"):
        with pytest.raises(StoreError, match=r"file.*(failed|cannot be used)"):
            Files(wrong, NAMESPACE).put_input("acme", new_ids(1)[0], b"")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"one two")
    files, id, file = put(tmp_path / "blobs")
    (path,) = (tmp_path / "blobs").rglob("input")
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(StoreError):
        files.open_input("acme", id, file)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StoreError, match="is not a regular file"):
        files.open_input("acme", id, file)


def test_what_dead_writers_left_goes_when_it_is_old(tmp_path: Path) -> None:
    files, _, _ = put(tmp_path / "blobs")
    left = tmp_path / "blobs" / "unfinished" / "dead"
    left.write_bytes(b"half")
    assert files.blobs.remove_unfinished(60) == 0
    os.utime(left, (1, 1))
    assert files.blobs.remove_unfinished(60) == 1
    assert not left.exists()


def test_a_bit_that_flips_on_the_disk_is_found(tmp_path: Path) -> None:
    files, id, file = put(tmp_path / "blobs", b"x" * 100_000)
    (path,) = (tmp_path / "blobs").rglob("input")
    for position in (0, 50_000, 99_999):
        content = bytearray(path.read_bytes())
        content[position] ^= 4
        path.write_bytes(content)
        with pytest.raises(StoreError, match="are damaged"):
            files.open_input("acme", id, file)
        content[position] ^= 4
        path.write_bytes(content)
    files.open_input("acme", id, file).close()


def test_only_ordinary_files_are_taken(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in (
        (tmp_path / "pipe", "a pipe or a device"),
        (tmp_path, "a folder"),
        (Path("/dev/zero"), "a pipe or a device"),
    ):
        with pytest.raises(Mistake, match=f"is {kind}, not a regular file"):
            open_content(path, None)
    with pytest.raises(Mistake, match="there is no file"):
        open_content(tmp_path / "nope", None)
    with open(tmp_path / "huge", "wb") as huge:
        huge.truncate(100_000_001)
    with pytest.raises(BadValue, match="at most 100,000,000 bytes; it has 100,000,001"):
        open_content(tmp_path / "huge", None)
    for wrong in (7, ["a"], object()):
        with pytest.raises(BadValue, match="path is"):
            open_content(wrong, None)
        with pytest.raises(BadValue, match="content is"):
            open_content(None, wrong)


@pytest.mark.parametrize("wrong", ["", "http://x/y", "s3://", "ftp://x", "a\0b", None, 3])
def test_a_place_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(BadValue, match="blobs is"):
        open_blobs(wrong)
