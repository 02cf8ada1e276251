"""Where are the bytes of this queue's documents, and which of them are still needed?

Laws:
- A queue has a place of its own in the store, named in its records: queues may share a store, and a queue that is moved takes
  its place along.
- A document owns its bytes. What no document owns is removed when it is older than the grace period: bytes are written
  before their document exists.
- Nothing is removed through a queue that is frozen: its documents may live on in another one, with the same place.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from functools import cache
from typing import NamedTuple

from fairlane.blobs.files import Files, Held
from fairlane.core.errors import Mistake, StoreFrozen
from fairlane.engine import Engine, open_engine

GRACE_SECONDS = 24 * 3600
REMOVED_AT_ONCE = 500
GROUP, KEY = "blobs", "place"  # the record that names the place
SWEPT = "swept"  # the record that says when a sweep was last begun by a worker


class Swept(NamedTuple):
    """What one sweep did; call again with `after=mark` until the mark is None."""

    looked: int
    removed: int
    bytes: int
    mark: str | None


class Filing:
    """The way from a queue to its bytes; nothing is opened or made before it is needed."""

    def __init__(self, engine: Engine, url: str, where: str | None) -> None:
        self._engine = engine
        self.where = beside(url) if where is None else where  # None: nobody said where
        self._files: Files | None = None

    def files(self) -> Files:
        """Where bytes are put and read; refused if nobody said where that is."""
        if self._files is None:
            if self.where is None:
                raise Mistake(
                    'this queue has no place for files: say where, as in Queue(url, blobs="/srv/files") or '
                    'blobs="s3://bucket/prefix"; commands take --blobs, FAIRLANE_BLOBS, or blobs in fairlane.toml'
                )
            self._files = Files(self.where, self._place() or self._new_place())
        return self._files

    def has_files(self) -> bool:
        """Whether the queue ever had a file."""
        return self._files is not None or self._place() is not None

    def files_held(self) -> Files | None:
        """The same as `files`, or None if the queue never had one."""
        return self.files() if self.has_files() else None

    def files_reached(self) -> Files | None:
        """The same, and None also if nobody said where they are."""
        return None if self.where is None else self.files_held()

    def _place(self) -> str | None:
        record = self._engine.record(GROUP, KEY)
        return None if record is None else str(json.loads(record.value))

    def _new_place(self) -> str:
        self._engine.put_record(GROUP, KEY, json.dumps(secrets.token_hex(8)), 0)  # or somebody else just did
        place = self._place()
        assert place is not None
        return place


@cache
def files_of(url: str, where: str | None) -> Files:
    """The files of a queue that is not held open here: its store is opened for a moment, the first time."""
    engine = open_engine(url, create=False)
    try:
        return Filing(engine, url, where).files()
    finally:
        engine.close()


def beside(url: str) -> str | None:
    """A queue in a file has its bytes beside it, unless it is told otherwise; others must be told."""
    path = url.removeprefix("sqlite:///")
    return None if path == url else f"{os.path.abspath(path)}.blobs"


def begins_sweep(engine: Engine) -> bool:
    """Whether it is time to sweep again; to one who asks, and not to the others who ask at the same time."""
    record = engine.record(GROUP, SWEPT)
    if record is not None and time.time() - float(json.loads(record.value)) < GRACE_SECONDS:
        return False
    return engine.put_record(GROUP, SWEPT, json.dumps(time.time()), 0 if record is None else record.version) is not None


def sweep(engine: Engine, files: Files, grace: float, seconds_max: float | None, after: str | None) -> Swept:
    """Remove what no document owns, for at most that long."""
    rules = engine.rules()
    if rules.frozen is not None:
        raise StoreFrozen(rules.frozen)
    deadline = None if seconds_max is None else time.monotonic() + seconds_max
    looked = size = 0
    removed = files.blobs.drop_unfinished(grace) if after is None else 0
    batch: list[Held] = []
    judge = _Judge(engine)
    mark = after
    for one in files.listed(after=after or ""):
        looked, mark = looked + 1, one.key
        if one.age_seconds >= grace and not judge.is_needed(one):
            batch.append(one)
            removed, size = removed + 1, size + one.size
        if len(batch) == REMOVED_AT_ONCE:
            files.blobs.remove([held.key for held in batch])
            batch.clear()
        if deadline is not None and time.monotonic() >= deadline:
            break
    else:
        mark = None
    files.blobs.remove([held.key for held in batch])
    return Swept(looked, removed, size, mark)


class _Judge:
    """Says which files are needed; those of one document follow each other, so it is looked up once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._id = ""

    def is_needed(self, one: Held) -> bool:
        if one.document != self._id:
            self._id, self._document = one.document, self._engine.document(one.document)
        document = self._document
        if document is None:
            return False
        return one.token is None or (one.token == document.token and document.state not in ("failed", "cancelled"))


def remove_of(engine: Engine, files: Files, customer: str, ids: set[str]) -> None:
    """Remove the bytes of documents that were forgotten; what is being submitted meanwhile is not among them."""
    judge, batch = _Judge(engine), list[str]()
    for one in files.listed(customer):
        if (one.document in ids or one.age_seconds >= GRACE_SECONDS) and not judge.is_needed(one):
            batch.append(one.key)
        if len(batch) == REMOVED_AT_ONCE:
            files.blobs.remove(batch)
            batch.clear()
    files.blobs.remove(batch)
