"""What all OpenDocument files share: facts, preview, password and macros."""

from __future__ import annotations

from .builder import ExtractionBuilder
from .failure import Unreadable
from .preview import read_preview
from .xml import Attributes, Elements, read_xml
from .zip_package import Package

FACTS = {"title": "title", "initial-creator": "author", "creator": "author", "creation-date": "created", "date": "modified"}
MANIFEST, THUMBNAIL = "META-INF/manifest.xml", "Thumbnails/thumbnail.png"


def read_facts(builder: ExtractionBuilder, package: Package) -> None:
    """Read title, author, dates and preview; refuse an encrypted document first."""
    if MANIFEST in package:
        read_xml(builder, package.iter_blocks(MANIFEST), Elements(builder, _refuse_encrypted), is_doctype_allowed=True)
    if "meta.xml" in package:

        def on_element(name: str, _: Attributes, text: str) -> None:
            if name in FACTS:
                builder.fact(FACTS[name], text)

        read_xml(builder, package.iter_blocks("meta.xml"), Elements(builder, on_element))
    if any(entry.filename.startswith(("Basic/", "Scripts/")) for entry in package.entries):
        builder.warn("macros_ignored")
    read_preview(builder, package, THUMBNAIL)


def _refuse_encrypted(name: str, _: Attributes, __: str) -> None:
    if name == "encryption-data":
        raise Unreadable("encrypted", "the document is protected with a password")
