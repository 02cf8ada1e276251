"""The blob store in S3, or in a server that is compatible with it.

Configured by the usual variables: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL (with
AWS_ALLOW_HTTP=true for one without TLS).

Laws:
- An object appears when its upload is complete; an upload that fails is aborted.
- A small file is one request; a larger one is uploaded in parts, at most two of them in memory.
- Parts that a killed writer left are not visible here: give the bucket a lifecycle rule that aborts such uploads after a day.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from typing import BinaryIO, cast

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from fairlane.core.errors import BadValue, StoreError, StoreUnfit, Unknown
from fairlane.masking import mask_url

from .protocol import BlobInfo

PART_BYTES = 8 * 1024 * 1024
LIST_PAGE_SIZE = 1000
REMOVE_BATCH_SIZE = 1000


class S3Blobs:
    """Bytes in a bucket."""

    def __init__(self, url: str) -> None:
        self.url = mask_url(url)  # for messages
        if not url.removeprefix("s3://").strip("/"):
            raise BadValue("blobs", mask_url(url), "s3://bucket/prefix")
        try:
            self._store = S3Store.from_url(url, retry_config={"max_retries": 4})
        except (BaseError, ValueError) as error:
            raise BadValue("blobs", mask_url(url), f"s3://bucket/prefix ({_first_line(error)})") from error

    def put(self, contents: Mapping[str, Iterable[bytes]], sibling_key: str | None = None) -> None:
        for key, pieces in contents.items():
            self._put(key, pieces)

    def _put(self, key: str, pieces: Iterable[bytes]) -> None:
        rest = iter(pieces)
        head, size = [], 0
        for piece in rest:
            head.append(piece)
            size += len(piece)
            if size >= PART_BYTES:
                break
        with self._store_errors():
            if size < PART_BYTES:
                obstore.put(self._store, key, b"".join(head), use_multipart=False)
            else:
                obstore.put(self._store, key, chain(_drain(head), rest), chunk_size=PART_BYTES, max_concurrency=2)

    def open(self, key: str) -> BinaryIO:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - handed to the caller
        try:
            with self._store_errors(key):
                for piece in obstore.get(self._store, key).stream():
                    file.write(piece)
            file.seek(0)
        except OSError as error:
            file.close()
            raise StoreError(
                f"no room for a copy of a file from {self.url}: {error}; make room in {tempfile.gettempdir()}"
            ) from error
        except BaseException:
            file.close()
            raise
        return cast(BinaryIO, file)

    def remove(self, keys: Sequence[str]) -> None:
        with self._store_errors():
            for first in range(0, len(keys), REMOVE_BATCH_SIZE):
                obstore.delete(self._store, list(keys[first : first + REMOVE_BATCH_SIZE]))

    def list_folder(self, folder: str, after: str = "") -> Iterator[BlobInfo]:
        with self._store_errors():
            offset = after if after.startswith(f"{folder}/") else None
            for page in obstore.list(self._store, folder, offset=offset, chunk_size=LIST_PAGE_SIZE):
                now = datetime.now(UTC)
                for entry in page:
                    yield BlobInfo(entry["path"], entry["size"], (now - entry["last_modified"]).total_seconds())

    def remove_unfinished(self, age_seconds: float) -> int:
        return 0

    @contextmanager
    def _store_errors(self, key: str | None = None) -> Iterator[None]:
        """Raise the server's errors as StoreErrors."""
        try:
            yield
        except (OSError, BaseError) as error:
            if "NoSuchBucket" in str(error):
                raise StoreUnfit(f"there is no bucket for {self.url}; create it, or name another one") from error
            if isinstance(error, FileNotFoundError):
                raise Unknown(f"there is nothing at {self.url} under {key}; it was removed, or never put there") from None
            if isinstance(error, PermissionError | PermissionDeniedError | UnauthenticatedError):
                raise StoreUnfit(
                    f"{self.url} may not be used with these keys ({_first_line(error)}); check AWS_ACCESS_KEY_ID and the "
                    "permissions of the bucket"
                ) from error
            raise StoreError(f"{self.url} failed: {_first_line(error)}; check the server, then try again") from error


def _drain(pieces: list[bytes]) -> Iterator[bytes]:
    """Yield the pieces and drop each, so that its memory is freed."""
    while pieces:
        yield pieces.pop(0)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
