"""Who may read a queue's file: its owner, or a group that shares it on purpose, whatever the umask was."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest

from fairlane import Queue
from fairlane.core.errors import StoreError, StoreUnfit
from fairlane.engine.sqlite.connection import connect
from fairlane.engine.sqlite.file_checks import close_to_others
from tests.conftest import as_nobody
from tests.docs.snippets import snippet
from tests.terminal import bash

SUFFIXES = ("", "-wal", "-shm")


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """The modes of a queue's files, as far as they exist."""
    paths = {suffix: folder / f"queue.db{suffix}" for suffix in SUFFIXES}
    return {suffix: stat.S_IMODE(path.stat().st_mode) for suffix, path in paths.items() if path.exists()}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/queue.db"


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
def test_a_new_queue_is_for_its_owner_alone_whatever_the_umask(url: str, tmp_path: Path, mask: int) -> None:
    with umask(mask), Queue(url) as queue:
        queue.submit("acme", "secret")
        assert modes(tmp_path) == dict.fromkeys(SUFFIXES, 0o600)


@pytest.mark.parametrize(("before", "after"), [(0o644, 0o600), (0o666, 0o660), (0o664, 0o660), (0o640, 0o600), (0o604, 0o600)])
def test_an_open_one_is_closed_when_it_is_opened_and_that_is_logged(
    url: str, tmp_path: Path, before: int, after: int, caplog: pytest.LogCaptureFixture
) -> None:
    with Queue(url) as user:  # of an older version, that goes on using it
        user.submit("acme", 1)
        for suffix in SUFFIXES:
            (tmp_path / f"queue.db{suffix}").chmod(before)
        with Queue(url) as queue:
            assert modes(tmp_path) == dict.fromkeys(SUFFIXES, after)
            messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
            expected = f"was open to other users of this machine (mode {before:o}); it has mode {after:o} now"
            assert messages == [f"{tmp_path}/queue.db {expected}"]
            caplog.clear()
            Queue(url).close()
            assert caplog.records == []
            queue.submit("acme", 2)
            assert user.look("acme").waiting == 2


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_a_group_that_may_write_shares_it_on_purpose(
    url: str, tmp_path: Path, mask: int, caplog: pytest.LogCaptureFixture
) -> None:
    Queue(url).close()
    (tmp_path / "queue.db").chmod(0o660)
    with umask(mask), Queue(url) as queue:
        queue.submit("acme", 1)
        assert modes(tmp_path) == dict.fromkeys(SUFFIXES, 0o660)
        (found,) = [finding for finding in queue.engine.diagnose() if finding.name == "access"]
        assert (found.level, "and the group" in found.message) == ("fine", True)
    assert caplog.records == []


TRY_TO_WRITE = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
try:
    connection.execute("BEGIN IMMEDIATE")
    print("locked by nobody")
except apsw.BusyError:
    print("locked")
