"""Rewriting stored texts: each only if it is still what it was, while others use them, and nothing else changes."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import get_args

import pytest

from fairlane.core.document import Done, Failed, Submission
from fairlane.core.errors import KeyConflict
from fairlane.engine import Engine, open_engine
from fairlane.engine.protocol import PackedDocument, Rewrite, TextPart
from tests.servers import redis

from .conftest import Send, Take


def packed(engine: Engine, id: str) -> PackedDocument:
    rows = engine.pack(json.dumps(["documents", None]), 1000).documents
    return next(row for row in rows if row.snapshot.id == id)


def test_texts_are_replaced_if_they_are_still_what_they_were(engine: Engine, send: Send, take: Take) -> None:
    done, failed = send("ada", 2, key=None)
    engine.submit([Submission("keyed", "ada", "extract", '{"n":1}', key="k", digest="d")])
    first, second, _ = take(3)
    engine.settle([(first, Done('"result"')), (second, Failed("reason"))])
    number = {row: packed(engine, row).snapshot.number for row in (done, failed, "keyed")}
    (line,) = (change for change in engine.changes(None, 100) if change.what == "failed")
    cases: list[tuple[TextPart, int, str]] = [
        ("payload", number[done], '{"n":1}'), ("result", number[done], '"result"'), ("reason", number[failed], "reason"),
        ("digest", number["keyed"], "d"), ("note", line.number, "reason"),
    ]  # fmt: skip
    before = [packed(engine, row) for row in (done, failed, "keyed")]
    for part, at, text in cases:
        assert engine.rewrite(part, [Rewrite(at, text + "?", "wrong"), Rewrite(at + 1000, text, "wrong")]) == 0
    assert [packed(engine, row) for row in (done, failed, "keyed")] == before
    for part, at, text in cases:
        assert engine.rewrite(part, [Rewrite(at, text, f"enc1:{part}")]) == 1
        assert engine.rewrite(part, [Rewrite(at, text, "too late")]) == 0
    after = [packed(engine, row) for row in (done, failed, "keyed")]
    assert after == [
        before[0]._replace(payload="enc1:payload", result="enc1:result"),
        before[1]._replace(snapshot=before[1].snapshot._replace(reason="enc1:reason")),
        before[2]._replace(digest="enc1:digest"),
    ]
    assert [change.note for change in engine.changes(line.number - 1, 1)] == ["enc1:note"]
    with pytest.raises(KeyConflict):
        engine.submit([Submission("again", "ada", "extract", '{"n":1}', key="k", digest="d")])
    assert engine.submit([Submission("again", "ada", "extract", "0", key="k", digest="enc1:digest")])[0].id == "keyed"
    assert engine.rewrite("payload", []) == 0


def test_what_waits_and_runs_goes_on_with_the_new_text(engine: Engine, send: Send, take: Take) -> None:
    waiting, running = send("ada", 2)
    (claim,) = take(1)
    for id in (waiting, running):
        assert engine.rewrite("payload", [Rewrite(packed(engine, id).snapshot.number, '{"n":1}', '{"n":2}')]) == 1
    assert engine.settle([(claim, Done())]) == []
    assert [(each.id, each.payload) for each in take(1)] == [(({waiting, running} - {claim.id}).pop(), '{"n":2}')]


def test_a_frozen_queue_may_be_rewritten(engine: Engine, send: Send) -> None:
    (id,) = send("ada")
    engine.configure(replace(engine.rules(), frozen="is being moved"))
    assert engine.rewrite("payload", [Rewrite(packed(engine, id).snapshot.number, '{"n":1}', "2")]) == 1


def test_rewriting_disturbs_neither_others_who_rewrite_nor_whoever_settles_purges_and_forgets(url: str) -> None:
    """On a server rows are locked: two that lock the same ones in another order would wait for each other for ever."""
    engine = open_engine(url)
    engine.submit([Submission(f"d{n}", "ada", "extract", "1", key=f"{n}", digest="d") for n in range(300)])
    is_over, errors = threading.Event(), list[Exception]()

    def rewrite(step: int) -> None:
        mine = engine if url == "memory://" else open_engine(url)
        try:
            while not is_over.is_set():
                rows = mine.pack(json.dumps(["documents", None]), 1000).documents[::step]
                for part in get_args(TextPart)[:2]:
                    texts = [(row.snapshot.number, getattr(row, part)) for row in rows]
                    mine.rewrite(part, [Rewrite(number, text, f"{text} ") for number, text in texts if text])
        except Exception as error:  # noqa: BLE001
            errors.append(error)
        finally:
            if mine is not engine:
                mine.close()

    threads = [threading.Thread(target=rewrite, args=[step]) for step in (1, -1)]
    for thread in threads:
        thread.start()
    ended = 0
    try:
        while claims := engine.claim("worker", 10, 60_000):
            assert engine.settle([(claim, Done("2")) for claim in claims]) == []
            ended += len(engine.purge(0, 1000).documents) if claims[0].number % 50 < 10 else 0
        while engine.forget("ada", 11):
            pass
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        engine.close()
        redis.drop_url(url)
    assert errors == []
    assert ended > 0
