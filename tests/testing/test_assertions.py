"""Assertions: what they compare, and what they say when they fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairlane import BadValue, Fail, Queue
from fairlane.testing import MemoryQueue, assert_done, assert_failed, assert_not_submitted, assert_submitted, run_all
from fairlane.worker import Document


@pytest.fixture
def queue() -> Iterator[MemoryQueue]:
    with MemoryQueue() as opened:
        yield opened


def test_submitted_documents_are_found_by_what_is_given(queue: MemoryQueue) -> None:
    first = queue.submit("acme", {"page": 1, "of": {"book": "a", "year": 2026}}, kind="ocr", key="k1")
    queue.submit("acme", {"page": 2}, kind="ocr")
    file = queue.submit("bakery", content=b"x", name="bill.pdf", payload={"x": [1, {"y": 2, "z": 3}]})
    none = queue.submit("none", None)
    assert [document.id for document in assert_submitted(queue, "acme", {"of": {"book": "a"}})] == [first.id]
    assert len(assert_submitted(queue, "acme", kind="ocr", count=2)) == 2
    assert [document.id for document in assert_submitted(queue, name="bill.pdf")] == [file.id]
    assert [document.id for document in assert_submitted(queue, payload={"x": [1, {"y": 2}]})] == [file.id]
    assert [document.id for document in assert_submitted(queue, payload=None)] == [none.id]
    assert [document.id for document in assert_submitted(queue, key="k1", priority=1)] == [first.id]
    assert_not_submitted(queue, "acme", {"page": 3})
    assert_not_submitted(queue, payload={"x": [1]})
    assert_not_submitted(queue, priority=9)
    assert_not_submitted(queue, "acme", {"page": {"of": 1}})


def test_they_take_any_queue() -> None:
    with Queue("memory://") as queue:
        queue.submit("acme")
        assert_submitted(queue, "acme", count=1)


def test_a_failure_says_what_was_submitted(queue: MemoryQueue) -> None:
    with pytest.raises(
        AssertionError, match="expected at least 1 document with any values, found 0; nothing was submitted at all"
    ):
        assert_submitted(queue)
    for number in range(12):
        queue.submit("acme", {"page": number, "text": 200 * "x"}, kind="ocr", key=f"k{number}")
    queue.submit("acme", content=b"x", name="bill.pdf")
    with pytest.raises(AssertionError) as caught:
        assert_submitted(queue, "acme", {"page": 99}, kind="ocr", count=1)
    lines = str(caught.value).splitlines()
    assert lines[0] == ("expected 1 document with customer='acme', payload={'page': 99}, kind='ocr', found 0; submitted were:")
    assert lines[1].startswith("  acme 'ocr' priority 1 ready key 'k0' {'page': 0, 'text': 'xxx")
    assert len(lines[1]) < 200
    assert lines[-1] == "  and 3 more"
    with pytest.raises(AssertionError, match=r"expected 0 documents with name='bill\.pdf', found 1"):
        assert_not_submitted(queue, name="bill.pdf")
    with pytest.raises(BadValue, match="count is -1"):
        assert_submitted(queue, count=-1)


def test_done_and_failed_return_what_came_out(queue: MemoryQueue) -> None:
    done, failed = queue.submit("acme", 3), queue.submit("acme", 0)

    def divide(document: Document) -> dict[str, float]:
        if not document.payload:
            raise Fail("division by zero")
        return {"quotient": 12 / document.payload, "rest": 0}

    run_all(queue, divide)
    assert assert_done(queue, done.id, {"quotient": 4}) == {"quotient": 4, "rest": 0}
    assert assert_failed(queue, failed.id, "zero") == "division by zero"
    with pytest.raises(AssertionError, match=r"has the result \{.*\}, expected \{'quotient': 5\}"):
        assert_done(queue, done.id, {"quotient": 5})
    with pytest.raises(AssertionError, match="failed, not done: division by zero"):
        assert_done(queue, failed.id)
    with pytest.raises(AssertionError, match="is done, not failed"):
        assert_failed(queue, done.id)
    with pytest.raises(AssertionError, match="'division by zero', which does not hold 'overflow'"):
        assert_failed(queue, failed.id, "overflow")


def test_a_document_that_is_not_done_says_why(queue: MemoryQueue) -> None:
    id = queue.submit("acme", kind="ocr").id
    with pytest.raises(AssertionError, match=r"is ready, not done; .*ocr"):
        assert_done(queue, id)

    def handle(_: Document) -> None:
        raise KeyError("total")

    run_all(queue, {"ocr": handle})
    with pytest.raises(AssertionError, match=r"(?s)failed, not done: attempt 3 of 3 failed: KeyError.*in handle\n"):
        assert_done(queue, id)
