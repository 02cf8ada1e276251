"""Handlers for worker processes of an executor, which import them from here by name."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

from fairlane.worker import Document, Fail


def describe(document: Document) -> dict[str, Any]:
    """Return what a handler sees of its document, and where it runs; a file's text becomes a result file."""
    text = ""
    if document.file is not None:
        with document.open() as file:
            text = file.read().decode()
    results = document.put_results(text=text.upper()) if text else {}
    document.progress(0.5)
    document.cost = 2
    return {"payload": document.payload, "attempt": document.attempt, "pid": os.getpid(), **results}


def fails(document: Document) -> None:
    """Raise what the payload says."""
    if document.payload == "fail":
        raise Fail("it has no pages")
    raise ValueError("an unreadable page")


def crashes(document: Document) -> None:
    """End the process in the middle of a document."""
    os.kill(os.getpid(), signal.SIGKILL)


def waits(document: Document) -> str:
    """Note the beginning in the folder of the payload, and wait until the test makes the file `gate` there."""
    folder = Path(document.payload)
    (folder / f"began-{document.attempt}-{document.id}").touch()
    pause = threading.Event()
    while not (folder / "gate").exists():
        pause.wait(0.005)
    return "waited"
