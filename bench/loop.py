"""The bare loop that the pipeline is compared with: extract each, and write text, facts and thumbnail to three files.

A program with these arguments: a folder for the results, and the files. It waits for a line on stdin after it has loaded
everything, so that its start is not measured.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fairlane.extract import extract, warm


def extract_to(path: Path, base: Path) -> None:
    """Extract one file, without a temporary name, fsync or hash of the output."""
    result = extract(path, path.name)
    base.with_suffix(".md").write_bytes(result.text_bytes)
    base.with_suffix(".json").write_text(json.dumps(result.facts(), ensure_ascii=False), encoding="utf-8")
    if result.thumbnail is not None:
        base.with_suffix(".png").write_bytes(result.thumbnail)


def main(results: str, *paths: str) -> None:
    """Run the loop."""
    warm()
    print("ready", flush=True)
    sys.stdin.readline()
    for number, path in enumerate(paths):
        extract_to(Path(path), Path(results, str(number)))


if __name__ == "__main__":
    main(*sys.argv[1:])
