"""`Document`: a handler can be called with one, without a queue."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest

from fairlane import BadValue, Mistake
from fairlane.testing import Document


def count_lines(document: Any) -> dict[str, Any]:
    for share in range(30):  # more than a worker would send in a moment
        document.progress(share / 30)
    document.partial({"lines": None})
    with document.open() as file:
        text = file.read().decode()
    document.cost = 2.5
    return {"lines": len(text.splitlines()), **document.put_results(text=text.upper(), facts={"letters": 3}, thumbnail=b"png")}


def test_a_handler_sees_its_file_and_its_reports_are_kept() -> None:
    document = Document({"tags": ("a",)}, customer="acme", content=b"a\nb\nc", name="abc.txt")
    result = count_lines(document)
    assert result["lines"] == 3
    assert document.payload == {"tags": ["a"]}  # as JSON makes it
    assert (document.kind, document.customer, document.file and document.file.name) == ("extract", "acme", "abc.txt")
    assert len(document.reports) == 30
    assert document.partials == [{"lines": None}]
    assert (document.text, document.facts, document.thumbnail) == ("A\nB\nC", {"letters": 3}, b"png")
    assert document.cost == 2.5
    document.put_results(text="again")
    assert (document.text, document.facts) == ("again", {"letters": 3})


def test_a_file_may_be_on_the_disk(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntwo")
    assert count_lines(Document(path=tmp_path / "a.txt"))["lines"] == 2


def test_without_files_nothing_is_written() -> None:
    document = Document({"page": 1}, attempt=2)
    assert (document.kind, document.attempt, document.attempts_max, document.token) == ("default", 2, 3, 2)
    assert (document.text, document.facts, document.thumbnail, document._folder) == (None, None, None, None)
    with pytest.raises(Mistake, match="without a file"):
        document.open()


def test_the_folder_is_gone_with_the_document() -> None:
    document = Document(content=b"x")
    folder = document._folder
    assert folder is not None
    assert os.path.exists(folder)
    del document
    gc.collect()
    assert not os.path.exists(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"payload": {1, 2}}, "payload"),
        ({"attempt": 4}, "attempt is 4.*attempts_max, which is 3"),
        ({"attempts_max": 0}, "attempts_max is 0"),
        ({"priority": 10}, "priority is 10"),
        ({"customer": ""}, "customer is ''"),
        ({"kind": "\n"}, "kind is"),
        ({"content": "text"}, "content is 'text'"),
        ({"name": "a.txt"}, "path is None"),
    ],
)
def test_bad_values_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        Document(**options)


def test_a_handlers_mistakes_are_those_of_a_worker() -> None:
    document = Document()
    with pytest.raises(BadValue, match="progress is 2"):
        document.progress(2)
    with pytest.raises(BadValue, match="partial result"):
        document.partial({1, 2})
    assert (document.reports, document.partials) == ([], [])
