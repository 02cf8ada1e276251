"""A pipeline of three steps. Each step is a kind with a handler of its own, and makes the document of the next step."""

from __future__ import annotations

import re
import subprocess
from functools import cache

from fairlane import Fail, Queue, Worker

URL = "sqlite:///fairlane.db"
WORDS = {"invoice": "invoice", "amount due": "invoice", "receipt": "receipt"}  # what a page says, and what it is then
worker = Worker(URL, slots=2)


@cache
def queue() -> Queue:
    """Open the queue once in each of the worker's processes."""
    return Queue(URL, create=False)


def submit_next(document, kind: str, payload: dict) -> dict:
    """Submit the next step; return what leads to it, for this step's result.

    With `made_from` it inherits the priority and is no check: a page costs its customer one check, however many steps it takes.
    The key makes a repetition harmless: if the worker dies now, the next attempt finds the document instead of making another.
    """
    receipt = queue().submit(document.customer, payload, kind=kind, key=f"{document.id}/{kind}", made_from=document.id)
    return {"next": receipt.id}


@worker.handler("ocr", timeout=120)
def read(document):
    with document.open() as page:
        command = ["tesseract", "stdin", "stdout", "--psm", "6"]
        done = subprocess.run(command, input=page.read(), capture_output=True, check=False)
    if done.returncode:
        raise Fail(f"tesseract cannot read it: {done.stderr.decode(errors='replace')[-200:]}")
    text = done.stdout.decode()
    return {**document.put_results(text=text), **submit_next(document, "classify", {"text": text})}


@worker.handler("classify")
def classify(document):
    text = document.payload["text"]
    found = next((name for words, name in WORDS.items() if words in text.lower()), "letter")
    return {"class": found, **submit_next(document, "fields", {"text": text, "class": found})}


@worker.handler("fields")
def find_fields(document):
    number = re.search(r"\bN[o°]\.? *(\w+)", document.payload["text"])
    total = re.search(r"([\d.,]+) *EUR", document.payload["text"])
    return {
        "class": document.payload["class"],
        "number": number[1] if number else None,
        "total": total[1] if total else None,
    }


if __name__ == "__main__":
    print("processed:", worker.run(until_empty=True).done)
