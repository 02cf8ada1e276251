"""Under which keys are the bytes of documents, and are they still the right ones?

Laws:
- A key is `place/customer/document/name`. The place is the queue's own, so that queues may share a store. The customer is a
  hash of its id, which may hold anything; names are words of ours.
- Results carry the token of the claim that wrote them: a late worker never overwrites what another attempt wrote.
- Bytes are counted and hashed on their way in, and checked before the first one is handed out.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple

from fairlane.core.errors import BadValue, BlobDamaged, FairlaneError, Mistake, StoreError, Unknown

from . import open_blobs
from .envelope import File, Written
from .protocol import Blobs, Stored
from .safe_open import open_ordinary

SIZE_MAX = 100_000_000
PIECE_BYTES = 256 * 1024
INPUT = "input"
RESULT_NAMES = ("text", "facts", "thumbnail")
_DOCUMENT = re.compile(r"[0-9a-f-]{36}")
_RESULT = re.compile(r"(\d{1,20})-(?:" + "|".join(RESULT_NAMES) + ")")


class Held(NamedTuple):
    """One file in a listing: whose, what, and since when."""

    key: str
    document: str
    token: int | None  # None: it is what was handed in
    size: int
    age_seconds: float


class _Measured:
    """Bytes on their way in, counted and hashed."""

    def __init__(self, name: str, content: object, pass_by: Callable[[bytes], None] | None = None) -> None:
        self._name, self._content, self._pass_by = name, content, pass_by
        self._size, self._digest = 0, hashlib.sha256()

    def pieces(self) -> Iterator[bytes]:
        """Piece by piece, until there are too many."""
        for piece in _pieces(self._name, self._content):
            self._size += len(piece)
            if self._size > SIZE_MAX:
                raise BadValue(self._name, f"more than {SIZE_MAX:,} bytes", f"at most {SIZE_MAX:,} bytes; split it")
            self._digest.update(piece)
            if self._pass_by is not None:
                self._pass_by(piece)
            yield piece

    def written(self) -> Written:
        """What they were, once all are in."""
        return Written(self._size, self._digest.hexdigest())


class Files:
    """The bytes of one queue's documents; knows no engine, and may be used in any process and after a fork."""

    def __init__(self, where: str, place: str) -> None:
        self.where = where
        self.place = place
        self._opened: tuple[int, Blobs] | None = None

    @property
    def blobs(self) -> Blobs:
        """The store, opened when it is first needed, and again in a fork."""
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), open_blobs(self.where)
        return self._opened[1]

    # -- writing -----------------------------------------------------------------------------------------------------

    def put_input(self, customer: str, id: str, content: object, pass_by: Callable[[bytes], None] | None = None) -> Written:
        """What was handed in for a document: bytes, or a binary file that is read to its end."""
        measured = _Measured("content", content, pass_by)
        self.blobs.put({self._key(customer, id, INPUT): measured.pieces()})
        return measured.written()

    def put_results(
        self, customer: str, id: str, token: int, *, text: object = None, facts: Any = None, thumbnail: object = None,
        has_input: bool = False,
    ) -> dict[str, Written]:  # fmt: skip
        """What came out of a document in one attempt: text (also a str), facts (JSON) and a picture, those that are given."""
        if type(token) is not int or token < 0:
            raise BadValue("token", token, "the token of the claim, a whole number")
        given: dict[str, object] = {"text": text.encode() if isinstance(text, str) else text, "thumbnail": thumbnail}
        given["facts"] = None if facts is None else json.dumps(facts, ensure_ascii=False, allow_nan=False).encode()
        measured = {name: _Measured(name, given[name]) for name in RESULT_NAMES if given[name] is not None}
        contents = {self._key(customer, id, f"{token}-{name}"): one.pieces() for name, one in measured.items()}
        self.blobs.put(contents, self._key(customer, id, INPUT) if has_input else None)
        return {name: one.written() for name, one in measured.items()}

    def remove_inputs(self, customer: str, ids: Sequence[str]) -> None:
        """What was handed in for documents that the queue did not take."""
        self.blobs.remove([self._key(customer, id, INPUT) for id in ids])

    # -- reading -----------------------------------------------------------------------------------------------------

    def open_input(self, customer: str, id: str, file: File) -> BinaryIO:
        """What was handed in for a document, checked."""
        return self._open(self._key(customer, id, INPUT), id, Written(file.size, file.sha256))

    def open_result(self, customer: str, id: str, token: int, name: str, written: Written) -> BinaryIO:
        """What came out of a document, checked."""
        return self._open(self._key(customer, id, f"{token}-{name}"), id, written)

    def listed(self, customer: str | None = None, after: str = "") -> Iterator[Held]:
        """All files, or those of one customer, in the order of keys; what is not ours is passed over."""
        folder = self.place if customer is None else f"{self.place}/{_folder(customer)}"
        for one in self.blobs.listed(folder, after):
            held = _held(one)
            if held is not None:
                yield held

    # -- inside ------------------------------------------------------------------------------------------------------

    def _key(self, customer: str, id: str, name: str) -> str:
        if not _DOCUMENT.fullmatch(id):
            raise Unknown(f"document {id} has no files: its id is not one that the queue made")
        return f"{self.place}/{_folder(customer)}/{id}/{name}"

    def _open(self, key: str, id: str, written: Written) -> BinaryIO:
        try:
            file = self.blobs.open(key)
        except Unknown as error:
            raise Unknown(
                f"the bytes of document {id} are not in {self.where}; is that where they were put? ({error})"
            ) from None
        try:
            _check(file, id, written)
        except BaseException:
            file.close()
            raise
        return file


