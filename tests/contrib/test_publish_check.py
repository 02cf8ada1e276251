"""The check at publishing, which all adapters share: whose a task is, what it inherits, and a store that is away."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from chaos.proxy import FaultyProxy
from fairlane import BadValue, FairlaneError, Mistake, Queue, StoreError, StoreUnfit, StoreUnreachable
from fairlane.contrib.publish_check import NEUTRAL, PAUSE_SECONDS, CustomerFunction, Mark, PublishCheck, PublishedTask
from tests.api.running import Server, until
from tests.servers import redis


def ocr(path: str, customer: str | None = "walk-in", *, pages: int = 1) -> None: ...


def bill(order: dict[str, Any]) -> None: ...


class Tenant(StrEnum):
    ACME = "acme"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/counters.db"


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


_made: list[PublishCheck] = []


def check_of(url: str, customer: str | CustomerFunction = "customer", **options: Any) -> PublishCheck:
    """A check that is closed when the test ends."""
    _made.append(PublishCheck(url, customer, peer="test", **options))
    return _made[-1]


@pytest.fixture(autouse=True)
def close() -> Iterator[None]:
    yield
    while _made:
        _made.pop().close()


def task(*args: Any, function: Any = ocr, headers: dict[str, Any] | None = None, **kwargs: Any) -> PublishedTask:
    return PublishedTask("shop.ocr", args, kwargs, headers or {}, function)


def marked(check: PublishCheck, published: PublishedTask, running: Mark | None = None, is_by_hand: bool = False) -> Mark | None:
    """Do what an adapter does with a task."""
    customer = check.customer_of(published, running)
    return None if customer is None else check.mark(customer, running, is_by_hand)


# -- whose a task is -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("published", "customer"),
    [
        (task("a.pdf", "acme"), "acme"),
        (task("a.pdf", customer="acme"), "acme"),
        (task("a.pdf"), "walk-in"),  # the default of the argument
        (task("a.pdf", None), None),
        (task("a.pdf", 17), "17"),
        (task("a.pdf", UUID(int=7)), "00000000-0000-0000-0000-000000000007"),
        (task("a.pdf", Tenant.ACME), "acme"),
        (task("acme", function=lambda path: None), None),  # no such argument
        (task("acme", function=None), None),  # positional, and nobody knows the names
        (task(customer="acme", function=None), "acme"),
        (task("acme", function=print), None),
    ],
)
def test_the_customer_is_an_argument(url: str, published: PublishedTask, customer: str | None) -> None:
    assert check_of(url).find_customer(published) == customer


def test_the_customer_is_inside_an_argument(url: str) -> None:
    found = check_of(url, "order.tenant.id").find_customer
    assert found(task({"tenant": {"id": "acme"}}, function=bill)) == "acme"
    assert found(task({"tenant": None}, function=bill)) is None
    assert found(task({}, function=bill)) is None
    with pytest.raises(BadValue, match=r"order\.tenant of task shop\.ocr is 'acme'; it must be a mapping that may have 'id'"):
        found(task({"tenant": "acme"}, function=bill))


def test_the_customer_is_a_header_or_what_a_function_says(url: str) -> None:
    assert check_of(url, "header:tenant").find_customer(task(headers={"tenant": "acme"})) == "acme"
    assert check_of(url, "header:tenant").find_customer(task(customer="acme")) is None
    found = check_of(url, lambda name, args, kwargs, headers: f"{name}/{args[0]}/{kwargs['a']}/{headers['b']}").find_customer
    assert found(task("x", a=1, headers={"b": 2})) == "shop.ocr/x/1/2"


@pytest.mark.parametrize("value", ["", "a\nb", "x" * 201, b"acme", 1.5, True, ["acme"], {"id": 1}])
def test_a_customer_that_can_be_none_is_an_error_that_names_the_task(url: str, value: object) -> None:
    with pytest.raises(BadValue, match=r"^the customer of task shop\.ocr is "):
        marked(check_of(url), task("a.pdf", value))


@pytest.mark.parametrize("customer", ["", "header:", 17, None])
def test_a_customer_setting_that_means_nothing_is_refused(url: str, customer: Any) -> None:
    with pytest.raises(BadValue, match=r"customer is .* it must be the name of an argument"):
        check_of(url, customer)


def test_positional_arguments_without_names_are_warned_of_once(url: str, caplog: pytest.LogCaptureFixture) -> None:
    check = check_of(url, "client")
    for _ in range(3):
        assert marked(check, PublishedTask("elsewhere.ocr", ["acme"], {}, {})) is None
    assert [record.getMessage()[:43] for record in caplog.records] == ["task elsewhere.ocr is not known to this pro"]


# -- what it is given ------------------------------------------------------------------------------------------------------


def test_every_task_of_a_program_is_a_check(url: str) -> None:
    check = check_of(url)
    marks = [marked(check, task("a.pdf", customer)) for customer in ["acme"] * 22 + ["small"]]
    expected = [1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 8, 8, 8, 8, 9]
    assert marks == [*(Mark("acme", priority) for priority in expected), Mark("small", 1)]
    assert check.counts == (23, 0)
    with Queue(url) as queue:
        assert queue.look("acme").counter == -21


def test_a_task_made_by_a_running_one_inherits_its_priority(url: str) -> None:
    check = check_of(url)
    running = Mark("acme", 7)
    assert marked(check, task("a.pdf", "acme"), running) == running
    assert marked(check, task("a.pdf", None), running) == running  # for nobody else
    assert marked(check, task("a.pdf", "acme"), Mark("acme", None)) == Mark("acme", None)
    assert check.counts == (0, 0)
    assert marked(check, task("a.pdf", "other"), running) == Mark("other", 1)
    assert check.counts == (1, 0)


def test_a_priority_set_by_hand_is_no_check(url: str) -> None:
    check = check_of(url)
    assert marked(check, task("a.pdf", "acme"), is_by_hand=True) == Mark("acme", None)
    assert marked(check, task("a.pdf", "acme"), Mark("acme", 7), is_by_hand=True) == Mark("acme", None)
    assert marked(check, task("a.pdf", None), is_by_hand=True) is None
    assert check.counts == (0, 0)


@pytest.mark.parametrize("value", [None, 3, "acme", {}, {"customer": 1, "priority": 1}, {"customer": "a", "priority": 10},
                                   {"customer": "a", "priority": "1"}, {"customer": "a", "priority": True}])  # fmt: skip
def test_a_header_that_is_no_mark_of_ours_is_none(value: object) -> None:
    assert Mark.parse(value) is None


def test_a_mark_comes_back_from_its_header() -> None:
    for mark in (Mark("acme", 9), Mark("acme", None)):
        assert Mark.parse(mark._asdict()) == mark


# -- the store -------------------------------------------------------------------------------------------------------------


def test_a_forked_process_counts_on(url: str) -> None:
    """As with publishers that are forked by a server that has published before."""
    check = check_of(url)
    marked(check, task("a.pdf", "acme"))
    for _ in range(3):
        pid = os.fork()
        if not pid:
            status = 1
            try:
                is_counted = marked(check, task("a.pdf", "acme")) is not None and check.counts == (1, 0)
                status = 0 if is_counted else 1
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
    assert marked(check, task("a.pdf", "acme")) == Mark("acme", 2)  # the fifth
    assert check.counts == (2, 0)


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("mysql://db", BadValue, "url is 'mysql://db'; it must be memory://, sqlite:///"),
        (None, BadValue, "url is None"),
        ("https://fairlane.example.com", Mistake, "needs a key: pass it as key=, or put it in FAIRLANE_KEY"),
        ("ftp://fairlane.example.com", BadValue, "url is"),
    ],
)
def test_a_url_that_leads_nowhere_is_refused_at_once(
    url: Any, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRLANE_KEY", raising=False)
    with pytest.raises(error, match=message):
        check_of(url)


@pytest.mark.parametrize(("url", "extra"), [("postgresql://db/x", "postgres"), ("redis://db/0", "redis")])
def test_a_driver_that_is_not_installed_is_said_at_once(url: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("psycopg", "hiredis")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("fairlane.engine.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "site-packages" not in path])
    with pytest.raises(StoreUnfit, match=rf"\.\[{extra}\]"):
        check_of(url)


def test_counters_in_memory_are_refused_when_something_is_published() -> None:
    check = check_of("memory://")
    with pytest.raises(BadValue, match="in memory each process would count alone"):
        marked(check, task("a.pdf", "acme"))


@pytest.mark.parametrize(("name", "value"), [("when_away", "ignore"), ("timeout", 0), ("timeout", 61)])
def test_bad_settings_are_refused(url: str, name: str, value: Any) -> None:
    with pytest.raises(BadValue, match=f"^{name} is"):
        check_of(url, **{name: value})


def test_a_server_keeps_the_counters_too(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        check = check_of(server.address, key=server.operator)
        check.verify_store()
        assert [marked(check, task("a.pdf", "acme")) for _ in range(4)] == [Mark("acme", n) for n in (1, 1, 1, 2)]
        assert server.queue.look("acme").counter == -3
    finally:
        server.close()
    assert marked(check, task("a.pdf", "acme")) == Mark("acme", NEUTRAL)
    assert check.counts == (4, 1)


# -- a store that is away --------------------------------------------------------------------------------------------------


@pytest.fixture
def proxy() -> Iterator[FaultyProxy]:
    with FaultyProxy(redis.shared("redis").socket) as found:
        yield found


def redis_url(proxy: FaultyProxy) -> str:
    return f"redis://127.0.0.1:{proxy.port}/0?queue={redis.fresh_queue()}"


@pytest.mark.parametrize("fault", ["refuse", "freeze"])
def test_while_the_store_is_away_tasks_are_neutral_and_then_checked_again(
    proxy: FaultyProxy, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    check = check_of(redis_url(proxy), timeout=0.3, clock=clock)
    caplog.set_level(logging.WARNING, "fairlane.contrib")
    assert marked(check, task("a.pdf", "acme")) == Mark("acme", 1)
    getattr(proxy, fault)()
    for _ in range(50):
        assert marked(check, task("a.pdf", "acme")) == Mark("acme", NEUTRAL)
    assert check.counts == (1, 50)
    proxy.restore()
    clock.now += PAUSE_SECONDS / 2
    assert marked(check, task("a.pdf", "acme")) == Mark("acme", NEUTRAL), "it is not tried before the pause is over"
    clock.now += PAUSE_SECONDS
    while marked(check, task("a.pdf", "acme")) == Mark("acme", NEUTRAL):  # the call that hung ends soon
        clock.now += PAUSE_SECONDS
    for _ in range(5):  # and the next at once, without a pause
        assert marked(check, task("a.pdf", "acme")) != Mark("acme", NEUTRAL)
    began, ended = (record.getMessage() for record in caplog.records)
    assert "until the counters at redis://" in began
    assert "are back after" in ended
    assert f"{check.counts.unchecked} tasks were not checked" in ended


def test_a_publisher_is_held_up_once_and_then_once_after_each_pause(proxy: FaultyProxy) -> None:
    clock = Clock()
    check = check_of(redis_url(proxy), timeout=0.3, clock=clock, when_away="fail")
    marked(check, task("a.pdf", "acme"))
    proxy.freeze()
    tries = 0
    for _ in range(200):
        with pytest.raises(StoreError) as raised:
            marked(check, task("a.pdf", "acme"))
        tries += "have been away" not in str(raised.value)  # that is said at once, without a try
        clock.now += PAUSE_SECONDS / 100
    assert 1 <= tries <= 3


def test_a_store_that_was_never_there_is_away_too() -> None:
    check = check_of(f"redis://127.0.0.1:{redis.free_port()}/0", timeout=1)
    assert marked(check, task("a.pdf", "acme")) == Mark("acme", NEUTRAL)
    with pytest.raises(StoreUnreachable, match="cannot be reached"):
        check.verify_store()


LOCK = """
import sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None)
file.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_file_that_others_have_locked_holds_nobody_up(url: str, tmp_path: Path) -> None:
    """The engine itself would wait for half a minute."""
    clock = Clock()
    check = check_of(url, timeout=0.2, clock=clock, when_away="fail")
    assert marked(check, task("a.pdf", "acme")) == Mark("acme", 1)
    command = [sys.executable, "-c", LOCK, str(tmp_path / "counters.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(StoreUnreachable, match=r"did not answer within 0\.2 s"):
            marked(check, task("a.pdf", "acme"))
        clock.now += 2 * PAUSE_SECONDS
        with pytest.raises(StoreUnreachable, match="have been away for 10 s"):  # no second call while the first still waits
            marked(check, task("a.pdf", "acme"))


def test_it_fails_where_it_is_asked_to(proxy: FaultyProxy) -> None:
    clock = Clock()
    check = check_of(redis_url(proxy), when_away="fail", timeout=0.3, clock=clock)
    assert marked(check, task("a.pdf", "acme")) == Mark("acme", 1)
    proxy.refuse()
    with pytest.raises(FairlaneError):
        marked(check, task("a.pdf", "acme"))
    with pytest.raises(StoreUnreachable, match=r"have been away for 0 s; they are tried every 5 s"):
        marked(check, task("a.pdf", "acme"))
    assert check.counts == (1, 2)
    assert marked(check, task("a.pdf", "acme"), Mark("acme", 3)) == Mark("acme", 3), "what needs no check goes on"
    proxy.restore()

    def is_back() -> bool:
        clock.now += PAUSE_SECONDS
        with suppress(FairlaneError):  # the call that failed may not have ended yet
            return marked(check, task("a.pdf", "acme")) is not None
        return False

    until(is_back, "the counters are back")


def test_programs_that_have_prometheus_count_there(url: str) -> None:
    program = """
import sys
from fairlane.contrib.publish_check import PublishCheck
first = PublishCheck(sys.argv[1], "customer", peer="test")
first.mark("acme")
assert "prometheus_client" not in sys.modules
import prometheus_client
for url in (sys.argv[1], "redis://127.0.0.1:1/0"):
    PublishCheck(url, "customer", peer="test").mark("acme")
print(prometheus_client.generate_latest().decode())
"""
    done = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, check=True)
    assert 'fairlane_published_tasks_total{outcome="checked",peer="test"} 1.0' in done.stdout
    assert 'fairlane_published_tasks_total{outcome="unchecked",peer="test"} 1.0' in done.stdout
