"""Resources of a worker: it claims only what it can start."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fairlane import Queue, Worker
from fairlane.core.errors import BadValue
from fairlane.queue.workers import Fleet
from fairlane.worker import Document
from fairlane.worker.resources import ClaimRequest, Resources

from .conftest import until, yield_loop

ATTEMPTS = {"ocr": 2, "classify": 3, "plain": 4}
NEEDS = {"ocr": {"gpu": 1}, "classify": {"gpu": 2, "licence": 1}, "plain": {}}


@pytest.mark.parametrize(
    ("unfinished", "room", "limit", "kinds"),
    [
        (
            [],
            8,
            1,
            {"ocr", "classify", "plain"},
        ),  # three gpus: one of classify and one of ocr would still fit, two of classify not
        (["ocr"], 8, 1, {"ocr", "classify", "plain"}),
        (["ocr", "ocr"], 8, 1, {"ocr", "plain"}),
        (["classify"], 8, 1, {"ocr", "plain"}),
        (["ocr", "classify"], 8, 8, {"plain"}),
        (["ocr"] * 3, 8, 8, {"plain"}),
        (["plain"] * 9, 2, 1, {"ocr", "classify", "plain"}),
        ([], 0, 0, {"ocr", "classify", "plain"}),
    ],
)
def test_a_request_names_the_kinds_that_can_start_and_no_more_documents_than_can_start_of_any_of_them(
    unfinished: list[str], room: int, limit: int, kinds: set[str]
) -> None:
    resources = Resources({"gpu": 3, "licence": 5}, ATTEMPTS, NEEDS)
    assert resources.request(room, unfinished) == ClaimRequest(
        limit, {kind: ATTEMPTS[kind] for kind in ATTEMPTS if kind in kinds}
    )


def test_kinds_of_the_same_need_are_requested_together() -> None:
    resources = Resources({"gpu": 4}, {"a": 1, "b": 1}, {"a": {"gpu": 2}, "b": {"gpu": 2}})
    assert resources.request(9, []) == ClaimRequest(2, {"a": 1, "b": 1})
    assert resources.request(9, ["a", "b"]) == ClaimRequest(0, {})
    assert resources.at_once("a", 9) == 2


def test_without_needs_a_request_is_for_all_kinds() -> None:
    resources = Resources({}, {"a": 1}, {"a": {}})
    assert not resources.are_used
    assert resources.request(3, ["a"] * 9) == ClaimRequest(3, {"a": 1})
    assert (resources.request(-1, []).limit, resources.at_once("a", 9)) == (0, 9)


@pytest.mark.parametrize(
    ("resources", "needs", "message"),
    [
        ({"gpu": 0}, None, r"^resources\['gpu'\] is 0; it must be a whole number from 1"),
        ({"gpu": True}, None, r"^resources\['gpu'\] is True"),
        ({"": 1}, None, r"^resources: the name of a resource is ''"),
        (["gpu"], None, r"^resources is \['gpu'\]; it must be whole numbers by the name of a resource"),
        ({"gpu": 2}, {"gpu": 1.5}, r"^needs\['gpu'\] is 1.5"),
        (
            {"gpu": 2},
            {"gpu": 3},
            r"needs of handler 'ocr' is {'gpu': 3}; it must be at most what the worker has, which is 2 of 'gpu'",
        ),
        (None, {"gpu": 1}, r"at most what the worker has, which is none of 'gpu'; give Worker\(resources={'gpu': …}\) more"),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_value(resources: Any, needs: Any, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        Worker(resources=resources).handler("ocr", needs=needs)(print)


def test_a_worker_never_claims_more_than_it_can_start_and_the_rest_stays_for_others(tmp_path: Path) -> None:
    """Two gpus and six slots, twenty scans and twenty letters: at most two scans are claimed at once, letters go on."""
    gate, running, most = threading.Event(), Counter[str](), Counter[str]()

    def handle(document: Document) -> None:
        running[document.kind] += 1
        most[document.kind] = max(most[document.kind], running[document.kind])

    with Queue("memory://") as queue:
        worker = Worker(queue, slots=6, resources={"gpu": 2})

        @worker.handler("scan", needs={"gpu": 1})
        async def scan(document: Document) -> None:
            handle(document)
            while not gate.is_set():
                await yield_loop()
            running["scan"] -= 1

        @worker.handler("letter")
        async def letter(document: Document) -> None:
            handle(document)
            running["letter"] -= 1

        scans = queue.submit_many("acme", [None] * 20, kind="scan")
        letters = queue.submit_many("acme", [None] * 20, kind="letter")
        thread = threading.Thread(target=worker.run, kwargs={"until_empty": True})
        thread.start()
        until(lambda: all(queue.document(each.id).state == "done" for each in letters), "the letters")
        assert [queue.document(each.id).state for each in scans].count("running") == 2
        assert Fleet(queue.engine).slots("scan") == 2
        assert Fleet(queue.engine).slots("letter") == 6
        gate.set()
        thread.join()
        assert {queue.document(each.id).state for each in scans} == {"done"}
        assert most["scan"] == 2


def test_a_kind_that_others_keep_out_has_room_made_for_it() -> None:
    resources = Resources({"gpu": 2}, {"big": 1, "small": 1, "plain": 1}, {"big": {"gpu": 2}, "small": {"gpu": 1}})
    for _ in range(16):
        request = resources.request(9, ["small"])
        assert request == ClaimRequest(1, {"small": 1, "plain": 1})
        resources.claimed(request, 1)
    assert resources.request(9, ["small"]) == ClaimRequest(9, {"plain": 1})
    request = resources.request(9, [])
    assert request == ClaimRequest(1, {"big": 1, "small": 1, "plain": 1})
    resources.claimed(request, 1)
    assert resources.request(9, ["small"]) == ClaimRequest(1, {"small": 1, "plain": 1})


def test_one_that_needs_everything_starts_although_small_ones_keep_coming() -> None:
    with Queue("memory://") as queue:
        worker = Worker(queue, slots=4, resources={"gpu": 2})
        order: list[str] = []

        @worker.handler("big", needs={"gpu": 2})
        async def big(document: Document) -> None:
            order.append("big")

        @worker.handler("small", needs={"gpu": 1})
        async def small(document: Document) -> None:
            order.append("small")
            for _ in range(len(order) % 3):  # so that both gpus are hardly ever free at once
                await yield_loop()

        queue.submit_many("acme", [None] * 3, kind="small")
        queue.submit("bob", kind="big")
        queue.submit_many("acme", [None] * 60, kind="small")
        worker.run(until_empty=True)
        assert len(order) == 64
        assert order.index("big") < 30
