"""Scanning a folder of documents: customers, files, and what is skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairlane.core.errors import Mistake
from fairlane.folders.scan import NAMES_SHOWN_MAX, check_readable, list_names, payload_of, scan
from tests.conftest import as_nobody


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def test_each_sub_folder_is_a_customer_and_each_file_a_document(tmp_path: Path) -> None:
    put(tmp_path, "zoë/b.txt", "zoë/a.txt", "acme/2025/may/x.pdf", "acme/1.pdf", "acme/2024/y.pdf")
    found = scan(str(tmp_path))
    assert found.documents == {
        "acme": [f"{tmp_path}/acme/1.pdf", f"{tmp_path}/acme/2024/y.pdf", f"{tmp_path}/acme/2025/may/x.pdf"],
        "zoë": [f"{tmp_path}/zoë/a.txt", f"{tmp_path}/zoë/b.txt"],
    }
    assert list(found.documents) == ["acme", "zoë"]
    assert found.skipped == []


def test_what_is_skipped_is_reported(tmp_path: Path) -> None:
    put(tmp_path, "acme/a.txt", "acme/.hidden", "acme/.git/config", ".DS_Store", "top.txt", "readme.md", "elsewhere/x/deep.txt")
    (tmp_path / "acme/linked").symlink_to(tmp_path / "elsewhere/x", target_is_directory=True)
    (tmp_path / "friend").symlink_to(tmp_path / "acme", target_is_directory=True)
    (tmp_path / "acme/circle").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "acme/dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "nobody").mkdir()
    os.mkfifo(tmp_path / "acme/pipe")
    found = scan(str(tmp_path))
    assert found.documents == {"acme": [f"{tmp_path}/acme/a.txt"], "elsewhere": [f"{tmp_path}/elsewhere/x/deep.txt"]}
    assert found.skipped == [
        "not in a sub-folder, so without a customer: readme.md, top.txt",
        "links to folders, which are not followed: acme/circle, acme/linked, friend",
        "neither files nor links to one: acme/dangling, acme/pipe",
        "sub-folders without documents: nobody",
        "hidden: 3",
    ]


def test_a_link_to_a_file_is_a_document(tmp_path: Path) -> None:
    put(tmp_path, "acme/a.txt")
    (tmp_path / "acme/again.txt").symlink_to(tmp_path / "acme/a.txt")
    assert scan(str(tmp_path)).documents["acme"] == [f"{tmp_path}/acme/a.txt", f"{tmp_path}/acme/again.txt"]


def test_a_relative_folder_gives_full_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "inbox/acme/a.txt")
    (tmp_path / "inbox/acme/dangling").symlink_to("nowhere")
    (tmp_path / "inbox/link").symlink_to("acme")
    monkeypatch.chdir(tmp_path)
    assert scan("inbox").skipped == [
        "links to folders, which are not followed: link",
        "neither files nor links to one: acme/dangling",
    ]
    assert scan("inbox").documents == {"acme": [f"{tmp_path}/inbox/acme/a.txt"]}
    assert payload_of("inbox/acme/../acme/a.txt", "inbox") == {"path": f"{tmp_path}/inbox/acme/a.txt", "place": "acme/a.txt"}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], r"there is no document in .* \(it is empty\); each sub-folder is a customer"),
        (["a.pdf", "b.pdf"], r"\(not in a sub-folder, so without a customer: a.pdf, b.pdf\)"),
        (["acme/.hidden", ".other"], r"\(hidden: 2\)"),
        (["bad\nname/a.txt"], r"sub-folder bad�name cannot be a customer"),
        (["x" * 201 + "/a.txt"], "cannot be a customer: customer is 'xxx.*; rename it"),
    ],
)
def test_a_folder_without_documents_is_refused(tmp_path: Path, names: list[str], message: str) -> None:
    put(tmp_path, *names)
    with pytest.raises(Mistake, match=message) as raised:
        scan(str(tmp_path))
    assert str(raised.value).isprintable()


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "file.txt")
    with pytest.raises(Mistake, match=r"there is no folder .*; `fairlane demo "):
        scan(str(tmp_path / "nowhere"))
    with pytest.raises(Mistake, match=r"file\.txt is a file, not a folder"):
        scan(str(tmp_path / "file.txt"))


def test_a_folder_that_may_not_be_listed_is_refused_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "acme/a.txt", "bolt/secret/b.txt")
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o755)
    Path("bolt/secret").chmod(0)
    for folder in (".", "bolt/secret"):
        with as_nobody(), pytest.raises(Mistake, match=r"the folder .*secret cannot be read: Permission denied"):
            scan(folder)
    Path("bolt/secret").chmod(0o755)


def test_every_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    put(tmp_path, "good.txt")
    good = str(tmp_path / "good.txt")
    assert check_readable([good, good]) == [good, good]
    with pytest.raises(Mistake) as raised:
        check_readable([good, f"{tmp_path}/one", str(tmp_path), f"{tmp_path}/two"])
    first, *others = str(raised.value).splitlines()
    assert first == "nothing was submitted, because these files cannot be read:"
    assert [line.split(";")[0] for line in others] == [
        f"there is no file {tmp_path}/one",
        f"{tmp_path} is a folder, not a regular file",
        f"there is no file {tmp_path}/two",
    ]


def test_many_names_are_counted() -> None:
    assert list_names("abc") == "a, b, c"
    assert list_names(map(str, range(NAMES_SHOWN_MAX + 2))) == "0, 1, 2, 3, 4 and 2 more"
