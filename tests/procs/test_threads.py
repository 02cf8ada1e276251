"""Threads for calls that may hang."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from fairlane.procs.threads import DaemonThreads

SECONDS_MAX = 40.0


def test_calls_run_on_as_many_threads_as_there_may_be_and_no_more() -> None:
    threads = DaemonThreads(3, "few")
    together = threading.Barrier(3)
    futures = [threads.submit(lambda: (together.wait(SECONDS_MAX), threading.current_thread().name)[1]) for _ in range(9)]
    assert len({future.result(SECONDS_MAX) for future in futures}) == 3
    assert threads.close(SECONDS_MAX)


def test_values_and_errors_go_to_the_caller() -> None:
    threads = DaemonThreads(1, "one")

    async def ask() -> int:
        loop = asyncio.get_running_loop()
        with pytest.raises(SystemExit):
            await loop.run_in_executor(threads, sys.exit)
        return await loop.run_in_executor(threads, int, "7")

    assert asyncio.run(ask()) == 7
    assert threads.close(SECONDS_MAX)


def test_closing_waits_for_what_was_submitted() -> None:
    threads, gate = DaemonThreads(2, "two"), threading.Event()
    futures = [threads.submit(gate.wait, SECONDS_MAX) for _ in range(10)]
    threading.Timer(0.05, gate.set).start()
    assert threads.close(SECONDS_MAX)
    assert all(future.result(0) for future in futures)


def test_closing_waits_as_long_as_it_may_and_drops_what_has_not_begun() -> None:
    threads, gate = DaemonThreads(1, "one"), threading.Event()
    began = threading.Event()

    def hang() -> bool:
        began.set()
        return gate.wait(SECONDS_MAX)

    running = threads.submit(hang)
    began.wait(SECONDS_MAX)
    queued = threads.submit(int)
    assert not threads.close(0.01)
    assert queued.cancelled()
    with pytest.raises(RuntimeError, match="are closed"):
        threads.submit(int)
    gate.set()
    assert running.result(SECONDS_MAX)
    assert threads.close(SECONDS_MAX)


def test_the_program_ends_although_a_call_hangs() -> None:
    script = (
        "import threading\nfrom fairlane.procs.threads import DaemonThreads\nbegan = threading.Event()\n"
        "threads = DaemonThreads(2, 'hung')\n"
        "threads.submit(lambda: (began.set(), threading.Event().wait()))\nbegan.wait()\nthreads.shutdown()\nprint('over')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
    assert (done.stdout, done.stderr) == ("over\n", "")
