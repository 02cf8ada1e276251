"""What a stranger does first with an installed Fairlane, run by the Python of that environment.

python stranger.py URL BLOBS    submits files, works them off, then serves the same queue and uses the client. Prints a JSON
                                object: what came out, for the test that started it to judge.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from fairlane import Client, Queue

FAIRLANE = [sys.executable, "-m", "fairlane"]
SECONDS = 120


def command(*arguments: str) -> str:
    """What a command printed; it must succeed."""
    done = subprocess.run([*FAIRLANE, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout


def worked_off(url: str, blobs: str, inbox: Path) -> dict[str, Any]:
    """Submit every file, work them off, and tell what came out of each format."""
    store = ("--url", url, "--blobs", blobs)
    with Queue(url, blobs=blobs) as queue:
        receipts = {path: queue.submit(path.parent.name, path=path) for path in sorted(inbox.rglob("*.*"))}
        command("work", "--until-empty", "--slots", "2", *store)
        states = {
            path.suffix: [queue.document(receipt.id).state, bool(queue.text(receipt.id))] for path, receipt in receipts.items()
        }
        pictures = {path.suffix: queue.thumbnail(receipt.id) for path, receipt in receipts.items() if path.suffix != ".eml"}
    command("status", "--url", url)
    return {
        "formats": states,
        "pictures": [name for name, content in pictures.items() if content.startswith(b"\x89PNG")],
        "differences": json.loads(command("verify", "--json", "--url", url))["differences"],
    }


def served(url: str, blobs: str, path: Path) -> dict[str, Any]:
    """Serve the queue, send a file with the client, and look at the page and the metrics."""
    arguments = ["serve", "--url", url, "--blobs", blobs, "--port", "0", "--json"]
    with subprocess.Popen([*FAIRLANE, *arguments], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = json.loads(server.stdout.readline())
            written = line["admin_key_file"]  # where the queue is a file; elsewhere the log says to make one
            key = Path(written).read_text().strip() if written else command("keys", "create", "--admin", "--url", url).strip()
            with Client(line["address"], key) as client:
                receipt = client.submit(path=path, customer="acme")
                state = client.wait(receipt.id, timeout=SECONDS).state
                text = client.text(receipt.id)
            page = _page(f"{line['address']}/")
            metrics = _page(f"{line['address']}/metrics", key)
        finally:
            server.terminate()
            code = server.wait(SECONDS)
    return {
        "state": state,
        "text": bool(text),
        "page": page.startswith("<!doctype html>"),
        "metrics": "fairlane_" in metrics,
        "exit": code,
    }


def _page(address: str, key: str | None = None) -> str:
    headers = {"Authorization": f"Bearer {key}"} if key else {"Accept": "text/html"}
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=SECONDS) as response:
        return str(response.read().decode())


def main(url: str, blobs: str) -> None:
    """Do all of it."""
    with tempfile.TemporaryDirectory() as folder:
        inbox = Path(folder, "inbox")
        command("demo", str(inbox), "--big", "12", "--small", "1", "--each", "2", "--paragraphs", "2")
        result = worked_off(url, blobs, inbox)
        result["served"] = served(url, blobs, next(inbox.rglob("*.pdf")))
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
