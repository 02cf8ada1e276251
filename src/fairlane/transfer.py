"""How does a queue move to another store? Freeze, wait until nothing runs, carry everything over, switch.

Laws:
- Neither queue takes anything while it is moved: the source says where it is going, the target where it comes from.
- Whatever stops the move, running it again goes on from the last mark; rows that are already there stay as they are.
- The target is used only once everything is there. The source stays frozen, whole, and says where it went.
- Files go where the target will look for them, under the same keys, and stay where they were too; in one store they just stay.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from fairlane.blobs.files import PIECE_BYTES, Files
from fairlane.core.errors import Mistake, StoreError, Unknown
from fairlane.core.policy import Rules
from fairlane.queue.blob_lifecycle import Filing, beside

from .engine import Engine, open_engine
from .queue import AT_ONCE

GOING = "is being moved to"
PAGE = 200  # rows at once: their bodies may be large
GROUP, KEY = "fairlane", "move"  # where a target remembers how far a move has come
POLL_SECONDS = 0.2


class Moved(NamedTuple):
    """What was carried over, in this run."""

    customers: int
    documents: int
    records: int
    files: int


class Progress(NamedTuple):
    """How far a move has come."""

    phase: str  # "waiting" for what runs, "carrying" documents, "files"
    running: int
    carried: int
    total: int


def shown_url(url: str) -> str:
    """A URL without its password."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))


def move(
    from_url: str,
    to_url: str,
    told: Callable[[Progress], None] = lambda _: None,
    *,
    from_blobs: str | None = None,
    to_blobs: str | None = None,
) -> Moved:
    """Carry a queue from one store to another, its files too; may be stopped at any moment and run again."""
    if from_url == to_url:
        raise Mistake(f"a queue cannot be moved from {shown_url(from_url)} to itself")
    source = open_engine(from_url, create=False)
    target = open_engine(to_url)
    try:
        files = _files(source, from_blobs or beside(from_url), to_blobs or beside(to_url))
        return _move(source, target, from_url, to_url, files, told)
    finally:
        source.close()
        target.close()


def stop(from_url: str) -> None:
    """Give a move up: the source takes documents again. Not once it was moved: then the other one is the queue."""
    source = open_engine(from_url, create=False)
    try:
        frozen = source.rules().frozen
        if frozen is None or not frozen.startswith(GOING):
            raise Mistake(f"there is no move to stop: this queue {frozen or 'is not being moved'}")
        _freeze(source, None)
    finally:
        source.close()


def _files(source: Engine, from_where: str | None, to_where: str | None) -> tuple[Files, Files] | None:
    """Where the files are and where they go, if there are any; both must be known before anything is frozen."""
    filing = Filing(source, "", from_where)
    if not filing.has_files():
        return None
    if from_where is None or to_where is None:
        missing = "are: --from-blobs" if from_where is None else "shall be: --to-blobs"
        raise Mistake(
            f"this queue has files; say where they {missing} FOLDER or s3://bucket/prefix (the same for both leaves them there)"
        )
    there = filing.files()
    return there, Files(to_where, there.place)


def _move(
    source: Engine,
    target: Engine,
    from_url: str,
    to_url: str,
    files: tuple[Files, Files] | None,
    told: Callable[[Progress], None],
) -> Moved:
    going, gone = f"{GOING} {shown_url(to_url)}", f"was moved to {shown_url(to_url)}: use that one"
    coming = f"is being filled from {shown_url(from_url)}"
    known = _known(target, from_url)
    _refuse(source, target, (going, gone) if known else (going,), known is None)
    moved = Moved(0, 0, 0, 0)
    if known is None or not known.is_over:
        _freeze(source, going)
        _freeze(target, coming)
        _remember(target, from_url, known or _Known(None))
        _wait_out(source, told)
        moved = _carry(source, target, coming, from_url, told)
        if files is not None:
            moved = moved._replace(files=_carry_files(*files, told))
        _remember(target, from_url, _Known(None, is_over=True))
    _freeze(source, gone)
    _freeze(target, None)
    target.put_record(GROUP, KEY, None)
    return moved


