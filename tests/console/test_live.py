"""The live picture on a real server: what frames say is what the store holds, for everybody who watches, and for operators."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fairlane.api import auth
from fairlane.core.document import Done, Failed
from tests.api.running import Server, problem_of, until

from .page_client import Stream, open_stream, signed_in


def newest_change(server: Server) -> int:
    return server.queue.changes(None, 100_000)[-1].number


def caught_up(server: Server, stream: Stream) -> dict[str, Any]:
    """The first frame that tells everything that has happened by now."""
    change = newest_change(server)
    until(lambda: any(one["change"] >= change for one in stream.events), "a frame of now")
    return next(one for one in stream.events if one["change"] >= change)


def test_after_a_flood_the_frame_says_what_the_store_holds(server: Server, customer: str) -> None:
    with signed_in(server, server.operator) as browser, open_stream(browser) as stream:
        stream.first()
        big, small = f"{customer}, big", [f"{customer}, small {number}" for number in range(20)]
        server.queue.submit_many(big, [1] * 300)
        for one in small:
            server.queue.submit_many(one, [1] * 2)
        server.queue.submit_many(small[0], [1] * 5, delay=3600)
        claims = server.claim(60)
        done, failed, kept = claims[:30], claims[30:40], claims[40:]
        server.queue.engine.settle([(one, Done()) for one in done])
        server.queue.engine.settle([(one, Failed("encrypted: it asks for a password")) for one in failed])
        frame = caught_up(server, stream)

        found = server.queue.engine.documents(None, None, None, 100_000)
        states = Counter(one.state for one in found)
        totals = frame["totals"]
        assert (totals["ready"], totals["delayed"], totals["running"]) == (
            states["ready"],
            states["delayed"],
            states["running"],
        )
        assert (totals["done_today"], totals["failed_today"]) == (states["done"], states["failed"])
        for lane in frame["lanes"]:
            own = [one for one in found if one.priority == lane["priority"]]
            assert lane["ready"] == sum(one.state == "ready" for one in own)
            assert lane["running"] == sum(one.state == "running" for one in own)
            assert lane["ready"] == sum(one["ready"] for one in lane["top"]) + lane["others"]["ready"]
        assert {one["customer"]: one["ready"] for one in frame["lanes"][8]["top"]}[big] > 200
        assert {one["id"] for one in frame["running"]} <= {one.id for one in found if one.state == "running"}
        assert {"name": "tester", "running": len(kept)} in frame["workers"]
        assert {"code": "encrypted", "count": len(failed)} in frame["failures"]
        moves = Counter[tuple[str, str]]()
        for told in stream.events:
            for move in told["moves"]:
                moves[move["what"], move["customer"]] += move["count"]
        assert moves["submitted", big] == 300


def test_a_picture_that_begins_late_is_as_true(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        server.queue.submit_many("acme", [1] * 50)
        server.finish(20)
        with signed_in(server, server.operator) as browser:
            with open_stream(browser) as stream:
                frame = caught_up(server, stream)
                assert frame["change"] == newest_change(server)
                assert (frame["totals"]["ready"], frame["totals"]["done_today"]) == (30, 20)
            server.finish(5)  # nobody watches
            with open_stream(browser) as stream:
                frame = caught_up(server, stream)
                assert (frame["totals"]["ready"], frame["totals"]["done_today"]) == (25, 25)
                assert stream.events[0]["moves"] == []
            server.queue.forget("acme")  # which the feed does not tell one by one
            server.queue.submit("other", 1)
            with open_stream(browser) as stream:
                until(
                    lambda: stream.events and stream.events[-1]["totals"]["ready"] == 1, "a picture without the forgotten one"
                )
    finally:
        server.close()


def test_all_viewers_get_the_same_frames(server: Server, customer: str) -> None:
    with signed_in(server, server.operator) as browser, open_stream(browser) as one, open_stream(browser) as other:
        one.first(), other.first()
        for _ in range(2):
            server.queue.submit(customer, 1)
            caught_up(server, one)
            caught_up(server, other)
        texts = [{part for part in stream.text.split("\n\n")[2:-1] if "data: " in part} for stream in (one, other)]
        assert texts[0] & texts[1]


def test_hostile_names_do_no_harm(server: Server) -> None:
    names = ["<script>alert(1)</script>", "\u202eevil", "x" * 200, "a\u2028b", 'quote"back\\slash', "data: x"]
    with signed_in(server, server.operator) as browser, open_stream(browser) as stream:
        stream.first()
        for name in names:
            server.queue.submit_many(name, [1] * 3)
        frame = caught_up(server, stream)
        told = {one["customer"]: one["ready"] for one in frame["lanes"][0]["top"]}
        text = stream.text[: stream.text.rfind("\n\n")]  # the next event may be on its way
        assert all(text.isascii() for text in text.split("\n"))
        assert all(part.startswith(("id: ", "data: {", ":", "retry: ")) for part in text.split("\n\n"))
        assert sum(told.get(name, 0) for name in names) > 0


def test_a_customer_finds_no_picture(server: Server, customer: str) -> None:
    with signed_in(server, server.key(customer)) as browser:
        nowhere = browser.get("/page/no/such/place")
        for path in ("/page/frames", "/page/history", "/page/customers", "/page/customers/acme"):
            answer = browser.get(path)
            assert (answer.status_code, answer.content) == (404, nowhere.content), path
        assert browser.post("/page/what-if", json={}).content == nowhere.content


def test_streams_end_with_their_session_and_their_key(server: Server) -> None:
    told, key = auth.create(server.queue.engine, customer=None)
    with (
        signed_in(server, told) as one,
        signed_in(server, told) as other,
        open_stream(one) as first,
        open_stream(other) as second,
    ):
        first.first(), second.first()
        one.delete("/page/session")
        until(lambda: first.is_ended)
        assert not second.is_ended
        auth.revoke(server.queue.engine, key.id)
        until(lambda: second.is_ended)


def test_only_so_many_watch_with_one_key(tmp_path: Path) -> None:
    server = Server(tmp_path, limits=("viewers_a_key=2",))
    try:
        with signed_in(server, server.operator) as browser, open_stream(browser) as one, open_stream(browser) as two:
            one.first(), two.first()
            answer = browser.get("/page/frames")
            assert (answer.status_code, problem_of(answer)) == (429, "too-many-requests")
            assert server.stop() == 0  # and streams end with the server
            until(lambda: one.is_ended and two.is_ended)
    finally:
        server.close()


@pytest.mark.parametrize("path", ["/page/frames"])
def test_what_is_sent_is_json(server: Server, path: str) -> None:
    with signed_in(server, server.operator) as browser, open_stream(browser, path) as stream:
        frame = stream.first()
        assert [lane["priority"] for lane in frame["lanes"]] == list(range(1, 10))
        assert len(json.dumps(frame)) < 40_000
