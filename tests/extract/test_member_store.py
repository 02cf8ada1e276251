"""Members in a folder and members in a row are the same files; one that breaks off leaves nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.extract import Member, Unreadable
from fairlane.extract.member_store import MemberFolder, MemberRow, cut_row, member_name


def broken() -> Iterator[bytes]:
    yield b"half"
    raise Unreadable("corrupt", "it breaks off")


def test_a_folder_has_a_file_for_each(tmp_path: Path) -> None:
    store = MemberFolder(tmp_path)
    assert store.add(1, [b"a", b"b"]).read_bytes() == b"ab"
    with pytest.raises(Unreadable):
        store.add(2, broken())
    assert store.add(2, []).read_bytes() == b""
    assert sorted(os.listdir(tmp_path)) == ["member-00001", "member-00002"]


def test_a_row_is_cut_into_the_same_files(tmp_path: Path) -> None:
    contents = [b"first", b"", b"third" * 1000, b"x"]
    with tempfile.TemporaryFile(buffering=0) as file:
        row = MemberRow(file)
        for number, content in enumerate(contents, start=1):
            with pytest.raises(Unreadable):
                row.add(number, broken())
            assert row.add(number, [content[:2], content[2:]]) == Path(member_name(number))
        assert os.fstat(file.fileno()).st_size == sum(map(len, contents))
        members = [Member("name", len(content), tmp_path / member_name(n)) for n, content in enumerate(contents, start=1)]
        cut_row(file.fileno(), members)
    assert [member.path.read_bytes() for member in members] == contents
    assert {member.path.stat().st_mode & 0o777 for member in members} == {0o600}


def test_a_row_that_breaks_off_has_no_rest_at_its_end(tmp_path: Path) -> None:
    with tempfile.TemporaryFile(buffering=0) as file:
        row = MemberRow(file)
        row.add(1, [b"whole"])
        with pytest.raises(Unreadable):
            row.add(2, broken())
        assert os.fstat(file.fileno()).st_size == 5


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "member-00001").write_text("mine")
    with tempfile.TemporaryFile(buffering=0) as file, pytest.raises(FileExistsError):
        cut_row(file.fileno(), [Member("name", 0, tmp_path / "member-00001")])
    assert (tmp_path / "member-00001").read_text() == "mine"
