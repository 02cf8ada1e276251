"""The example of a pipeline, as its README shows it, with few pages."""

from __future__ import annotations

import re
from pathlib import Path

from fairlane import Queue
from tests.conftest import need_program
from tests.docs.snippets import snippet
from tests.terminal import bash

from .running import after_pip, copy_example

PAGES = 12
REPEATS = """
import os
import steps
from fairlane import Backoff, Worker

worker = Worker(steps.URL, backoff=Backoff(first=0, ceiling=0))

def dying(step):
    def handle(document):
        result = step(document)
        if document.attempt == 1:
            os._exit(1)
        return result
    return handle

for kind, step in {"ocr": steps.read, "classify": steps.classify, "fields": steps.find_fields}.items():
    worker.handler(kind)(dying(step))
worker.run(until_empty=True)
"""


def test_the_readme_runs(tmp_path: Path) -> None:
    need_program("tesseract")
    copy_example("pipeline", tmp_path)
    commands = snippet("examples/pipeline/README.md", "python submit.py 40").replace("submit.py 40", f"submit.py {PAGES}")
    printed = bash(after_pip(snippet("examples/pipeline/README.md", "pip install .")) + commands, tmp_path)
    pages = PAGES + 2
    assert f"processed: {pages}" in printed
    assert "'class': 'receipt', 'number': '1001', 'total': '11.50'" in printed
    assert f"'class': 'invoice', 'number': '{999 + PAGES}', 'total': '{9 + PAGES}.50'" in printed
    rows = re.findall(r"^(big|bakery) +(\d+) +(-?\d+) +(\d+) of (\d+)$", printed, re.MULTILINE)
    (bakery, big) = ((name, *map(int, numbers)) for name, *numbers in rows)
    assert bakery[:3] == ("bakery", 2, -1)
    assert big[:3] == ("big", PAGES, 1 - PAGES)  # a page is one check, however many steps it takes
    assert bakery[3] < pages / 2
    assert big[4] == pages


def test_a_step_that_dies_is_repeated_and_the_page_ends_once(tmp_path: Path) -> None:
    need_program("tesseract")
    folder = copy_example("pipeline", tmp_path)
    bash("python submit.py 1", folder)
    (folder / "repeats.py").write_text(REPEATS)
    bash("python repeats.py", folder)
    with Queue(f"sqlite:///{folder}/fairlane.db") as queue:
        ended = [(document.kind, document.state, document.attempts) for document in queue.documents()]
        claims = [change.document for change in queue.changes() if change.event == "claimed"]
    assert ended == [("fields", "done", 2)] * 3
    assert len(claims) == 3 * 3 * 2


def test_the_example_has_tests_of_its_own(tmp_path: Path) -> None:
    printed = bash("python -m pytest -q -p no:cacheprovider test_steps.py", copy_example("pipeline", tmp_path))
    assert "5 passed" in printed
