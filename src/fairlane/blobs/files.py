"""The files of one queue's documents: their keys in the blob store, and the hashes that prove them intact.

Laws:
- A key is `namespace/customer/document/name`. The namespace is the queue's own, so that queues may share a store. The customer
  is a hash of its id, which may hold any character; names are fixed words.
- Results carry the token of the claim that wrote them: a late worker never overwrites another attempt's results.
- Bytes are counted and hashed as they are written, and checked before the first one is returned. Sizes and hashes are those of
  the plain bytes, also where files are encrypted.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO, NamedTuple

from fairlane.core.document import DocumentRow
from fairlane.core.errors import BadValue, BlobDamaged, FairlaneError, Mistake, StoreError, StoreUnfit, Unknown

from . import open_blobs
from .envelope import FILE, PIPELINE, RESULTS, BlobDigest, File, pipeline_of, result_digest, unwrap_payload
from .protocol import BlobInfo, Blobs, Cipher
from .safe_open import open_regular_file

SIZE_MAX = 100_000_000
PIECE_BYTES = 256 * 1024
TOKENS_MAX = 100  # up to this token the keys of a document's results are made from it, beyond they are listed
INPUT = "input"
RESULT_NAMES = ("text", "facts", "thumbnail")
_DOCUMENT = re.compile(r"[0-9a-f-]{36}")
_RESULT = re.compile(r"(\d{1,20})-(?:" + "|".join(RESULT_NAMES) + ")")


class StoredFile(NamedTuple):
    """One file in a listing."""

    key: str
    document: str
    token: int | None  # of the claim that wrote this result; None: the input
    size: int
    age_seconds: float


class _HashingReader:
    """Reads content piece by piece, counts and hashes it."""

    def __init__(self, name: str, content: object, on_piece: Callable[[bytes], None] | None = None) -> None:
        self._name, self._content, self._on_piece = name, content, on_piece
        self._size, self._sha256 = 0, hashlib.sha256()

    def pieces(self) -> Iterator[bytes]:
        """Yield the pieces; raise BadValue beyond SIZE_MAX."""
        for piece in _pieces(self._name, self._content):
            self._size += len(piece)
            if self._size > SIZE_MAX:
                raise BadValue(self._name, f"more than {SIZE_MAX:,} bytes", f"at most {SIZE_MAX:,} bytes; split it")
            self._sha256.update(piece)
            if self._on_piece is not None:
                self._on_piece(piece)
            yield piece

    def digest(self) -> BlobDigest:
        """Return size and hash, once all pieces were read."""
        return BlobDigest(self._size, self._sha256.hexdigest())


class Files:
    """The files of one queue's documents; knows no engine, and may be used in any process and after a fork."""

    def __init__(self, location: str, namespace: str, cipher: Cipher | None = None) -> None:
        self.location = location
        self.namespace = namespace
        self._cipher = cipher
        self._opened: tuple[int, Blobs] | None = None

    @property
    def blobs(self) -> Blobs:
        """The store, opened at first use, and again after a fork."""
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), open_blobs(self.location)
        return self._opened[1]

    # -- writing -----------------------------------------------------------------------------------------------------

    def put_input(self, customer: str, id: str, content: object, on_piece: Callable[[bytes], None] | None = None) -> BlobDigest:
        """Write a document's input: bytes, or a binary file that is read to its end."""
        reader = _HashingReader("content", content, on_piece)
        key = self._key(customer, id, INPUT)
        self.blobs.put({key: self._encrypted(key, reader.pieces())})
        return reader.digest()

    def put_results(
        self, customer: str, id: str, token: int, *, text: object = None, facts: Any = None, thumbnail: object = None,
        has_input: bool = False,
    ) -> dict[str, BlobDigest]:  # fmt: skip
        """Write the results of one attempt: text (also a str), facts (JSON) and a thumbnail; None is left out."""
        if type(token) is not int or token < 0:
            raise BadValue("token", token, "the token of the claim, a whole number")
        contents: dict[str, object] = {"text": text.encode() if isinstance(text, str) else text, "thumbnail": thumbnail}
        contents["facts"] = None if facts is None else json.dumps(facts, ensure_ascii=False, allow_nan=False).encode()
        readers = {name: _HashingReader(name, contents[name]) for name in RESULT_NAMES if contents[name] is not None}
        keys = {name: self._key(customer, id, f"{token}-{name}") for name in readers}
        blobs = {keys[name]: self._encrypted(keys[name], reader.pieces()) for name, reader in readers.items()}
        self.blobs.put(blobs, self._key(customer, id, INPUT) if has_input else None)
        return {name: reader.digest() for name, reader in readers.items()}

    def reencrypt(self, key: str, stored: BinaryIO) -> None:
        """Replace a stored file by one with the same plain bytes, encrypted as files are now."""
        plain = self.decrypted(key, stored)
        self.blobs.put({key: self._encrypted(key, iter(partial(plain.read, PIECE_BYTES), b""))})

    def remove_inputs(self, customer: str, ids: Sequence[str]) -> None:
        """Remove the inputs of documents that the queue did not accept."""
        self.blobs.remove([self._key(customer, id, INPUT) for id in ids])

    def remove_documents(self, documents: Iterable[tuple[str, str, int]]) -> None:
        """Remove all files of documents that are gone, each named by id, customer and newest token."""
        self.blobs.remove([key for id, customer, token in documents for key in self._all_keys(customer, id, token)])

    # -- reading -----------------------------------------------------------------------------------------------------

    def open_input(self, customer: str, id: str, file: File) -> BinaryIO:
        """Open a document's input, after checking its hash."""
        return self._open(self._key(customer, id, INPUT), id, BlobDigest(file.size, file.sha256))

    def open_result(self, customer: str, id: str, token: int, name: str, digest: BlobDigest) -> BinaryIO:
        """Open one of a document's result files, after checking its hash."""
        return self._open(self._key(customer, id, f"{token}-{name}"), id, digest)

    def owned_by(self, document: DocumentRow, payload: str, result: str | None) -> dict[str, BlobDigest]:
        """Return the files that a document's payload and result name: what each must hold, by key."""
        owned: dict[str, BlobDigest] = {}
        stored = json.loads(payload) if FILE in payload or PIPELINE in payload else None
        file, _ = unwrap_payload(stored)
        if file is not None and file.of is None:  # else it is that of its whole
            owned[self._key(document.customer, document.id, INPUT)] = BlobDigest(file.size, file.sha256)
        results = [(step.token, step.result) for step in pipeline_of(stored).results]
        if document.state == "done" and result and RESULTS in result:
            results.append((document.token, json.loads(result)))
        for token, step_result in results:
            for name in RESULT_NAMES:
                digest = result_digest(step_result, name)
                if digest is not None:
                    owned[self._key(document.customer, document.id, f"{token}-{name}")] = digest
        return owned

    def list_files(self, customer: str | None = None, after: str = "") -> Iterator[StoredFile]:
        """Yield all files, or those of one customer, in key order; foreign files are skipped."""
        folder = self.namespace if customer is None else f"{self.namespace}/{_folder(customer)}"
        for blob in self.blobs.list_folder(folder, after):
            file = _parse_key(blob)
            if file is not None:
                yield file

    # -- inside ------------------------------------------------------------------------------------------------------

    def _key(self, customer: str, id: str, name: str) -> str:
        if not _DOCUMENT.fullmatch(id):
            raise Unknown(f"document {id} has no files: its id was not made by the queue")
        return f"{self.namespace}/{_folder(customer)}/{id}/{name}"

    def _all_keys(self, customer: str, id: str, token: int) -> list[str]:
        """Return every key that a document may have: listing it costs a request on S3, removing what is not there does not."""
        if not _DOCUMENT.fullmatch(id):
            return []
        folder = f"{self.namespace}/{_folder(customer)}/{id}"
        if token > TOKENS_MAX:
            return [blob.key for blob in self.blobs.list_folder(folder)]
        results = [f"{folder}/{number}-{name}" for number in range(1, token + 1) for name in RESULT_NAMES]
        return [f"{folder}/{INPUT}", *results]

    def _open(self, key: str, id: str, digest: BlobDigest) -> BinaryIO:
        try:
            file = self.blobs.open(key)
        except Unknown as error:
            raise Unknown(
                f"the bytes of document {id} are not in {self.location}; check that this is where they were written ({error})"
            ) from None
        try:
            is_encrypted = self._verify(key, id, file, digest)
            return self.decrypted(key, file, closes=True) if is_encrypted else file
        except BaseException:
            file.close()
            raise

    def _verify(self, key: str, id: str, file: BinaryIO, digest: BlobDigest) -> bool:
        """Raise BlobDamaged unless these are the bytes that were written, then rewind the file; return if it is encrypted."""
        try:
            plain = self.decrypted(key, file)
            _check(plain, id, digest)
            return plain is not file
        except (BlobDamaged, StoreUnfit):
            file.seek(0)
            with suppress(BlobDamaged):
                _check(file, id, digest)  # a plain file that only begins like an encrypted one
                return False
            raise
        finally:
            file.seek(0)

    def check(self, key: str, file: BinaryIO, digest: BlobDigest) -> None:
        """Raise BlobDamaged unless a file that was opened under a key holds the bytes that were written."""
        file.seek(0)
        self._verify(key, key.split("/")[-2], file, digest)

    def decrypted(self, key: str, file: BinaryIO, closes: bool = False) -> BinaryIO:
        """Return the plain bytes of a file that was opened under a key of the blob store."""
        return file if self._cipher is None else self._cipher.decrypt(_context(key), file, closes)

    def _encrypted(self, key: str, pieces: Iterable[bytes]) -> Iterable[bytes]:
        return pieces if self._cipher is None else self._cipher.encrypt(_context(key), pieces)


