"""Reading an export: its members, checked against its manifest."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

TOP = "fairlane-export/"


class Exported:
    """The members of an archive by path, each as the manifest says."""

    def __init__(self, archive: Path | bytes) -> None:
        content = archive if isinstance(archive, bytes) else archive.read_bytes()
        with tarfile.open(fileobj=io.BytesIO(content)) as opened:
            members = opened.getmembers()
            assert all(member.isreg() and member.mode == 0o600 for member in members)
            assert members[-1].name == f"{TOP}manifest.jsonl"
            self.members = {member.name.removeprefix(TOP): _read(opened, member) for member in members}
        *lines, end = self.lines("manifest.jsonl")
        self.summary = end["complete"]
        listed = {line["path"]: (line["size"], line["sha256"]) for line in lines}
        found = {path: (len(content), hashlib.sha256(content).hexdigest()) for path, content in self.members.items()}
        del found["manifest.jsonl"]
        assert listed == found

    def lines(self, path: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.members[path].splitlines()]

    def rows(self, folder: str) -> list[dict[str, Any]]:
        """All rows of a folder's parts."""
        parts = sorted(path for path in self.members if path.startswith(f"{folder}/") and path.endswith(".jsonl"))
        return [row for part in parts for row in self.lines(part)]


def _read(opened: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = opened.extractfile(member)
    assert file is not None
    return file.read()
