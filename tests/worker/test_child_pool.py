"""Handlers that crash, hang, fork, allocate, print and leave: each costs one attempt of one document and nothing else."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlane import Queue
from fairlane.worker import Document, Summary

from .conftest import Bench, is_alive, until


def for_ever() -> None:
    threading.Event().wait()


def segfault(document: Document) -> None:
    faulthandler.disable()  # pytest's, which prints a long traceback
    ctypes.string_at(0)


def abort(document: Document) -> None:
    faulthandler.disable()
    os.abort()


def leave(document: Document) -> None:
    os._exit(0)


def kill_itself(document: Document) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang(document: Document) -> None:
    for_ever()


def ignore_signals(document: Document) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    for_ever()


def spin(document: Document) -> None:
    while True:
        pass


def allocate(document: Document) -> None:
    kept = []
    while True:
        kept.append(bytearray(16 * 1024 * 1024))


def close_everything(document: Document) -> None:
    os.closerange(3, 256)


def garble(document: Document) -> None:
    for handle in map(int, os.listdir("/proc/self/fd")):
        if handle > 2 and os.path.exists(f"/proc/self/fd/{handle}") and os.readlink(f"/proc/self/fd/{handle}")[:6] == "socket":
            os.write(handle, b"\xff" * 64)
    for_ever()


NASTY: list[tuple[Callable[[Document], Any], str]] = [
    (segfault, "killed by SIGSEGV"),
    (abort, "killed by SIGABRT"),
    (leave, "exited with code 0 before the handler returned"),
    (kill_itself, "killed by SIGKILL"),
    (hang, "ran for more than its 0.3 seconds"),
    (ignore_signals, "ran for more than its 0.3 seconds"),
    (spin, "ran for more than its 0.3 seconds"),
    (allocate, "MemoryError"),
    (close_everything, ""),
    (garble, ""),
]


@pytest.mark.parametrize(("handler", "why"), NASTY, ids=lambda value: getattr(value, "__name__", ""))
def test_a_handler_that_ruins_its_process_costs_its_own_document_two_attempts_of_two(
    bench: Bench, queue: Queue, handler: Callable[[Document], Any], why: str
) -> None:
    """And the documents of others, which share its child and stand behind it in its inbox, are all done at the first."""
    good = [queue.submit(f"before-{n}", n, kind="good").id for n in range(40)]
    bad = queue.submit("bad", kind="bad").id
    good += [queue.submit(f"after-{n}", n, kind="good").id for n in range(40)]
    worker = bench.worker(memory=256 * 1024 * 1024)
    worker.handler("good")(lambda document: document.payload)
    worker.handler("bad", attempts=2, timeout=0.3 if why.startswith("ran") else 20)(handler)
    assert bench.run(worker) == Summary(done=80, failed=1, retried=1)
    assert all((queue.document(id).state, queue.document(id).attempts) == ("done", 1) for id in good)
    ended = queue.document(bad)
    assert (ended.state, ended.attempts) == ("failed", 2)
    assert (ended.reason or "").startswith("attempt 2 of 2 failed: ")
    assert why in (ended.reason or "")


def test_what_a_crashed_handler_printed_last_is_in_the_reason(bench: Bench, queue: Queue) -> None:
    def handler(document: Document) -> None:
        sys.stderr.write("reading page 7\n")
        abort(document)

    id = queue.submit("acme").id
    worker = bench.worker()
    worker.handler("default", attempts=1)(handler)
    bench.run(worker)
    assert (queue.document(id).reason or "").endswith("killed by SIGABRT; last printed: reading page 7")


def test_each_document_has_what_it_printed_itself(bench: Bench, queue: Queue) -> None:
    payloads = {receipt.id: f"line {n}" for n, receipt in enumerate(queue.submit_many("acme", range(30)))}
    worker = bench.worker(slots=1)
    worker.handler("default")(lambda document: sys.stdout.write(f"line {document.payload}\n"))
    bench.run(worker)
    assert {event.id: event.value for event in bench.emitted("printed")} == payloads


def test_half_a_gigabyte_printed_fills_nothing_and_holds_up_no_other_document(
    bench: Bench, queue: Queue, tmp_path: Path
) -> None:
    enough = tmp_path / "enough"

    def handler(document: Document) -> None:
        block = b"x" * (1024 * 1024)
        for count in range(8192):  # at least 256, and more until another document was done
            if count >= 256 and enough.exists():
                return
            os.write(document.payload, block)

    ids = [queue.submit("loud", handle, kind="loud").id for handle in (1, 2)]
    worker = bench.worker(slots=3)
    worker.handler("loud")(handler)
    worker.handler("quiet")(lambda document: None)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    stop = bench.start(worker)
    until(lambda: queue.look("loud").running == 2)
    beside = 0
    while queue.look("loud").done < 2:
        id = queue.submit("light", kind="quiet").id
        until(lambda: queue.document(id).state == "done")  # noqa: B023 - called at once
        beside += queue.look("loud").running == 2
        if beside:
            enough.touch()
    stop()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024  # KiB
    assert beside, "a quiet document was done while both printed"
    assert [queue.document(id).state for id in ids] == ["done", "done"]


def test_a_child_that_used_much_memory_is_replaced(bench: Bench, queue: Queue) -> None:
    def handler(document: Document) -> int:
        bytearray(int(document.payload))
        return os.getpid()

    ids = [queue.submit("acme", size).id for size in (0, 200 * 1024 * 1024, 0)]
    worker = bench.worker(slots=1, memory=256 * 1024 * 1024)
    worker.handler("default")(handler)
    assert bench.run(worker).done == 3
    first, large, last = [queue.result(id) for id in ids]
    assert first == large != last


# -- processes that a handler starts ---------------------------------------------------------------------------------


def plain_fork(document: Document) -> int:
    pid = os.fork()
    if pid == 0:
        for_ever()
    return pid


def daemon(document: Document) -> int:
    """Flees twice: a new session, then a parent that ends."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            for_ever()
        os.write(writing, str(pid).encode())
        os._exit(0)
    return int(os.read(reading, 20))


