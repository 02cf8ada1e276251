"""Run every test: python -m tests [options of pytest].

Each folder is a pytest process of its own, a few at a time, the long ones first. Tests of workers and of the sandbox fork
their process, and forks of a process that has collected all five thousand tests are slow; one process per folder keeps it
small. The last line is the total.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

TESTS = Path(__file__).parent
AT_ONCE = (os.cpu_count() or 1) + 1  # tests also wait for clocks, disks and each other
LONG_FIRST = (
    "sandbox",
    "engine",
    "console/browser",
    "api",
    "worker",
    "house",
    "extract",
    "chaos",
    "installed",
    "contrib",
    "cli",
)
APART = ("console/browser",)  # folders inside others that run by themselves
NO_TESTS = 5  # pytest's exit code when it collected none


def folders() -> list[str]:
    """List every folder with tests, the long ones first."""
    names = {path.name for path in TESTS.iterdir() if path.is_dir() and list(path.rglob("test_*.py"))} | {*APART}
    return [*(name for name in LONG_FIRST if name in names), *sorted(names - {*LONG_FIRST})]


def run(folder: str, options: list[str]) -> tuple[str, int, str]:
    """Run the tests of a folder; return the folder, the exit code and the output of pytest."""
    inner = [f"--ignore={TESTS / name}" for name in APART if name.startswith(f"{folder}/")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / folder), *inner, *options]
    done = subprocess.run(
        command,
        cwd=TESTS.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return folder, done.returncode, done.stdout


def report(folder: str, code: int, text: str, may_be_empty: bool) -> Counter[str]:
    """Print a line about a folder, and all output if a test failed; return how many passed, failed and were skipped."""
    closing = text.strip().rpartition("\n")[2]
    counts = Counter({word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error|skipped)", closing)})
    if not (code == 0 or (code == NO_TESTS and may_be_empty)) and not counts["failed"] + counts["error"]:
        counts["error"] += 1  # pytest ended before its summary
    if counts["failed"] or counts["error"]:
        print(f"{' ' + folder + ' ':=^100}\n{text}", flush=True)
    print(f"tests/{folder}: {closing.strip('= ')}", flush=True)
    reasons = Counter[str]()
    for count, reason in re.findall(r"^SKIPPED \[(\d+)\] \S+ (.*)", text, re.MULTILINE):
        reasons[reason] += int(count)
    for reason, count in reasons.items():
        print(f"  {count} skipped: {reason}", flush=True)
    return counts


def main(options: list[str]) -> int:
    """Run all folders; return the exit code."""
    began, total, names = time.monotonic(), Counter[str](), folders()
    print(f"tests in {len(names)} folders, {AT_ONCE} at a time, the long ones first; a line for each that ended", flush=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in as_completed([pool.submit(run, name, options) for name in names]):
            total += report(*done.result(), may_be_empty=bool(options))
    failed = total["failed"] + total["error"]
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    print(f"in {minutes} min {seconds} s\n{total['passed']} passed, {failed} failed, {total['skipped']} skipped", flush=True)
    return 1 if failed or not total["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
