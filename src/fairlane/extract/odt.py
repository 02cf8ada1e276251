"""ODT extractor: the text, read as a stream; author and dates."""

from __future__ import annotations

from .builder import ExtractionBuilder
from .markdown import MarkdownWriter
from .odf import read_facts
from .odf_styles import OdfStyles
from .odt_content import OdtContent
from .xml import read_xml
from .zip_package import Package


def read(builder: ExtractionBuilder) -> None:
    """Read the text; refuse an encrypted document first."""
    with Package(builder, builder.limits.parts_max) as package:
        read_facts(builder, package)
        writer = MarkdownWriter(builder)
        content = OdtContent(builder, package, writer, OdfStyles(builder, package))
        read_xml(builder, package.iter_blocks("content.xml"), content)
        writer.write_notes()
