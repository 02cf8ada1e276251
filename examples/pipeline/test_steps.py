"""Tests of the steps without a worker, a queue on the disk or tesseract: pytest test_steps.py."""

from __future__ import annotations

import subprocess

import pytest
import steps

from fairlane import Fail
from fairlane.testing import Document, assert_done, assert_submitted, run_all


@pytest.fixture
def queue(fairlane_queue, monkeypatch):
    monkeypatch.setattr(steps, "queue", lambda: fairlane_queue)
    return fairlane_queue


@pytest.fixture
def tesseract(monkeypatch):
    """Read every scan as the text that its bytes are."""

    def run(command, input, **_):
        return subprocess.CompletedProcess(command, 0 if input else 1, stdout=input, stderr=b"empty image")

    monkeypatch.setattr(subprocess, "run", run)


def test_a_page_goes_through_three_steps_at_the_cost_of_one_check(queue, tesseract):
    page = queue.submit("bakery", content=b"RECEIPT No 1001\nTotal 11.50 EUR", name="page.png", kind="ocr")
    assert run_all(queue, steps.worker).done == 3
    second = assert_done(queue, page.id)["next"]
    third = assert_done(queue, second, {"class": "receipt"})["next"]
    assert_done(queue, third, {"class": "receipt", "number": "1001", "total": "11.50"})
    assert queue.look("bakery").counter == 0


def test_what_tesseract_cannot_read_fails(tesseract):
    with pytest.raises(Fail, match="empty image"):
        steps.read(Document(content=b"", name="page.png"))


@pytest.mark.parametrize(("text", "name"), [("AMOUNT DUE", "invoice"), ("Receipt", "receipt"), ("Dear Ann", "letter")])
def test_pages_are_classified_by_their_words(queue, text, name):
    page = queue.submit("bakery", {"text": text}, kind="classify")
    run_all(queue, {"classify": steps.classify})
    assert_done(queue, page.id, {"class": name})
    assert_submitted(queue, "bakery", {"class": name}, kind="fields", count=1)
