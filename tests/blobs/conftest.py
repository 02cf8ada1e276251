"""Every test here runs on a folder and on S3."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.blobs.files import Files
from tests.servers.s3 import BUCKET, s3_server

_numbers = itertools.count()


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, str]]:
    with s3_server() as variables:
        yield variables


@pytest.fixture(params=["folder", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh location for files."""
    if request.param == "folder":
        return str(tmp_path / "blobs")
    for name, value in request.getfixturevalue("s3").items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/test-{next(_numbers)}/deeper"


@pytest.fixture
def files(where: str) -> Files:
    return Files(where, "0123456789abcdef")