def given_file(path: object, content: object) -> BinaryIO | bytes:
    """What a caller hands in: the file at a path, opened, or bytes, or a binary file."""
    if path is not None and content is not None:
        raise BadValue("content", content, "left out when a path is given: a document has one file")
    if path is None:
        if content is None:
            raise BadValue("path", path, "the path of a file, or content its bytes, where a file is named or expected")
        if not isinstance(content, bytes | bytearray | memoryview) and not callable(getattr(content, "read", None)):
            raise BadValue("content", content, "bytes, or a file that is open for reading bytes")
        return content  # type: ignore[return-value]
    if not isinstance(path, str | os.PathLike):
        raise BadValue("path", path, "the path of a file")
    file = open_ordinary(os.fsdecode(path))
    size = os.fstat(file.fileno()).st_size
    if size > SIZE_MAX:
        file.close()
        raise BadValue("path", os.fsdecode(path), f"a file of at most {SIZE_MAX:,} bytes; it has {size:,}")
    return file


def dropped(files: Files, customer: str, ids: Sequence[str]) -> None:
    """Remove what is not needed after all; what cannot be removed now, the sweep removes."""
    with suppress(FairlaneError):
        files.remove_inputs(customer, ids)


def _folder(customer: str) -> str:
    return hashlib.sha256(customer.encode()).hexdigest()[:40]


def _held(one: Stored) -> Held | None:
    document, name = one.key.split("/")[-2:]
    found = _RESULT.fullmatch(name)
    if not _DOCUMENT.fullmatch(document) or (found is None and name != INPUT):
        return None
    return Held(one.key, document, None if found is None else int(found[1]), one.size, one.age_seconds)


def _pieces(name: str, content: Any) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content  # as it is: a piece of it would be a copy
        return
    file = io.BytesIO(content) if isinstance(content, bytearray | memoryview) else content
    while True:
        try:
            piece = file.read(PIECE_BYTES)
        except OSError as error:
            raise Mistake(f"the {name} cannot be read to its end: {error}; nothing of it was kept") from error
        if not isinstance(piece, bytes):
            raise BadValue(name, piece, "bytes, or a file that is open for reading bytes, and not in non-blocking mode")
        if not piece:
            return
        yield piece


def _check(file: BinaryIO, id: str, written: Written) -> None:
    """Refuse bytes that are not those that were written; afterwards the file stands at its beginning."""
    size, digest = 0, hashlib.sha256()
    try:
        while piece := file.read(PIECE_BYTES):
            size += len(piece)
            digest.update(piece)
    except OSError as error:
        raise StoreError(f"the bytes of document {id} cannot be read: {error}; see to the disk, then try again") from error
    if (size, digest.hexdigest()) != written:
        raise BlobDamaged(id, f"{written.size:,} bytes with SHA-256 {written.sha256}", f"{size:,} with {digest.hexdigest()}")
    file.seek(0)