"""


def test_closing_it_to_others_keeps_the_locks_of_this_process(url: str, tmp_path: Path) -> None:
    """When a process closes a file, it loses its locks on it: SQLite would let two write at once."""

    def tried_elsewhere() -> str:
        command = [sys.executable, "-c", TRY_TO_WRITE, str(tmp_path / "queue.db")]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    with Queue(url) as queue:
        queue.submit("acme", 1)
        writer = connect(tmp_path / "queue.db")
        writer.execute("BEGIN IMMEDIATE")
        assert tried_elsewhere() == "locked"
        for suffix in SUFFIXES:
            (tmp_path / f"queue.db{suffix}").chmod(0o644)
        with Queue(url):
            assert modes(tmp_path) == dict.fromkeys(SUFFIXES, 0o600)
            assert tried_elsewhere() == "locked"
        writer.execute("ROLLBACK")
        assert tried_elsewhere() == "locked by nobody"
        writer.close()


def test_a_link_beside_the_file_is_not_followed(url: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("")
    victim.chmod(0o644)
    Queue(url).close()
    (tmp_path / "queue.db-wal").symlink_to(victim)
    close_to_others(tmp_path / "queue.db")
    assert stat.S_IMODE(victim.stat().st_mode) == 0o644


def test_a_queue_behind_a_link_is_closed_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    with Queue(f"sqlite:///{tmp_path}/real/queue.db") as user:
        user.submit("acme", 1)
        for suffix in SUFFIXES:
            (tmp_path / f"real/queue.db{suffix}").chmod(0o644)
        (tmp_path / "link.db").symlink_to(tmp_path / "real/queue.db")
        Queue(f"sqlite:///{tmp_path}/link.db").close()
        assert modes(tmp_path / "real") == dict.fromkeys(SUFFIXES, 0o600)


def test_another_programs_file_is_left_as_it_is(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    connection = apsw.Connection(str(other))
    connection.execute("CREATE TABLE addresses (name)")
    connection.close()
    other.chmod(0o644)
    with pytest.raises(StoreUnfit):
        Queue(f"sqlite:///{other}")
    assert stat.S_IMODE(other.stat().st_mode) == 0o644


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may use, also those above it."""
    with TemporaryDirectory(prefix="fairlane-test-") as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


def test_what_belongs_to_somebody_else_is_named_once_and_used(open_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to somebody else")
    url = f"sqlite:///{open_folder}/queue.db"
    with Queue(url) as user:
        user.submit("acme", 1)
        for suffix in SUFFIXES:
            (open_folder / f"queue.db{suffix}").chmod(0o666)
        with as_nobody():
            for _ in range(2):
                with Queue(url) as queue:
                    queue.submit("acme", 2)
                    (found,) = [finding for finding in queue.engine.diagnose() if finding.name == "access"]
                    assert (found.level, "chmod 600" in str(found.advice)) == ("bad", True)
        (record,) = caplog.records
        assert "is open to other users of this machine (mode 666); its owner should: chmod 660" in record.getMessage()


def test_a_folder_that_may_not_be_entered_is_an_error_with_a_sentence(open_folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may enter every folder")
    (open_folder / "closed").mkdir(mode=0o700)
    with as_nobody(), pytest.raises(StoreError, match="this user may not enter the folder of"):
        Queue(f"sqlite:///{open_folder}/closed/queue.db")


def run_as(user: int, group: int, work: Callable[[], None]) -> None:
    """Run something in a child process as another user, in a group besides that user's own."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([group])
            os.setgid(user)
            os.setuid(user)
            os.umask(0o077)
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the parent sees how it ended
            traceback.print_exc()
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_users_of_one_group_share_a_queue_and_its_files_as_the_docs_say(open_folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can act for several users")
    group, first, second, stranger = 64001, 64002, 64003, 64004
    commands = snippet("docs/engines.md", "install -d -m 2770 -g documents")
    bash(commands.replace("documents", str(group)).replace("/srv/fairlane", f"{open_folder}/shared"), open_folder)
    url = f"sqlite:///{open_folder}/shared/queue.db"

    def use() -> None:
        with Queue(url) as queue:
            for document in queue.documents():
                with queue.file(document.id) as file:
                    assert file.read() == b"bytes"
            queue.submit("acme", content=b"bytes")

    def look() -> None:
        with pytest.raises(StoreError, match="may not enter"):
            Queue(url)

    with Queue(f"sqlite:///{open_folder}/warm-up.db") as warm_up:  # the children may not read Python's files
        warm_up.file(warm_up.submit("acme", content=b"bytes").id).close()
        assert list(warm_up.documents())
    with pytest.raises(StoreError):
        Queue(f"sqlite:///{open_folder}/nowhere/queue.db")
    for user in (first, second, first, second):
        run_as(user, group, use)
    run_as(stranger, stranger, look)
    with Queue(url) as queue:
        assert queue.look("acme").waiting == 4
