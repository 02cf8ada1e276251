"""Reading a file touches nothing but the file and the scratch folder; parsers are imported only when needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from chaos.corpus.all import corpus
from chaos.corpus.hostile import HOSTILE

HEAVY = ("PIL", "pypdfium2", "charset_normalizer", "email", "xml")
QUICK = ("hostile names", "external entity", "external entity in docx", "docx from outside", "encrypted pdf", "tiff in a loop")
WATCHED = """
import json, os, sys
from pathlib import Path
from fairlane.extract import Limits, Unreadable, extract, warm

warm()
folder, files = Path(sys.argv[1]), json.loads(sys.argv[2])
seen = []

def watch(event, details):
    if event.startswith(("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "ctypes.dlopen")):
        seen.append([event, repr(details)[:200]])
    elif event == "open" and isinstance(details[0], str):
        mode, flags = details[1] or "", details[2] or 0
        is_written = any(letter in mode for letter in "wax+") or bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        path = os.path.abspath(details[0])
        if is_written and not path.startswith(str(folder / "scratch")):
            seen.append(["written", path])
        elif not is_written and not path.startswith((str(folder), sys.prefix, sys.base_prefix)):
            if not path.endswith((".py", ".json", ".pyc")):
                seen.append(["read", path])

sys.addaudithook(watch)
for number, name in files:
    scratch = folder / "scratch" / str(number)
    scratch.mkdir(parents=True)
    try:
        extract(folder / str(number), name, scratch, Limits(ocr_pages_max=0))
    except Unreadable:
        pass
print(json.dumps(seen))
"""


IMPORTED = """
import json, sys
from pathlib import Path
from fairlane.extract import Limits, extract, warm

warm()
before = {*sys.modules}
folder, files = Path(sys.argv[1]), json.loads(sys.argv[2])
for number, name in files:
    scratch = folder / "scratch" / str(number)
    scratch.mkdir(parents=True)
    extract(folder / str(number), name, scratch, Limits(ocr_pages_max=0))
print(json.dumps([sorted({*sys.modules} - before), sorted(name for name in before if name.startswith("PIL."))]))
"""


def test_nothing_else_is_opened_started_or_connected_to(tmp_path: Path) -> None:
    contents = [(name, content) for name, content in corpus().items() if name.startswith(("pl.", "picture", "scan", "pages"))]
    contents += [(HOSTILE[key].name, HOSTILE[key].make()) for key in QUICK]
    assert _told_by(WATCHED, contents, tmp_path) == []


def test_what_is_read_in_a_fork_was_imported_before_it(tmp_path: Path) -> None:
    imported, of_pillow = _told_by(IMPORTED, [*corpus().items()], tmp_path)
    assert imported == []
    assert "PIL.PsdImagePlugin" not in of_pillow, "a format that is not read has no business in there"


def _told_by(script: str, contents: list[tuple[str, bytes]], folder: Path) -> Any:
    """What a script prints that is given these files, numbered, and their names."""
    for number, (_, content) in enumerate(contents):
        (folder / str(number)).write_bytes(content)
    names = json.dumps([(number, name) for number, (name, _) in enumerate(contents)])
    ran = subprocess.run([sys.executable, "-c", script, str(folder), names], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_parsers_are_imported_when_a_file_needs_them() -> None:
    script = "import sys, fairlane, fairlane.extract; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in HEAVY if name in loaded] == []
