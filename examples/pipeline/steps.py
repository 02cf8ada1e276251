"""A pipeline of three steps: each is a kind with a handler of its own, and a page passes through all of them."""

from __future__ import annotations

import re
import subprocess

from fairlane import Fail, Worker

URL = "sqlite:///fairlane.db"
STEPS = ["ocr", "classify", "fields"]
WORDS = {"invoice": "invoice", "amount due": "invoice", "receipt": "receipt"}  # what a page says, and what it is then
worker = Worker(URL, slots=2)


@worker.handler("ocr", timeout=120)
def read(document):
    with document.open() as page:
        command = ["tesseract", "stdin", "stdout", "--psm", "6"]
        done = subprocess.run(command, input=page.read(), capture_output=True, check=False)
    if done.returncode:
        raise Fail(f"tesseract cannot read it: {done.stderr.decode(errors='replace')[-200:]}")
    text = done.stdout.decode()
    return {"text": text, **document.put_results(text=text)}


@worker.handler("classify")
def classify(document):
    text = document.results["ocr"]["text"]  # what the step before returned
    return {"class": next((name for words, name in WORDS.items() if words in text.lower()), "letter")}


@worker.handler("fields")
def find_fields(document):
    text = document.results["ocr"]["text"]
    number = re.search(r"\bN[o°]\.? *(\w+)", text)
    total = re.search(r"([\d.,]+) *EUR", text)
    return {
        "class": document.results["classify"]["class"],
        "number": number[1] if number else None,
        "total": total[1] if total else None,
    }


if __name__ == "__main__":
    print("processed:", worker.run(until_empty=True).done)