def open_content(path: object, content: object) -> BinaryIO | bytes:
    """Return what a caller submits: the file at a path, opened, or bytes, or a binary file."""
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
    file = open_regular_file(os.fsdecode(path))
    size = os.fstat(file.fileno()).st_size
    if size > SIZE_MAX:
        file.close()
        raise BadValue("path", os.fsdecode(path), f"a file of at most {SIZE_MAX:,} bytes; it has {size:,}")
    return file


def discard_inputs(files: Files, customer: str, ids: Sequence[str]) -> None:
    """Remove inputs that are not needed after all; what cannot be removed now, the sweep removes."""
    with suppress(FairlaneError):
        files.remove_inputs(customer, ids)


def _context(key: str) -> str:
    """Return the document and the name in a key; the namespace changes when a backup is restored."""
    return "/".join(key.split("/")[-2:])


def _folder(customer: str) -> str:
    return hashlib.sha256(customer.encode()).hexdigest()[:40]


def _parse_key(blob: BlobInfo) -> StoredFile | None:
    document, name = blob.key.split("/")[-2:]
    result = _RESULT.fullmatch(name)
    if not _DOCUMENT.fullmatch(document) or (result is None and name != INPUT):
        return None
    return StoredFile(blob.key, document, None if result is None else int(result[1]), blob.size, blob.age_seconds)


def _pieces(name: str, content: Any) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content  # whole: slicing it would copy
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


def _check(file: BinaryIO, id: str, digest: BlobDigest) -> None:
    """Raise BlobDamaged unless these are the bytes that were written; then rewind the file."""
    size, sha256 = 0, hashlib.sha256()
    try:
        while piece := file.read(PIECE_BYTES):
            size += len(piece)
            sha256.update(piece)
    except OSError as error:
        raise StoreError(f"the bytes of document {id} cannot be read: {error}; check the disk, then try again") from error
    if (size, sha256.hexdigest()) != digest:
        raise BlobDamaged(id, f"{digest.size:,} bytes with SHA-256 {digest.sha256}", f"{size:,} with {sha256.hexdigest()}")
    file.seek(0)
