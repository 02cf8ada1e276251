"""Entry point of the confined process: reads one file and returns its text, facts and thumbnail.

The fork server loads this module: it knows the extractors and nothing of queues.

Laws:
- The fork server reads small samples of its own first, so that what parsers set up at first use is ready in every fork.
"""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from fairlane.core.errors import Mistake
from fairlane.sandbox import Response, WorkFailed, output_file

from . import Limits, Unreadable, build, warm
from .builder import ExtractionBuilder
from .custom_reader import load_function
from .member_store import MemberRow

is_fork_server = False  # whether this process is one, which must not start another
_PDF = b"""%PDF-1.4
1 0 obj <</Type /Catalog /Pages 2 0 R>> endobj
2 0 obj <</Type /Pages /Kids [3 0 R] /Count 1>> endobj
3 0 obj <</Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Contents 4 0 R /Resources <</Font <</F 5 0 R>>>>>> endobj
4 0 obj <</Length 44>> stream
BT /F 9 Tf 9 9 Td (This is the sample) Tj ET
endstream endobj
5 0 obj <</Type /Font /Subtype /Type1 /BaseFont /Helvetica>> endobj
trailer <</Root 1 0 R>>
"""
_OFFICE = "http://schemas.openxmlformats.org"
_DOCX = {
    "[Content_Types].xml": f'<Types xmlns="{_OFFICE}/package/2006/content-types"><Override PartName="/word/document.xml" '
    'ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>',
    "_rels/.rels": f'<Relationships xmlns="{_OFFICE}/package/2006/relationships"><Relationship Id="a" '
    f'Target="word/document.xml" Type="{_OFFICE}/officeDocument/2006/relationships/officeDocument"/></Relationships>',
    "word/document.xml": f'<w:document xmlns:w="{_OFFICE}/wordprocessingml/2006/main"><w:body><w:p><w:r>'
    "<w:t>This is the sample</w:t></w:r></w:p></w:body></w:document>",
}


def samples() -> dict[str, bytes]:
    """Return one small file for each of the parsers that most formats use."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as package:
        for name, part in _DOCX.items():
            package.writestr(name, part)
    html = b"<html><body><p>This is the sample</p></body></html>"
    return {"a.pdf": _PDF, "a.docx": packed.getvalue(), "a.html": html, "a.txt": b"This is the sample\n"}


def prepare(readers: Sequence[str] = ()) -> None:
    """Load every parser and the readers of your own, and read each sample once."""
    global is_fork_server
    is_fork_server = True
    for reader in readers:
        try:
            load_function(reader)
        except Mistake as mistake:
            raise SystemExit(f"fairlane: {mistake}") from None
    warm()
    with tempfile.TemporaryDirectory(prefix="fairlane-sample-") as folder:
        for name, content in samples().items():
            path = Path(folder, name)
            path.write_bytes(content)
            _respond(ExtractionBuilder(path, name, None, Limits()), None, {})


def work(
    path: str, name: str, limits: dict[str, Any], depth: int, sha256: str, readers: Mapping[str, str | None]
) -> Callable[[], Response]:
    """Return the call for the confined process, from arguments that were JSON."""
    for reader in filter(None, readers.values()):
        with suppress(Mistake):  # the attempt says so
            load_function(reader)  # the confined process may find no module any more
    pages = None if limits["pages"] is None else tuple(limits["pages"])
    file_limits = Limits(**limits | {"ocr_languages": tuple(limits["ocr_languages"]), "pages": pages})
    return partial(read, Path(path), name, file_limits, depth, sha256, readers)


def read(path: Path, name: str, limits: Limits, depth: int, sha256: str, readers: Mapping[str, str | None]) -> Response:
    """In the confined process: read a file; its members go to the output file."""
    with output_file() as output:
        return _respond(ExtractionBuilder(path, name, MemberRow(output), limits, depth), sha256, readers)


def _respond(builder: ExtractionBuilder, sha256: str | None, readers: Mapping[str, str | None]) -> Response:
    """Return the facts of a file, and as parts its text and thumbnail."""
    try:
        result = build(builder, sha256, readers)
    except Unreadable as failure:
        raise WorkFailed(failure.code, failure.detail) from failure
    return Response(result.facts(), (result.text_bytes, result.thumbnail or b""))
