"""The fork server with children of the test's own."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fairlane.procs import fork_server, reaper

SECONDS_MAX = 30.0


class Server:
    """A fork server and its control socket."""

    def __init__(self, child_main: Callable[[list[int]], None]) -> None:
        self.pid, self.control = fork_server.start(child_main)
        self.control.settimeout(SECONDS_MAX)

    def fork(self, number: int) -> tuple[int, socket.socket]:
        """Fork a child; returns its pid and the other end of the socket that it got."""
        ours, theirs = socket.socketpair()
        ours.settimeout(SECONDS_MAX)
        with theirs:
            socket.send_fds(self.control, [json.dumps(["fork", number]).encode()], [theirs.fileno()])
        word, of, pid = self.received()
        assert (word, of) == ("forked", number)
        return pid, ours

    def received(self) -> list[Any]:
        message: list[Any] = json.loads(self.control.recv(4096))
        return message


@contextmanager
def serving(child_main: Callable[[list[int]], None]) -> Iterator[Server]:
    server = Server(child_main)
    try:
        yield server
    finally:
        server.control.close()
        reaper.wait_or_kill(server.pid, SECONDS_MAX)


def echo(handles: list[int]) -> None:
    """Answer one message, and end."""
    connection = socket.socket(fileno=handles[0])
    connection.send(connection.recv(100).upper())


def pause_with_daemon(handles: list[int]) -> None:
    """Start a process in a session of its own, report its pid, and wait for ever."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
    else:
        os.write(handles[0], str(pid).encode())
    while True:
        signal.pause()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_child_gets_its_handles_and_its_end_is_reported() -> None:
    with serving(echo) as server:
        for number in (1, 2):
            _, connection = server.fork(number)
            with connection:
                connection.send(b"hello")
                assert connection.recv(100) == b"HELLO"
            assert server.received() == ["ended", number, 0]


def test_what_a_child_started_has_ended_when_its_end_is_reported() -> None:
    with serving(pause_with_daemon) as server:
        _, connection = server.fork(7)
        with connection:
            daemon = int(connection.recv(20))
            server.control.send(json.dumps(["end", 7]).encode())
            assert server.received() == ["ended", 7, -signal.SIGKILL]
            assert not is_alive(daemon)


def test_a_child_of_another_number_lives_on() -> None:
    with serving(pause_with_daemon) as server:
        (first, first_connection), (second, second_connection) = server.fork(1), server.fork(2)
        with first_connection, second_connection:
            daemons = [int(connection.recv(20)) for connection in (first_connection, second_connection)]
            os.kill(first, signal.SIGKILL)
            assert server.received() == ["ended", 1, -signal.SIGKILL]
            assert [is_alive(pid) for pid in (second, *daemons)] == [True, False, True]


@pytest.mark.parametrize("signalled", [False, True])
def test_everything_ends_with_the_control_socket_and_at_sigusr2(signalled: bool) -> None:
    with serving(pause_with_daemon) as server:
        pid, connection = server.fork(1)
        with connection:
            daemon = int(connection.recv(20))
        if signalled:
            os.kill(server.pid, signal.SIGUSR2)
            assert server.received() == ["ended", 1, -signal.SIGKILL]
    assert not is_alive(pid)
    assert not is_alive(daemon)
