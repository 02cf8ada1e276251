"""DOCX extractor.

Reads the document as a stream: paragraphs, headings (by the outline level of their style, whatever its name in the author's
language), lists, tables, links, text boxes, charts, what pictures show, notes, comments, headers and footers. Leaves out text
deleted by tracked changes.
"""

from __future__ import annotations

from .builder import ExtractionBuilder
from .docx_part import PartHandler
from .docx_styles import DocxStyles
from .markdown import MarkdownWriter
from .ooxml import main_part, read_properties, read_relationships
from .xml import read_xml
from .zip_package import Package

ORDER = ("header", "", "footnotes", "endnotes", "comments", "footer")


def read(builder: ExtractionBuilder) -> None:
    """Read headers, body, notes, comments and footers."""
    with Package(builder, builder.limits.parts_max) as package:
        part, _ = main_part(builder, package)
        read_properties(builder, package)
        rels = read_relationships(builder, package, part)
        styles = DocxStyles(builder, package, rels)
        writer = MarkdownWriter(builder)
        parts = {kind: [rel.target for rel in rels.values() if rel.kind == kind and not rel.is_external] for kind in ORDER}
        parts[""] = [part]
        for kind in ORDER:
            for target in dict.fromkeys(parts[kind]):
                if target in package:
                    handler = PartHandler(builder, package, writer, styles)
                    handler.rels = rels if target == part else read_relationships(builder, package, target)
                    read_xml(builder, package.iter_blocks(target), handler)
                    writer.end()
