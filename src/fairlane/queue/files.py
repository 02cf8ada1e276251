"""How do files get into the queue?

Laws:
- Everything that can be refused is refused before the first byte is written.
- Bytes are durable before their document exists, and the document exists before anybody gets a receipt.
- Bytes whose document surely does not exist are removed at once; where that is not known, the sweep finds out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, NamedTuple

from fairlane.blobs.envelope import File, wrapped
from fairlane.blobs.files import SIZE_MAX, Files, dropped, given_file
from fairlane.blobs.page_count import PagesSeen
from fairlane.core.document import BATCH_MAX, JSON_BYTES_MAX, Receipt, Submission
from fairlane.core.errors import BadValue, Mistake, StoreBusy, StoreFrozen, StoreFull, StoreUnfit
from fairlane.core.policy import STEP
from fairlane.engine import Engine

from .validation import Common, document_id, json_text, new_ids

NAME_LENGTH_MAX = 255
WRITERS_MAX = 8  # files of one call that are written at once
PAYLOAD_BYTES_MAX = JSON_BYTES_MAX - 8 * 1024  # what is said of the file stands beside it
_UNWANTED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
NOT_DONE = (Mistake, StoreBusy, StoreFull, StoreFrozen, StoreUnfit)  # after these, nothing was changed


class Input(NamedTuple):
    """One file to submit: the path of a file, or its content as bytes or as a binary file."""

    path: str | os.PathLike[str] | None = None
    content: bytes | BinaryIO | None = None
    name: str | None = None  # what the sender calls it; else the last part of the path
    payload: Any = None  # JSON of the caller's own
    key: str | None = None
    depth: int = 0  # how many archives it came out of
    parent: str | None = None  # the document that was the archive


def send_files(
    engine: Engine, files: Files, common: Common, inputs: Sequence[Input], is_by_pages: bool, now_ms: int | None
) -> list[Receipt]:
    """Write the bytes of all, then submit all in one step."""
    ids = new_ids(len(inputs))
    for one in inputs:
        _refuse_unfit(common, one, is_by_pages)
    try:
        submissions = _all_written(files, common, ids, inputs, is_by_pages)
    except BaseException:
        dropped(files, common.customer, ids)
        raise
    try:
        receipts = engine.submit(submissions, now_ms=now_ms)
    except NOT_DONE:
        dropped(files, common.customer, ids)
        raise
    drop_repeated(files, submissions, receipts)
    return receipts


def write_each(files: Files, common: Common, inputs: Iterable[Input], is_by_pages: bool) -> list[Submission]:
    """Write the bytes of files one after the other, as they come, for one who submits them then; all are written, or none."""
    ids: list[str] = []
    submissions = []
    try:
        for one in inputs:
            _refuse_unfit(common, one, is_by_pages)
            ids += new_ids(1)
            submissions.append(_written(files, common, ids[-1], one, is_by_pages))
    except BaseException:
        dropped(files, common.customer, ids)
        raise
    return submissions


def drop_repeated(files: Files, submissions: Sequence[Submission], receipts: Sequence[Receipt]) -> None:
    """Remove the bytes of documents that were there before, with bytes of their own."""
    repeated = [one.id for one, receipt in zip(submissions, receipts, strict=True) if receipt.id != one.id]
    if repeated:
        dropped(files, submissions[0].customer, repeated)


def _all_written(
    files: Files, common: Common, ids: Sequence[str], inputs: Sequence[Input], is_by_pages: bool
) -> list[Submission]:
    """The bytes of all files are written, several at once: syncs and requests that wait together take no longer than one."""
    if len(inputs) == 1:
        return [_written(files, common, ids[0], inputs[0], is_by_pages)]
    with ThreadPoolExecutor(min(WRITERS_MAX, len(inputs)), thread_name_prefix="fairlane-files") as pool:
        under_way = [pool.submit(_written, files, common, id, one, is_by_pages) for id, one in zip(ids, inputs, strict=True)]
        try:
            return [one.result() for one in under_way]
        except BaseException:
            pool.shutdown(cancel_futures=True)  # and wait for what has begun
            raise


def checked_inputs(inputs: Iterable[Input]) -> list[Input]:
    """The files of one call, if they are that."""
    if isinstance(inputs, Input | str | bytes) or not isinstance(inputs, Iterable):
        raise BadValue("files", inputs, 'a list, as in [Input(path="invoice.pdf")]')
    listed = list(inputs)
    for one in listed:
        if not isinstance(one, Input):
            raise BadValue("one of files", one, 'an Input, as in Input(path="invoice.pdf")')
        if type(one.depth) is not int or not 0 <= one.depth <= 1000:
            raise BadValue("depth", one.depth, "how many archives the file came out of, 0 to 1,000")
        if one.parent is not None:
            document_id(one.parent)
        if one.name is not None and (not isinstance(one.name, str) or not one.name):
            raise BadValue("name", one.name, "what the sender calls the file, or None")
    if len(listed) > BATCH_MAX:
        raise BadValue("files", f"a list of {len(listed):,}", f"at most {BATCH_MAX:,} long; submit them in parts")
    return listed


def shown_name(one: Input) -> str | None:
    """What the sender calls the file: told, never used, so what is odd in it is replaced and what is long is cut."""
    name = one.name
    if name is None and one.path is not None:
        name = os.path.basename(os.fsdecode(one.path)) if isinstance(one.path, str | os.PathLike) else None
    if not name:
        return None
    told = name.encode(errors="surrogateescape" if one.name is None else "replace").decode(errors="replace")
    return _UNWANTED.sub("\ufffd", told)[:NAME_LENGTH_MAX]


def _written(files: Files, common: Common, id: str, one: Input, is_by_pages: bool) -> Submission:
    """The bytes of one file are written; returns what is to be submitted."""
    content = given_file(one.path, one.content)
    pages = PagesSeen() if is_by_pages else None
    try:
        size, sha256 = files.put_input(common.customer, id, content, pages.add if pages else None)
    finally:
        if one.path is not None:
            content.close()  # type: ignore[union-attr]
    cost = pages.pages() * STEP if pages else None
    return _submission(common, id, one, File(shown_name(one), size, sha256, one.depth, one.parent, is_by_pages), cost)


def _refuse_unfit(common: Common, one: Input, is_by_pages: bool) -> None:
    """Refuse what is said beside a file, if it must be refused, while nothing is written."""
    _submission(common, "", one, File(shown_name(one), SIZE_MAX, 64 * "0", one.depth, one.parent, is_by_pages), None)


def _submission(common: Common, id: str, one: Input, file: File, cost: int | None) -> Submission:
    told = json_text("payload", one.payload, PAYLOAD_BYTES_MAX)
    return common.submission(id, wrapped(file, told), one.key, cost)
