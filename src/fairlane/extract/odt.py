"""ODT extractor: the text, read as a stream; author and dates."""

from __future__ import annotations

from .builder import ExtractionBuilder
from .failure import Unreadable
from .markdown import MarkdownWriter
from .odf_styles import OdfStyles
from .odt_content import OdtContent
from .xml import Attributes, Elements, read_xml
from .zip_package import Package

FACTS = {"title": "title", "initial-creator": "author", "creator": "author", "creation-date": "created", "date": "modified"}


def read(builder: ExtractionBuilder) -> None:
    """Read the text; refuse an encrypted document first."""
    with Package(builder, builder.limits.parts_max) as package:
        if "META-INF/manifest.xml" in package:
            read_xml(
                builder,
                package.iter_blocks("META-INF/manifest.xml"),
                Elements(builder, _refuse_encrypted),
                is_doctype_allowed=True,
            )
        if "meta.xml" in package:
            read_xml(
                builder,
                package.iter_blocks("meta.xml"),
                Elements(builder, lambda name, _, text: _on_meta_element(builder, name, text)),
            )
        if any(entry.filename.startswith(("Basic/", "Scripts/")) for entry in package.entries):
            builder.warn("macros_ignored")
        writer = MarkdownWriter(builder)
        read_xml(builder, package.iter_blocks("content.xml"), OdtContent(builder, writer, OdfStyles(builder, package)))
        writer.write_notes()


def _on_meta_element(builder: ExtractionBuilder, name: str, text: str) -> None:
    if name in FACTS:
        builder.fact(FACTS[name], text)


def _refuse_encrypted(name: str, _: Attributes, __: str) -> None:
    if name == "encryption-data":
        raise Unreadable("encrypted", "the document is protected with a password")