class _Known(NamedTuple):
    """What a target remembers of a move into it."""

    mark: str | None
    is_over: bool = False  # everything is there


def _known(target: Engine, from_url: str) -> _Known | None:
    record = target.record(GROUP, KEY)
    if record is None:
        return None
    told = json.loads(record.value)
    if told["from"] != shown_url(from_url):
        raise Mistake(f"the target is being filled from {told['from']}; finish that move first, or give an empty target")
    return _Known(told["mark"], told["is_over"])


def _remember(target: Engine, from_url: str, known: _Known) -> None:
    target.put_record(GROUP, KEY, json.dumps({"from": shown_url(from_url), **known._asdict()}))


def _refuse(source: Engine, target: Engine, allowed: Sequence[str], is_first_run: bool) -> None:
    frozen = source.rules().frozen
    if frozen is not None and frozen not in allowed:
        raise Mistake(f"the source cannot be moved there: it {frozen}")
    if is_first_run and (target.customers("", 1) or target.documents(None, None, None, 1)):
        raise Mistake("the target already holds a queue; give an empty one, so that nothing is mixed")


def _freeze(engine: Engine, why: str | None) -> None:
    while (known := engine.rules()).frozen != why:
        engine.configure(replace(known, frozen=why))


def _wait_out(source: Engine, told: Callable[[Progress], None]) -> None:
    """Until every document that a worker holds has ended, come back, or lost its lease."""
    while source.documents(None, "running", None, 1):
        source.reclaim(AT_ONCE)
        told(Progress("waiting", len(source.documents(None, "running", None, AT_ONCE)), 0, 0))
        time.sleep(POLL_SECONDS)


def _carry(source: Engine, target: Engine, coming: str, from_url: str, told: Callable[[Progress], None]) -> Moved:
    beginning = source.pack(None, 1).queue
    assert beginning is not None
    known = _known(target, from_url)
    mark = None if known is None else known.mark
    moved = Moved(0, 0, 0, 0)
    while True:
        packed = source.pack(mark, PAGE)
        if packed.queue is not None:
            packed = packed._replace(queue=packed.queue._replace(rules=_arriving(packed.queue.rules, coming)))
        target.unpack(packed)
        carried = len(packed.customers), len(packed.documents), len(packed.records), 0
        moved = Moved(*(before + more for before, more in zip(moved, carried, strict=True)))
        if packed.documents:
            told(Progress("carrying", 0, packed.documents[-1].snapshot.number, beginning.last_number))
        mark = packed.cursor
        if mark is None:
            return moved
        _remember(target, from_url, _Known(mark))


def _carry_files(source: Files, target: Files, told: Callable[[Progress], None]) -> int:
    """Copy what is not there yet; both listings are in the order of keys, so that neither is held in memory."""
    carried, total = 0, sum(1 for _ in source.listed())
    arrived = target.listed()
    there = next(arrived, None)
    for number, one in enumerate(source.listed(), 1):
        while there is not None and there.key < one.key:
            there = next(arrived, None)
        if there is None or (there.key, there.size) != (one.key, one.size):
            carried += _carry_file(source, target, one.key)
        told(Progress("files", 0, number, total))
    return carried


def _carry_file(source: Files, target: Files, key: str) -> bool:
    try:
        file = source.blobs.open(key)
    except Unknown:  # of a submission that was refused meanwhile
        return False
    with file:
        target.blobs.put({key: iter(lambda: file.read(PIECE_BYTES), b"")})
    return True


def _arriving(rules: Rules, coming: str) -> Rules:
    if rules.frozen is None:
        raise StoreError("the source was thawed while it was moved; run the move again")
    return replace(rules, frozen=coming)