def program(document: Document) -> int:
    return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid


@pytest.mark.parametrize("handler", [plain_fork, daemon, program])
@pytest.mark.parametrize("ending", ["returns", "crashes", "hangs"])
def test_what_a_handler_started_ends_with_its_document(
    bench: Bench, queue: Queue, tmp_path: Path, handler: Callable[[Document], int], ending: str
) -> None:
    note = tmp_path / "pid"

    def starts(document: Document) -> int:
        pid = handler(document)
        note.write_text(str(pid))
        if ending == "crashes":
            abort(document)
        if ending == "hangs":
            for_ever()
        return os.getpid()

    ids = [queue.submit("acme").id for _ in range(2)]
    worker = bench.worker(slots=1)
    worker.handler("default", attempts=1, timeout=0.5 if ending == "hangs" else 20)(starts)
    assert bench.run(worker) == (Summary(done=2) if ending == "returns" else Summary(failed=2))
    assert not is_alive(int(note.read_text()))
    assert bench.emitted("child_ended")
    if ending == "returns":
        assert queue.result(ids[0]) != queue.result(ids[1])
        assert bench.emitted("child_ended")[0].reason == "it left processes behind"


def test_a_stray_is_ended_while_the_worker_goes_on(bench: Bench, queue: Queue) -> None:
    worker = bench.worker(slots=1)
    worker.handler("default")(daemon)
    stop = bench.start(worker)
    id = queue.submit("acme").id
    until(lambda: queue.document(id).state == "done")
    until(lambda: not is_alive(queue.result(id)), "the end of the daemon")
    stop()


def test_a_process_that_has_ended_costs_no_child(bench: Bench, queue: Queue) -> None:
    def handler(document: Document) -> int:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nothing has reaped it
        return os.getpid()

    ids = [queue.submit("acme").id for _ in range(3)]
    worker = bench.worker(slots=1)
    worker.handler("default")(handler)
    bench.run(worker)
    assert len({queue.result(id) for id in ids}) == 1


def test_programs_that_a_handler_starts_have_their_signals_as_usual(bench: Bench, queue: Queue) -> None:
    def handler(document: Document) -> list[int]:
        started = subprocess.Popen(["sleep", "1000"])
        started.terminate()
        pid = os.fork()
        if pid == 0:
            for_ever()
        os.kill(pid, signal.SIGTERM)
        return [started.wait(), os.waitpid(pid, 0)[1]]

    id = queue.submit("acme").id
    worker = bench.worker()
    worker.handler("default")(handler)
    bench.run(worker)
    assert queue.result(id) == [-signal.SIGTERM, signal.SIGTERM]


def test_signals_that_a_handler_has_blocked_stay_blocked_when_it_forks(bench: Bench, queue: Queue) -> None:
    def handler(document: Document) -> list[bool]:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        pid = os.fork()
        is_blocked = signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, [])
        if pid == 0:
            os._exit(0 if is_blocked else 1)
        return [is_blocked, os.waitpid(pid, 0)[1] == 0]

    id = queue.submit("acme").id
    worker = bench.worker()
    worker.handler("default")(handler)
    bench.run(worker)
    assert queue.result(id) == [True, True]


def test_children_do_not_throw_the_same_dice(bench: Bench, queue: Queue) -> None:
    import random

    def handler(document: Document) -> float:
        if document.attempt == 1:
            abort(document)
        return random.random()

    ids = [queue.submit("acme").id for _ in range(4)]
    worker = bench.worker(slots=1)
    worker.handler("default")(handler)
    bench.run(worker)
    assert len({queue.result(id) for id in ids}) == 4
