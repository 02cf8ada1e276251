"""How are bytes kept in S3, or in what speaks like it?

Where and as whom is said by the usual variables: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL
(with AWS_ALLOW_HTTP=true for one without TLS).

Laws:
- An object appears when its upload is complete; an upload that fails is aborted.
- Small files are one request; larger ones go up in parts, at most two of them in memory.
- Parts that a killed writer left are not seen here: give the bucket a rule that ends such uploads after a day.
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

from .protocol import Stored

PART_BYTES = 8 * 1024 * 1024
LISTED_AT_ONCE = 1000
REMOVED_AT_ONCE = 1000


class S3Blobs:
    """Bytes in a bucket."""

    def __init__(self, url: str) -> None:
        self.url = url
        if not url.removeprefix("s3://").strip("/"):
            raise BadValue("blobs", url, "s3://bucket/prefix")
        try:
            self._store = S3Store.from_url(url, retry_config={"max_retries": 4})
        except (BaseError, ValueError) as error:
            raise BadValue("blobs", url, f"s3://bucket/prefix ({_first_line(error)})") from error

    def put(self, contents: Mapping[str, Iterable[bytes]], beside: str | None = None) -> None:
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
        with self._plainly():
            if size < PART_BYTES:
                obstore.put(self._store, key, b"".join(head), use_multipart=False)
            else:
                obstore.put(self._store, key, chain(_let_go(head), rest), chunk_size=PART_BYTES, max_concurrency=2)

    def open(self, key: str) -> BinaryIO:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - handed to the caller
        try:
            with self._plainly(key):
                for piece in obstore.get(self._store, key).stream():
                    file.write(piece)
            file.seek(0)
        except OSError as error:
            file.close()
            raise StoreError(
                f"no room to hold a file of {self.url} here: {error}; make room in {tempfile.gettempdir()}"
            ) from error
        except BaseException:
            file.close()
            raise
        return cast(BinaryIO, file)

    def remove(self, keys: Sequence[str]) -> None:
        with self._plainly():
            for at in range(0, len(keys), REMOVED_AT_ONCE):
                obstore.delete(self._store, list(keys[at : at + REMOVED_AT_ONCE]))

    def listed(self, folder: str, after: str = "") -> Iterator[Stored]:
        with self._plainly():
            offset = after if after.startswith(f"{folder}/") else None
            for page in obstore.list(self._store, folder, offset=offset, chunk_size=LISTED_AT_ONCE):
                now = datetime.now(UTC)
                for one in page:
                    yield Stored(one["path"], one["size"], (now - one["last_modified"]).total_seconds())

    def drop_unfinished(self, age_seconds: float) -> int:
        return 0

    @contextmanager
    def _plainly(self, key: str | None = None) -> Iterator[None]:
        """What the server refuses, as our errors."""
        try:
            yield
        except (OSError, BaseError) as error:
            if "NoSuchBucket" in str(error):
                raise StoreUnfit(f"there is no bucket for {self.url}; make it, or name another one") from error
            if isinstance(error, FileNotFoundError):
                raise Unknown(f"there is nothing at {self.url} under {key}; it was removed, or never put there") from None
            if isinstance(error, PermissionError | PermissionDeniedError | UnauthenticatedError):
                raise StoreUnfit(
                    f"{self.url} may not be used with these keys ({_first_line(error)}); see AWS_ACCESS_KEY_ID and the "
                    "rights of the bucket"
                ) from error
            raise StoreError(
                f"{self.url} did not answer as it should: {_first_line(error)}; see to it, then try again"
            ) from error


def _let_go(pieces: list[bytes]) -> Iterator[bytes]:
    """The pieces, of which none is kept."""
    while pieces:
        yield pieces.pop(0)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
