"""`Document` of `fairlane.testing`: a document for a handler that a test calls directly, without a queue.

Laws:
- The handler sees what a worker would hand to it: the payload went through JSON, the file is checked by its hash, bad values of
  `progress`, `partial` and `cost` are refused with the same errors.
- Nothing is limited to so many reports a second: every report is kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from fairlane.blobs.envelope import (
    RESULTS,
    File,
    Pipeline,
    StepResult,
    add_part_results,
    reject_reserved_key,
    result_digest,
    wrap_payload,
)
from fairlane.blobs.files import Files, open_content
from fairlane.core.document import ATTEMPTS_DEFAULT, Claim, validate_text
from fairlane.core.errors import BadValue
from fairlane.queue import DEFAULT_KIND, FILE_KIND, Input, new_ids
from fairlane.queue.files import display_name
from fairlane.queue.validation import json_text, validate_priority
from fairlane.worker.document import ClaimedDocument

from .temporary_folder import temporary_folder

NAMESPACE = "sample"


class SampleDocument(ClaimedDocument):
    """One document to hand to a handler; it keeps what the handler reports and writes."""

    def __init__(
        self,
        payload: Any = None,
        *,
        customer: str = "customer",
        kind: str | None = None,
        path: str | os.PathLike[str] | None = None,
        content: bytes | BinaryIO | None = None,
        name: str | None = None,
        attempt: int = 1,
        attempts_max: int = ATTEMPTS_DEFAULT,
        priority: int = 1,
        token: int | None = None,
        id: str | None = None,
        results: Mapping[str, Any] | None = None,
        parts: Sequence[Any] | None = None,
    ) -> None:
        self.reports: list[float | str] = []  # everything that the handler reported with progress()
        self.partials: list[Any] = []  # every partial result
        self._folder: str | None = None
        self._results: dict[str, Any] = {}  # size and hash of what was written, by name
        has_file = path is not None or content is not None or name is not None
        document_id = validate_text("id", new_ids(1)[0] if id is None else id)
        validate_text("customer", customer)
        _validate_attempt(attempt, attempts_max)
        reject_reserved_key(payload)
        file = self._store_file(customer, document_id, Input(path, content, name)) if has_file else None
        steps = tuple(StepResult(*step) for step in json.loads(json_text("results", _steps(results))))
        text = wrap_payload(file, json_text("payload", payload), Pipeline(results=steps, parts=len(parts or ())))
        if parts:
            text = add_part_results(text, [json_text("result of a part", part) for part in parts])
        default_kind = FILE_KIND if has_file else DEFAULT_KIND
        claim = Claim(
            document_id, attempt if token is None else token, 1, customer, validate_text("kind", kind or default_kind, 100),
            validate_priority("priority", priority), text, attempt, attempts_max, lease_ms=0, turn=1, is_open_turn=False,
        )  # fmt: skip
        super().__init__(claim, lambda _: None, self._open_files)

    def _open_files(self) -> Files:
        if self._folder is None:
            self._folder, _ = temporary_folder(self)
        return Files(self._folder, NAMESPACE)

    def _store_file(self, customer: str, id: str, source: Input) -> File:
        content = open_content(source.path, source.content)
        try:
            size, sha256 = self._open_files().put_input(customer, id, content)
        finally:
            if source.path is not None:
                content.close()  # type: ignore[union-attr]
        return File(display_name(source), size, sha256)

    def put_results(
        self, *, text: str | bytes | BinaryIO | None = None, facts: Any = None, thumbnail: bytes | BinaryIO | None = None
    ) -> dict[str, Any]:
        """Write result files; they are in `text`, `facts` and `thumbnail` then."""
        results = super().put_results(text=text, facts=facts, thumbnail=thumbnail)
        self._results |= results[RESULTS]
        return results

    def progress(self, value: float | str) -> None:
        """Keep how far the work is."""
        super().progress(value)
        self.reports.append(value)

    def partial(self, value: Any) -> None:
        """Keep a partial result."""
        super().partial(value)
        self.partials.append(json.loads(json.dumps(value)))

    @property
    def text(self) -> str | None:
        """The text that the handler wrote with put_results(); None if it wrote none."""
        text = self._read("text")
        return None if text is None else text.decode()

    @property
    def facts(self) -> Any:
        """The facts that the handler wrote with put_results(); None if it wrote none."""
        facts = self._read("facts")
        return None if facts is None else json.loads(facts)

    @property
    def thumbnail(self) -> bytes | None:
        """The thumbnail that the handler wrote with put_results(); None if it wrote none."""
        return self._read("thumbnail")

    def _read(self, name: str) -> bytes | None:
        digest = result_digest({RESULTS: self._results}, name)
        if digest is None:
            return None
        with self._open_files().open_result(self.customer, self.id, self.token, name, digest) as file:
            return file.read()


def _validate_attempt(attempt: int, attempts_max: int) -> None:
    if type(attempts_max) is not int or attempts_max < 1:
        raise BadValue("attempts_max", attempts_max, "a whole number from 1")
    if type(attempt) is not int or not 1 <= attempt <= attempts_max:
        raise BadValue("attempt", attempt, f"a whole number from 1 to attempts_max, which is {attempts_max}")


def _steps(results: Mapping[str, Any] | None) -> list[tuple[str, int, Any]]:
    """Return what the steps before this one returned, by kind, as a document has it."""
    return [(kind, number, result) for number, (kind, result) in enumerate((results or {}).items(), start=1)]
