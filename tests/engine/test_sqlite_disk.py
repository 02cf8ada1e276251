"""SQLite on real disks: acknowledged means synced, and a full or failing disk loses nothing acknowledged."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlane.engine import open_engine
from fairlane.engine.walk import walk_documents
from tests.conftest import missing

ROOT = Path(__file__).parents[2]
Program = Callable[[str], str]

SUBMIT = """
import sys, threading
from fairlane.core.document import Submission
from fairlane.engine import open_engine
url, callers, each = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
engine = open_engine(url)
def send(caller):
    for n in range(each):
        engine.submit([Submission(f"{caller}-{n}", "ada", "extract", "{}")])
        print(f"{caller}-{n}", flush=True)
threads = [threading.Thread(target=send, args=(caller,)) for caller in range(callers)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def syncs_of(strace: str, folder: Path, callers: int, each: int) -> int:
    """Return how often the log was synced while callers submitted one by one."""
    open_engine(f"sqlite:///{folder}/queue.db").close()
    log = folder / "trace"
    command = [sys.executable, "-c", SUBMIT, f"sqlite:///{folder}/queue.db", str(callers), str(each)]
    traced = [strace, "-f", "-y", "-e", "trace=fsync,fdatasync", "-o", str(log), *command]
    subprocess.run(traced, check=True, cwd=ROOT, capture_output=True)
    return len(re.findall(r"f(?:data)?sync\(\d+<[^>]*queue\.db-wal>", log.read_text()))


def test_every_acknowledgement_of_a_lone_caller_has_a_sync_of_its_own(tmp_path: Path, program: Program) -> None:
    assert syncs_of(program("strace"), tmp_path, callers=1, each=50) >= 50


def test_callers_that_arrive_together_share_a_sync(tmp_path: Path, program: Program) -> None:
    assert syncs_of(program("strace"), tmp_path, callers=16, each=25) <= 16 * 25 / 2


@pytest.mark.parametrize("when", [3, 7, 12])
def test_a_sync_that_fails_is_a_clear_error_and_nothing_acknowledged_is_lost(
    tmp_path: Path, program: Program, when: int
) -> None:
    strace = program("strace")
    folder = tmp_path
    open_engine(f"sqlite:///{folder}/queue.db").close()
    command = [sys.executable, "-c", SUBMIT, f"sqlite:///{folder}/queue.db", "1", "30"]
    inject = f"inject=fsync,fdatasync:error=EIO:when={when}"
    traced = [strace, "-f", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", inject, *command]
    ran = subprocess.run(traced, check=False, cwd=ROOT, capture_output=True, text=True)
    acknowledged = ran.stdout.split()
    assert "StoreError: the disk under" in ran.stderr
    assert len(acknowledged) < 30
    engine = open_engine(f"sqlite:///{folder}/queue.db")
    stored = {document.id for document in walk_documents(engine)}
    assert set(acknowledged) <= stored
    assert len(stored) <= len(acknowledged) + 1
    assert engine.customer("ada").waiting == len(stored)


FILL = """
import json, os, pathlib, subprocess, sys
disk = pathlib.Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(disk)], check=True)
from fairlane.core.document import Submission
from fairlane.core.errors import StoreFull
from fairlane.engine import open_engine
from fairlane.engine.walk import walk_documents
filler = disk / "filler"
filler.write_bytes(b"x" * 2_000_000)
engine = open_engine(f"sqlite:///{disk}/queue.db")
acknowledged, error, body = [], None, json.dumps("x" * 20_000)
for n in range(1000):
    try:
        engine.submit([Submission(f"d{n}", "ada", "extract", body)])
        acknowledged.append(f"d{n}")
    except StoreFull as full:
        error = str(full)
        break
counter, waiting = engine.customer("ada").counter, engine.customer("ada").waiting
filler.unlink()
engine.submit([Submission("afterwards", "ada", "extract", body)])
stored = [document.id for document in walk_documents(engine)]
engine.close()
again = [document.id for document in walk_documents(open_engine(f"sqlite:///{disk}/queue.db"))]
print(json.dumps([acknowledged, error, counter, waiting, stored, again]))
"""


def test_a_full_disk_is_a_clear_error_and_the_queue_works_again_when_there_is_space(tmp_path: Path, program: Program) -> None:
    command = [program("unshare"), "--mount", "--map-root-user", sys.executable, "-c", FILL, str(tmp_path)]
    if subprocess.run([*command[:3], "true"], check=False, capture_output=True).returncode:
        missing("this system does not allow a private mount, so a full disk cannot be made")
    ran = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    acknowledged, error, counter, waiting, stored, again = json.loads(ran.stdout)
    assert 10 < len(acknowledged) < 1000
    assert "no space left to write" in error
    assert "free space on its disk, then try again" in error
    assert (counter, waiting) == (1 - len(acknowledged), len(acknowledged))
    assert set(stored) == {*acknowledged, "afterwards"}
    assert again == stored
