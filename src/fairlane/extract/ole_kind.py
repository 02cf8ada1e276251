"""Which kind of document an OLE file is, by the streams that it holds."""

from __future__ import annotations

from .builder import ExtractionBuilder
from .failure import Unreadable
from .ole import OleFile

XLS, DOC, PPT = "application/vnd.ms-excel", "application/msword", "application/vnd.ms-powerpoint"
MSG = "application/vnd.ms-outlook"
KINDS = {
    "workbook": XLS,
    "book": XLS,
    "worddocument": DOC,
    "powerpoint document": PPT,
    "__properties_version1.0": MSG,
}
ENCRYPTED = ("encryptedpackage", "\tdrmcontent")
UNSUPPORTED = {
    "visiodocument": "application/vnd.visio",
    "quill": "application/x-mspublisher",
    "matost": "application/vnd.ms-works",
    "pp40": "a presentation of PowerPoint 4",
    "pp97_dualstorage": "a presentation of PowerPoint 95",
    "props": "application/vnd.ms-project",
    "fileheader": "application/x-hwp",
}


def detect_ole_type(builder: ExtractionBuilder) -> str:
    """Return the type of an OLE file; refuse one with a password, and what is not read."""
    with OleFile(builder) as ole:
        names = ole.children(ole.root)
    if any(name in names for name in ENCRYPTED):
        raise Unreadable("encrypted", "an office document with a password")
    for name, kind in KINDS.items():
        if name in names:
            return kind
    kinds = [kind for name, kind in UNSUPPORTED.items() if name in names]
    raise Unreadable(
        "unsupported", kinds[0] if kinds else f"an OLE file of an unknown kind, with {', '.join(sorted(names)[:5])}"
    )
