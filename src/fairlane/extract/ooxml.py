"""Office Open XML: the parts of a DOCX, PPTX or XLSX and the relationships between them.

Laws:
- Relationships are followed inside the package only. An external target is a link to show, never to open.
- Parts are located by their relationships, not by their usual names: some programs write others.
- An id of a relationship is an attribute `r:id`, whatever its prefix in the file: a plain `id` beside it is something else.
"""

from __future__ import annotations

import posixpath
from typing import NamedTuple

from .builder import ExtractionBuilder
from .failure import Unreadable
from .preview import read_preview
from .xml import Attributes, Elements, read_xml
from .zip_package import Package

RELATIONSHIPS_MAX = 100_000
METADATA = ("core-properties", "extended-properties", "custom-properties", "thumbnail", "origin")
KINDS = {"wordprocessingml": "docx", "presentationml": "pptx", "spreadsheetml": "xlsx"}


class Relationship(NamedTuple):
    """A reference from one part to another, or to an external target."""

    kind: str
    target: str
    is_external: bool


def read_relationships(builder: ExtractionBuilder, package: Package, part: str) -> dict[str, Relationship]:
    """Return the relationships of a part, by id."""
    folder, _, name = part.rpartition("/")
    rels = posixpath.join(folder, "_rels", f"{name}.rels")
    relationships: dict[str, Relationship] = {}
    if rels not in package:
        return relationships

    def on_element(name: str, attributes: Attributes, _: str) -> None:
        if name != "Relationship":
            return
        kind = attributes.get("Type", "").rpartition("/")[2]
        is_external = attributes.get("TargetMode") == "External" or kind == "hyperlink"
        target = attributes.get("Target", "")
        if not is_external:
            target = posixpath.normpath(posixpath.join("/" + folder, target)).lstrip("/")
        if is_external and kind != "hyperlink":
            builder.warn("references_ignored", target)
        if len(relationships) < RELATIONSHIPS_MAX:
            relationships[attributes.get("Id", "")] = Relationship(kind, target, is_external)

    read_xml(builder, package.iter_blocks(rels), Elements(builder, on_element))
    return relationships


def main_part(builder: ExtractionBuilder, package: Package) -> tuple[str, str]:
    """Return the main part of the document, and its content type."""
    rels = [rel for rel in read_relationships(builder, package, "").values() if not rel.is_external]
    targets = [rel.target for rel in rels if rel.kind == "officeDocument"]
    if not targets:
        if others := [rel.kind for rel in rels if rel.kind not in METADATA]:  # Visio, XPS and others
            raise Unreadable("unsupported", f"a package that is no office document; its main part is a {others[0]}")
        raise Unreadable("corrupt", "an office document without its main part")
    part = targets[0]
    overrides: dict[str, str] = {}
    defaults: dict[str, str] = {}  # by the suffix of the part

    def on_element(name: str, attributes: Attributes, _: str) -> None:
        kind = attributes.get("ContentType", "")
        if name == "Override" and attributes.get("PartName", "").lstrip("/").lower() == part.lower():
            overrides["part"] = kind
        elif name == "Default" and attributes.get("Extension", "").lower() == part.rpartition(".")[2].lower():
            defaults["part"] = kind

    read_xml(builder, package.iter_blocks("[Content_Types].xml"), Elements(builder, on_element))
    return part, overrides.get("part") or defaults.get("part", "")


def read_properties(builder: ExtractionBuilder, package: Package) -> None:
    """Read title, author, dates and preview."""
    names = {"title": "title", "creator": "author", "created": "created", "modified": "modified"}

    def on_element(name: str, _: Attributes, text: str) -> None:
        if name in names:
            builder.fact(names[name], text)

    for rel in read_relationships(builder, package, "").values():
        if rel.kind == "core-properties" and rel.target in package and not rel.is_external:
            read_xml(builder, package.iter_blocks(rel.target), Elements(builder, on_element))
        elif rel.kind == "thumbnail" and not rel.is_external:
            read_preview(builder, package, rel.target)
    if any(entry.filename.endswith("vbaProject.bin") for entry in package.entries):
        builder.warn("macros_ignored")
