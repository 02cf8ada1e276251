"""The commands backup and restore."""

from __future__ import annotations

import json
from pathlib import Path

from fairlane import Queue

from .running import run, run_json


def test_a_queue_is_backed_up_and_restored(tmp_path: Path) -> None:
    url, other = f"sqlite:///{tmp_path}/queue.db", f"sqlite:///{tmp_path}/other.db"
    with Queue(url) as queue:
        id = queue.submit("acme", content=b"one").id
        queue.submit("acme", {"n": 1})
    (made,) = run_json("backup", str(tmp_path / "backup"), "--check", "--url", url)
    assert (made["documents"], made["files"], made["bytes"], made["lost"]) == (2, 1, 3, 0)
    assert json.loads((tmp_path / "backup/manifest.json").read_text())["documents"] == 2
    result = run("restore", str(tmp_path / "backup"), "--url", other)
    assert result.output == f"Restored 2 documents and 1 file (3 bytes, 1 hard link) at {other}.\n"
    with Queue(other) as queue, queue.file(id) as file:
        assert file.read() == b"one"
    again = run("restore", str(tmp_path / "backup"), "--url", other)
    assert (again.exit_code, again.output) == (
        2,
        f"fairlane: {tmp_path}/other.db exists; a restore overwrites nothing: move it away, or restore to another --url\n",
    )
    assert run("verify", "--url", other).exit_code == 0


def test_files_that_are_missing_are_told_and_change_the_exit_code(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    with Queue(url) as queue:
        id = queue.submit("acme", content=b"one").id
    for path in (tmp_path / "queue.db.blobs").rglob("input"):
        path.unlink()
    result = run("backup", str(tmp_path / "backup"), "--url", url)
    assert result.exit_code == 4
    assert f"fairlane: 1 file missing or damaged, of documents such as {id}" in result.output


def test_a_queue_on_a_server_is_told_what_to_run(tmp_path: Path) -> None:
    result = run("backup", str(tmp_path / "backup"), "--url", "postgresql://app@db.example/app")
    assert result.exit_code == 2
    assert f"pg_dump --format=custom --schema=SCHEMA --file={tmp_path}/backup.dump" in result.output
    assert run("backup", str(tmp_path / "backup"), "--url", f"sqlite:///{tmp_path}/nothing.db").exit_code == 2
