"""Results in a folder: side by side, whole, and never outside of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.errors import Mistake
from fairlane.folders.outputs import NAME_BYTES_MAX, Outputs, member_paths, safe_parts
from tests.conftest import as_nobody

PATHS = st.lists(
    st.sampled_from(["a", "..", ".", "", "~", "a~ca978112", "\\", "\0", "\n", "ż" * 150, "\ud800", " "]), max_size=6
).map("/".join) | st.text(max_size=80)


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_text_facts_and_thumbnail_are_side_by_side(tmp_path: Path) -> None:
    outputs = Outputs(str(tmp_path / "new" / "out"))
    outputs.prepare()
    outputs.write("acme/2025/ł.pdf", "Zażółć\n".encode(), {"title": "ł"}, b"PNG")
    assert files_in(outputs.folder) == ["acme/2025/ł.pdf.json", "acme/2025/ł.pdf.md", "acme/2025/ł.pdf.png"]
    assert (outputs.folder / "acme/2025/ł.pdf.md").read_text(encoding="utf-8") == "Zażółć\n"
    assert json.loads((outputs.folder / "acme/2025/ł.pdf.json").read_bytes()) == {"title": "ł"}
    assert (outputs.folder / "acme/2025/ł.pdf.png").read_bytes() == b"PNG"


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_the_umask_says_who_may_read_what_the_user_asked_for(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        Outputs(str(tmp_path / "out")).write("acme/invoice.pdf", b"text", {}, b"picture")
    finally:
        os.umask(before)
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in written} == {0o666 & ~mask}
    assert not [path for path in written if path.name.startswith(".")]


def test_a_second_run_replaces_what_the_first_wrote(tmp_path: Path) -> None:
    outputs = Outputs(str(tmp_path))
    outputs.write("acme/a", b"long text of the first run", {}, b"PNG")
    outputs.write("acme/a", b"short", {}, None)
    assert files_in(tmp_path) == ["acme/a.json", "acme/a.md"]
    assert (tmp_path / "acme/a.md").read_text() == "short"


@given(PATHS)
def test_no_path_leads_out_of_the_folder(path: str) -> None:
    for part in safe_parts(path):
        assert part not in ("", ".", "..")
        assert "/" not in part
        assert "\0" not in part
        assert len(os.fsencode(part)) <= NAME_BYTES_MAX + 10


@given(PATHS, PATHS)
def test_paths_that_differ_stay_different(first: str, other: str) -> None:
    def normalised(path: str) -> list[str]:
        return [part for part in path.split("/") if part not in ("", ".")]

    assert (safe_parts(first) == safe_parts(other)) == (normalised(first) == normalised(other))


def test_members_of_an_archive_get_paths_of_their_own() -> None:
    names = ["a.txt", "a.txt", "b/a.txt", "../../etc/passwd", "a.txt"]
    paths = member_paths("acme/x.zip", names)
    assert paths[:3] == ["acme/x.zip/a.txt", "acme/x.zip/a.txt (2)", "acme/x.zip/b/a.txt"]
    assert paths[4] == "acme/x.zip/a.txt (3)"
    assert ".." not in paths[3].split("/")
    assert len(set(paths)) == 5


def test_what_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Mistake, match="is a file, not a folder"):
        Outputs(str(tmp_path / "file")).prepare()
    with pytest.raises(Mistake, match="cannot be written: Not a directory"):
        Outputs(str(tmp_path / "file" / "below")).prepare()


def test_a_folder_that_may_not_be_written_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("closed").mkdir(mode=0o555)
    with as_nobody(), pytest.raises(Mistake, match="cannot be written: Permission denied"):
        Outputs("closed").write("a", b"", {}, None)
