"""What the tests of extractors share: bytes in, a result or a code out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fairlane.extract import Extraction, Limits, Unreadable, extract
from tests.sandbox.harness import skip_refused
from tests.worker.conftest import bench, queue, url  # noqa: F401 - fixtures of the tests of the handler

NO_OCR = Limits(ocr_pages_max=0)
Read = Callable[..., Extraction]
Refused = Callable[..., Unreadable]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_refused(items)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Extract these bytes under this name."""

    def call(content: bytes, name: str = "", limits: Limits = NO_OCR, depth: int = 0) -> Extraction:
        path, scratch = tmp_path / "file", tmp_path / f"scratch-{len(list(tmp_path.iterdir()))}"
        path.write_bytes(content)
        scratch.mkdir()
        return extract(path, name, scratch, limits, depth)

    return call


@pytest.fixture
def refused(read: Read) -> Refused:
    """The failure of a file that must fail."""

    def call(content: bytes, name: str = "", limits: Limits = NO_OCR, depth: int = 0) -> Unreadable:
        with pytest.raises(Unreadable) as caught:
            read(content, name, limits, depth)
        return caught.value

    return call


def codes(extraction: Extraction) -> set[str]:
    """The codes of its warnings."""
    return {warning.code for warning in extraction.warnings}
