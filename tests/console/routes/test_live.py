"""The live view on a real server: frames show what the store holds, the same to every viewer, and only to operators."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from fairlane.api import auth
from fairlane.core.document import Done, Failed
from fairlane.engine.walk import walk_documents
from tests.api.running import Server, problem_of, until
from tests.console.page_client import caught_up, newest_change, open_stream, signed_in


def test_after_a_flood_the_frame_shows_what_the_store_holds(server: Server, customer: str) -> None:
    with signed_in(server, server.operator) as browser, open_stream(browser) as stream:
        stream.first()
        big, small = f"{customer}, big", [f"{customer}, small {number}" for number in range(20)]
        server.queue.submit_many(big, [1] * 300)
        for name in small:
            server.queue.submit_many(name, [1] * 2)
        server.queue.submit_many(small[0], [1] * 5, delay=3600)
        claims = server.claim(60)
        done, failed, kept = claims[:30], claims[30:40], claims[40:]
        server.queue.engine.settle([(claim, Done()) for claim in done])
        server.queue.engine.settle([(claim, Failed("encrypted: it asks for a password")) for claim in failed])
        frame = caught_up(server, stream)

        documents = list(walk_documents(server.queue.engine))
        states = Counter[str](document.state for document in documents)
        totals = frame["totals"]
        names = {"ready": "ready", "delayed": "delayed", "running": "running", "done_today": "done", "failed_today": "failed"}
        assert {name: totals[name] for name in names} == {name: states[state] for name, state in names.items()}
        for lane in frame["lanes"]:
            own = [document for document in documents if document.priority == lane["priority"]]
            assert lane["ready"] == sum(document.state == "ready" for document in own)
            assert lane["running"] == sum(document.state == "running" for document in own)
            assert lane["ready"] == sum(entry["ready"] for entry in lane["top"]) + lane["others"]["ready"]
        assert {entry["customer"]: entry["ready"] for entry in frame["lanes"][8]["top"]}[big] > 200
        running = {document.id for document in documents if document.state == "running"}
        assert {document["id"] for document in frame["running"]} <= running
        assert {"name": "tester", "running": len(kept)} in frame["workers"]
        assert {"code": "encrypted", "count": len(failed)} in frame["failures"]
        moves = Counter[tuple[str, str]]()
        for event in stream.events:
            for move in event["moves"]:
                moves[move["what"], move["customer"]] += move["count"]
        assert moves["submitted", big] == 300


def test_a_model_that_is_loaded_late_is_as_true(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        server.queue.submit_many("acme", [1] * 50)
        server.finish(20)
        with signed_in(server, server.operator) as browser:
            with open_stream(browser) as stream:
                frame = caught_up(server, stream)
                assert frame["change"] == newest_change(server)
                assert (frame["totals"]["ready"], frame["totals"]["done_today"]) == (30, 20)
            server.finish(5)  # without viewers
            with open_stream(browser) as stream:
                frame = caught_up(server, stream)
                assert (frame["totals"]["ready"], frame["totals"]["done_today"]) == (25, 25)
                assert stream.events[0]["moves"] == []
            server.queue.forget("acme")  # the feed does not list their documents
            server.queue.submit("other", 1)
            with open_stream(browser) as stream:
                until(
                    lambda: stream.events and stream.events[-1]["totals"]["ready"] == 1,
                    "a frame without the forgotten customer",
                )
    finally:
        server.close()


def test_all_viewers_get_the_same_frames(server: Server, customer: str) -> None:
    with signed_in(server, server.operator) as browser, open_stream(browser) as first, open_stream(browser) as second:
        first.first(), second.first()
        for _ in range(2):
            server.queue.submit(customer, 1)
            caught_up(server, first)
            caught_up(server, second)
        texts = [{part for part in stream.text.split("\n\n")[2:-1] if "data: " in part} for stream in (first, second)]
        assert texts[0] & texts[1]


def test_hostile_names_do_no_harm(server: Server) -> None:
    names = ["<script>alert(1)</script>", "\u202eevil", "x" * 200, "a\u2028b", 'quote"back\\slash', "data: x"]
    with signed_in(server, server.operator) as browser, open_stream(browser) as stream:
        stream.first()
        for name in names:
            server.queue.submit_many(name, [1] * 3)
        frame = caught_up(server, stream)
        ready = {entry["customer"]: entry["ready"] for entry in frame["lanes"][0]["top"]}
        text = stream.text[: stream.text.rfind("\n\n")]  # the next event may be on its way
        assert all(text.isascii() for text in text.split("\n"))
        assert all(part.startswith(("id: ", "data: {", ":", "retry: ")) for part in text.split("\n\n"))
        assert sum(ready.get(name, 0) for name in names) > 0


def test_the_live_view_does_not_exist_for_customers(server: Server, customer: str) -> None:
    with signed_in(server, server.key(customer)) as browser:
        nowhere = browser.get("/page/no/such/path")
        for path in ("/page/frames", "/page/history", "/page/customers", "/page/customers/acme"):
            response = browser.get(path)
            assert (response.status_code, response.content) == (404, nowhere.content), path
        assert browser.post("/page/what-if", json={}).content == nowhere.content


def test_streams_end_with_their_session_and_their_key(server: Server) -> None:
    secret, key = auth.create(server.queue.engine, customer=None)
    with (
        signed_in(server, secret) as leaving,
        signed_in(server, secret) as staying,
        open_stream(leaving) as first,
        open_stream(staying) as second,
    ):
        first.first(), second.first()
        leaving.delete("/page/session")
        until(lambda: first.is_ended)
        assert not second.is_ended
        auth.revoke(server.queue.engine, key.id)
        until(lambda: second.is_ended)


def test_only_so_many_watch_with_one_key(tmp_path: Path) -> None:
    server = Server(tmp_path, limits=("viewers_a_key=2",))
    try:
        with signed_in(server, server.operator) as browser, open_stream(browser) as first, open_stream(browser) as second:
            first.first(), second.first()
            response = browser.get("/page/frames")
            assert (response.status_code, problem_of(response)) == (429, "too-many-requests")
            assert server.stop() == 0  # and streams end with the server
            until(lambda: first.is_ended and second.is_ended)
    finally:
        server.close()


@pytest.mark.parametrize("path", ["/page/frames"])
def test_what_is_sent_is_json(server: Server, path: str) -> None:
    with signed_in(server, server.operator) as browser, open_stream(browser, path) as stream:
        frame = stream.first()
        assert [lane["priority"] for lane in frame["lanes"]] == list(range(1, 10))
        assert len(json.dumps(frame)) < 40_000
