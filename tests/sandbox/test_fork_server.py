"""Attempts by a template: a fresh Python that knows nothing of the caller, and one guard for many attempts."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.corpus.all import corpus
from fairlane import sandbox
from fairlane.extract import Limits, Unreadable, extract, sandbox_entry, sandboxed
from fairlane.extract.sandboxed import extract_isolated

from .confined import (
    CALLERS,
    QUICK,
    Caller,
    children_of,
    forked,
    gone,
    guard_of,
    name_process,
    parent_of,
    template_of,
)

NO_OCR = Limits(ocr_pages_max=0)
BY_TEMPLATE = [name for name, one in CALLERS.items() if one.has_template]
PLAIN = Caller(os.geteuid(), frozenset())


BEGIN = "import sys; from fairlane.sandbox.fork_server import main; main(int(sys.argv[1]), sys.argv[2])"


@pytest.fixture
def prepared() -> Iterator[sandbox.Template]:
    """The template that the built-in worker has, a fresh Python."""
    sandboxed.prepare()
    assert sandboxed._template is not None
    yield sandboxed._template
    sandboxed.release()


def guards(template: sandbox.Template) -> list[int]:
    return [guard_of(line) for lines in template._idle.values() for line in lines]


def ended(pid: int) -> bool:
    """Wait until a process is gone or a zombie."""
    while True:
        try:
            if Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z":
                return True
        except OSError:
            return True


def read(place: Path, content: bytes, name: str) -> Any:
    folder = place / secrets.token_hex(4)
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    (folder / "file").write_bytes(content)
    return extract_isolated(folder / "file", name, scratch, NO_OCR)


def test_the_longest_paths_fit_into_what_a_guard_is_asked(place: Path, prepared: sandbox.Template) -> None:
    deep = bytes(place)
    while len(deep) < 3_800:
        deep = os.path.join(deep, b"\xff" * 200)  # no text: such a name is the longest as JSON
    os.makedirs(deep)
    folder = Path(os.fsdecode(deep))
    assert read(folder, b"deep", "\udcff" * 255).text == "deep"
    assert len(guards(prepared)) == 1


def test_every_sample_is_read(place: Path) -> None:
    for name, content in sandbox_entry.samples().items():
        (place / name).write_bytes(content)
        assert extract(place / name, name, place).text.strip() == "This is the sample", name


def test_every_good_file_gives_the_very_same_by_a_template(place: Path, prepared: sandbox.Template) -> None:
    for name, content in corpus().items():
        scratch = place / name
        scratch.mkdir()
        (place / "file").write_bytes(content)
        plain = extract(place / "file", name, scratch, NO_OCR)
        by_template = read(place, content, name)
        assert (by_template.text, by_template.thumbnail) == (plain.text, plain.thumbnail), name
        assert by_template.facts() == plain.facts(), name
    assert len(guards(prepared)) == 1, "all by one guard"


def test_nothing_of_the_caller_is_in_memory_there(
    place: Path, prepared: sandbox.Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"password-{secrets.token_hex(16)}"
    sandboxed.release()
    monkeypatch.setenv("FAIRLANE_URL", f"postgresql://me:{secret}@example.org/queue")
    sandboxed.prepare()
    read(place, b"text", "a.txt")
    assert sandboxed._template is not None
    (guard,) = guards(sandboxed._template)
    assert secret.encode() not in memory_of(guard)
    assert secret.encode() not in memory_of(parent_of(guard)), "nor in the template"
    assert secret.encode() in memory_of(os.getpid()), "else we looked in the wrong places"


def memory_of(pid: int) -> bytes:
    """Everything that a process can write to; its variables are in it."""
    found = bytearray()
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            start, _, end = line.split()[0].partition("-")
            if line.split()[1].startswith("rw"):
                with contextlib.suppress(OSError):
                    memory.seek(int(start, 16))
                    found += memory.read(int(end, 16) - int(start, 16))
    return bytes(found)


def namespaces(process: object = "self") -> dict[str, int]:
    return {kind: os.stat(f"/proc/{process}/ns/{kind}").st_ino for kind in ("pid", "mnt", "net")}


@pytest.mark.parametrize("name", BY_TEMPLATE)
def test_attempts_of_one_guard_share_no_processes_folders_or_user(place: Path, name: str) -> None:
    caller = CALLERS[name]

    def work(before: str) -> object:
        if os.fork() == 0:
            while True:
                signal.pause()  # left behind by each
        can_write = True
        try:
            Path(before, "from the next").touch()
        except OSError:
            can_write = False
        return [os.getpid(), os.getuid(), namespaces(), can_write]

    def call() -> object:
        with template_of(work) as (template, _):
            seen = []
            for number in range(1, 4):
                scratch = place / f"scratch-{number}"
                scratch.mkdir(mode=0o777)
                before = str(place / f"scratch-{number - 1}")
                seen.append(sandbox.run_in(template, (before,), scratch, QUICK, without=caller.without).value)
            (guard,) = guards(template)
            has_own = "process namespace" in sandbox.require(caller.without).layers
            assert str(place) not in Path(f"/proc/{guard}/mounts").read_text(), "nothing is left that could be written"
            return [namespaces(), namespaces(guard), seen, has_own]

    (place / "scratch-0").mkdir()
    (place / "scratch-0").chmod(0o777)
    callers, guards_own, seen, has_own = forked(caller, call)
    for pid, _, own, can_write in seen:
        assert not can_write
        if has_own:
            assert pid == 1
            assert own["pid"] not in (callers["pid"], guards_own["pid"])
            assert own["mnt"] == guards_own["mnt"] != callers["mnt"]
            assert own["net"] == guards_own["net"] != callers["net"]
    if caller.user == 0:
        assert len({user for _, user, _, _ in seen}) == 3


@pytest.mark.parametrize("name", BY_TEMPLATE)
def test_an_attempt_that_was_ended_leaves_its_guard_ready(place: Path, name: str) -> None:
    caller = CALLERS[name]

    def work(how: str) -> object:
        while how == "hang":
            signal.pause()
        if how == "crash":
            os.kill(os.getpid(), signal.SIGSEGV) if os.getpid() != 1 else os.abort()
        return how

    def call() -> object:
        told: list[object] = []
        with template_of(work) as (template, _):
            for number, how in enumerate(("a", "hang", "b", "crash", "c")):
                scratch = place / f"scratch-{number}"
                scratch.mkdir()
                try:
                    bounds = sandbox.Bounds(seconds_max=0.3 if how == "hang" else 10)
                    told.append(sandbox.run_in(template, (how,), scratch, bounds, without=caller.without).value)
                except Unreadable as error:
                    told.append(error.code)
            return [told, len(guards(template))]

    assert forked(caller, call) == [["a", "timed_out", "b", "crashed", "c"], 1]


def test_a_guard_that_was_killed_is_replaced(place: Path, prepared: sandbox.Template) -> None:
    assert read(place, b"one", "a.txt").text == "one"
    (guard,) = guards(prepared)
    os.kill(guard, signal.SIGKILL)
    assert ended(guard)
    assert read(place, b"two", "a.txt").text == "two"
    assert guards(prepared) != [guard]


def test_a_template_that_was_killed_is_there_again(place: Path, prepared: sandbox.Template) -> None:
    seen = set()
    for _ in range(3):
        assert read(place, b"text", "a.txt").text == "text"
        (guard,) = guards(prepared)
        template = parent_of(guard)
        seen.add((guard, template, parent_of(template)))
        for pid in (template, guard):
            os.kill(pid, signal.SIGKILL)
            assert ended(pid)
    assert len({template for _, template, _ in seen}) == 3
    assert len({behind for _, _, behind in seen}) == 1


def test_a_guard_goes_on_when_its_template_was_killed(place: Path, prepared: sandbox.Template) -> None:
    assert read(place, b"one", "a.txt").text == "one"
    (guard,) = guards(prepared)
    template = parent_of(guard)
    os.kill(template, signal.SIGKILL)
    assert ended(template)
    assert read(place, b"two", "a.txt").text == "two"
    assert guards(prepared) == [guard]


def test_files_are_read_without_a_template_when_all_of_it_was_killed(place: Path, prepared: sandbox.Template) -> None:
    assert read(place, b"one", "a.txt").text == "one"
    (guard,) = guards(prepared)
    template = parent_of(guard)
    for pid in (parent_of(template), template, guard):
        os.kill(pid, signal.SIGKILL)
        assert ended(pid)
    assert read(place, b"two", "a.txt").text == "two"
    assert guards(prepared) == []


def test_a_fork_of_the_caller_has_a_guard_of_its_own(place: Path, prepared: sandbox.Template) -> None:
    assert read(place, b"one", "a.txt").text == "one"
    ours = guards(prepared)
    theirs = forked(PLAIN, lambda: [read(place, b"two", "a.txt").text, guards(prepared)])
    assert theirs[0] == "two"
    (guard,) = theirs[1]
    assert [guard] != ours
    assert ended(guard), "it ended with its caller"
    assert read(place, b"three", "a.txt").text == "three"
    assert guards(prepared) == ours


CALLER = """
import os, sys
from pathlib import Path
from fairlane.extract import sandboxed
from tests.sandbox.confined import guard_of
sandboxed.prepare()
folder = Path(sys.argv[1])
(folder / "scratch").mkdir()
sandboxed.extract_isolated(folder / "file", "a.txt", folder / "scratch")
print(*[guard_of(line) for lines in sandboxed._template._idle.values() for line in lines], flush=True)
sys.stdin.read()
"""


def test_template_and_guard_end_with_a_caller_that_got_kill_9(place: Path) -> None:
    (place / "file").write_bytes(b"text")
    command = [sys.executable, "-c", CALLER, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout is not None
        guard = int(caller.stdout.readline())
        template = parent_of(guard)
        behind = parent_of(template)
        caller.kill()
    assert ended(guard)
    assert ended(template)
    assert ended(behind)


@pytest.mark.parametrize("victim", ["caller", "guard", "template"])
def test_nothing_of_an_attempt_survives_kill_9_of_anybody(place: Path, victim: str) -> None:
    mark = f"fl-{secrets.token_hex(4)}"
    (place / "scratch").mkdir()

    def work() -> None:
        if os.fork() == 0:
            os.setsid()
            Path("daemon").write_text("lives")
        while True:
            signal.pause()

    pid = os.fork()
    if pid == 0:
        try:
            name_process(mark)
            with template_of(work) as (own, number):
                (place / "template").write_text(str(number))
                sandbox.run_in(own, (), place / "scratch", sandbox.Bounds(seconds_max=300))
        except Unreadable:
            os._exit(7)
        finally:
            os._exit(1)
    while not (place / "scratch" / "daemon").exists():
        pass
    (template,) = children_of(int((place / "template").read_text()))
    (guard,) = [one for one in children_of(template) if children_of(one)]
    os.kill({"caller": pid, "guard": guard, "template": template}[victim], signal.SIGKILL)
    if victim == "template":  # the attempt goes on: its guard and its caller live
        assert ended(template)
        assert not gone(mark, seconds=0.2)
        os.kill(pid, signal.SIGKILL)
    assert gone(mark)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == (7 if victim == "guard" else -signal.SIGKILL)


def test_many_threads_each_have_a_guard(place: Path, prepared: sandbox.Template) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def one(number: int) -> str:
        text: str = read(place, f"number {number}".encode(), "a.txt").text
        return text

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(one, range(9))) == [f"number {number}" for number in range(9)]
    assert 1 <= len(guards(prepared)) <= 3


def test_a_template_that_cannot_load_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(sandbox.Gone, match="could not begin"):
        sandbox.Template.started("fairlane.folders.there_is_none")
    assert "there_is_none" in capfd.readouterr().err


@pytest.mark.parametrize("is_told", [False, True])
def test_a_template_whose_caller_has_gone_ends_without_a_word(is_told: bool) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-c", BEGIN, str(theirs.fileno()), sandbox_entry.__name__]
    with theirs, ours:
        template = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True)
        if is_told:  # but it has not read what it was told
            select.select([ours], [], [])
    assert template.communicate(timeout=60)[1] == ""
    assert template.returncode == 0


@pytest.mark.parametrize("is_fork", [False, True])
def test_nothing_is_left_open_when_python_ends(tmp_path: Path, is_fork: bool) -> None:
    (tmp_path / "a.txt").write_text("one two")
    (tmp_path / "scratch").mkdir()
    script = f"""
import os
from pathlib import Path
from fairlane.extract.sandboxed import extract_isolated, prepare

prepare()
def read():
    return extract_isolated(Path("a.txt"), "a.txt", Path("scratch")).text
read()
if {is_fork} and os.fork():
    assert os.wait()[1] == 0
    assert "one two" in read()
"""
    command = [sys.executable, "-W", "default", "-W", "ignore::DeprecationWarning", "-c", script]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert told.stderr == ""
