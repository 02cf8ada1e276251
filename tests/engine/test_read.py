"""What every engine reads alike: its own clock, the schema it knows, and the kinds that wait for a worker."""

from __future__ import annotations

from fairlane.core.policy import Terms
from fairlane.engine import Engine, open_engine
from fairlane.engine.protocol import ReadyKind

from .conftest import Send, Take


def test_now_is_the_clock_by_which_the_store_decides(engine: Engine) -> None:
    before = engine.check("ada", 1000).checked_ms
    now_ms = engine.now()
    assert before <= now_ms <= engine.check("ada", 1000).checked_ms


def test_every_program_of_this_version_knows_the_same_schema(engine: Engine, url: str) -> None:
    other = open_engine(url)
    assert engine.schema == other.schema > 0
    other.close()


def test_a_kind_is_ready_while_a_document_of_it_competes_for_a_worker(engine: Engine, send: Send, take: Take) -> None:
    send("ada", at=2_000, kind="ocr")
    send("bob", at=1_000, kind="ocr")
    send("bob", at=3_000, kind="zip")
    send("eve", at=500, kind="fax", delay_ms=60_000)
    assert engine.ready_kinds("", 10) == [ReadyKind("ocr", 1_000), ReadyKind("zip", 3_000)]
    assert engine.ready_kinds("", 1) == [ReadyKind("ocr", 1_000)]
    assert engine.ready_kinds("ocr", 10) == [ReadyKind("zip", 3_000)]
    engine.tune("bob", Terms(paused=True), 0, now_ms=4_000)
    assert engine.ready_kinds("", 10) == [ReadyKind("ocr", 2_000)]
    take(1, at=5_000, kinds={"ocr": 3})
    assert engine.ready_kinds("", 10) == []
