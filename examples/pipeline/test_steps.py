"""Tests of the steps without a worker, a queue on the disk or tesseract: pytest test_steps.py."""

from __future__ import annotations

import subprocess

import pytest
import steps

from fairlane import Fail
from fairlane.testing import Document, assert_done, run_all


@pytest.fixture
def tesseract(monkeypatch):
    """Read every scan as the text that its bytes are."""

    def run(command, input, **_):
        return subprocess.CompletedProcess(command, 0 if input else 1, stdout=input, stderr=b"empty image")

    monkeypatch.setattr(subprocess, "run", run)


def test_a_page_goes_through_three_steps_at_the_cost_of_one_check(fairlane_queue, tesseract):
    content = b"RECEIPT No 1001\nTotal 11.50 EUR"
    page = fairlane_queue.submit("bakery", content=content, name="page.png", steps=steps.STEPS)
    assert run_all(fairlane_queue, steps.worker).continued == 2
    assert_done(fairlane_queue, page.id, {"class": "receipt", "number": "1001", "total": "11.50"})
    assert fairlane_queue.look("bakery").counter == 0


def test_what_tesseract_cannot_read_fails(tesseract):
    with pytest.raises(Fail, match="empty image"):
        steps.read(Document(content=b"", name="page.png"))


@pytest.mark.parametrize(("text", "name"), [("AMOUNT DUE", "invoice"), ("Receipt", "receipt"), ("Dear Ann", "letter")])
def test_pages_are_classified_by_their_words(text, name):
    assert steps.classify(Document(results={"ocr": {"text": text}})) == {"class": name}
