"""Contents: what is kept of a document: payload and file, steps and parts, its result and the files that handlers wrote."""

from __future__ import annotations

import json
from typing import Any, BinaryIO

from fairlane.blobs.envelope import File, Pipeline, pipeline_of, result_digest, unwrap_payload, wrap_results
from fairlane.core.document import DocumentRow
from fairlane.core.errors import Unknown, WrongState
from fairlane.engine import Engine

from .files import QueueFiles
from .models import Document, Step, document_from, steps_of
from .validation import document_id, unknown_document


class ContentVerbs:
    """What a program reads of documents besides their state; `Queue` has these verbs."""

    engine: Engine
    files: QueueFiles

    def _row(self, id: str) -> DocumentRow:
        row = self.engine.document(document_id(id))
        if row is None:
            raise unknown_document(id)
        return row

    def payload(self, id: str) -> Any:
        """Return the payload that was submitted."""
        return self._input_and_payload(id)[1]

    def input(self, id: str) -> File:
        """Return name, size and SHA-256 of the file that was submitted."""
        file, _ = self._input_and_payload(id)
        if file is None:
            raise Unknown(f"document {id} was submitted without a file; it has only a payload")
        return file

    def file(self, id: str) -> BinaryIO:
        """Open the file that was submitted, after checking its hash; close it, or use it in a `with`."""
        file, customer = self.input(id), self._row(id).customer
        return self.files.open().open_input(customer, file.of or id, file)

    def parts(self, id: str) -> list[Document]:
        """Return the parts into which a document was split last, in order."""
        return [document_from(part.document) for part in self.engine.parts(self._row(id).id)]

    def steps(self, id: str) -> list[Step]:
        """Return the steps of a document, in order; one that was submitted without `steps` has one."""
        row, body = self._row(id), self.engine.body(id)
        return steps_of(row, Pipeline() if body is None else pipeline_of(json.loads(body.payload)))

    def _input_and_payload(self, id: str) -> tuple[File | None, Any]:
        body = self.engine.body(document_id(id))
        if body is None:
            raise unknown_document(id)
        return unwrap_payload(json.loads(body.payload))

    def result(self, id: str) -> Any:
        """Return the result of a document that is done."""
        document = self._row(id)
        if document.state != "done":
            why = f": {document.reason}" if document.reason else ""
            raise WrongState(f"document {id} has no result: it is {document.state}{why}; only a document that is done has one")
        body = self.engine.body(id)
        return None if body is None or body.result is None else json.loads(body.result)

    def text(self, id: str) -> str:
        """Return the extracted text of a document that is done."""
        return self._read_result_file(id, "text").decode()

    def facts(self, id: str) -> Any:
        """Return the extracted facts of a document that is done."""
        return json.loads(self._read_result_file(id, "facts"))

    def thumbnail(self, id: str) -> bytes:
        """Return the thumbnail of a document that is done."""
        return self._read_result_file(id, "thumbnail")

    def _read_result_file(self, id: str, name: str) -> bytes:
        result, document, body = self.result(id), self._row(id), self.engine.body(id)
        results = [(document.token, result)]  # the newest first; earlier steps have written files, too
        if body is not None:
            results += [(step.token, step.result) for step in reversed(pipeline_of(json.loads(body.payload)).results)]
        for token, step_result in results:
            digest = result_digest(step_result, name)
            if digest is not None:
                with self.files.open().open_result(document.customer, id, token, name, digest) as file:
                    return file.read()
        raise Unknown(f"document {id} has no {name}; its handler wrote none, see `result`")

    def put_results(
        self,
        customer: str,
        id: str,
        token: int,
        *,
        text: str | bytes | BinaryIO | None = None,
        facts: Any = None,
        thumbnail: bytes | BinaryIO | None = None,
    ) -> dict[str, Any]:
        """For handlers: write result files under the token of the claim; add what this returns to the result."""
        files = self.files.open()
        return wrap_results(files.put_results(customer, id, token, text=text, facts=facts, thumbnail=thumbnail))
