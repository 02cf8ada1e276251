"""What a person's own loop over files does: read each, and write text, facts and picture into three files.

As a program: a folder for the results, and the files. It waits for a line after it has loaded everything, so that its start
is not measured.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fairlane.extract import extract, warm


def read_and_written(path: Path, base: Path) -> None:
    """One file; no copy under another name first, no sync, no hash of what is written."""
    result = extract(path, path.name)
    base.with_suffix(".md").write_bytes(result.text_bytes)
    base.with_suffix(".json").write_text(json.dumps(result.facts(), ensure_ascii=False), encoding="utf-8")
    if result.thumbnail is not None:
        base.with_suffix(".png").write_bytes(result.thumbnail)


def main(results: str, *paths: str) -> None:
    """The loop."""
    warm()
    print("ready", flush=True)
    sys.stdin.readline()
    for number, path in enumerate(paths):
        read_and_written(Path(path), Path(results, str(number)))


if __name__ == "__main__":
    main(*sys.argv[1:])
