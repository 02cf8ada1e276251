"""How do the parts of a DOCX, PPTX or XLSX belong together?

Laws:
- Relationships are followed inside the package only. What points outside is a link to show, never to open.
- Parts are found by their relationships, not by their usual names: some writers use others.
"""

from __future__ import annotations

import posixpath
from typing import NamedTuple

from .draft import Draft
from .failure import Unreadable
from .package import Package
from .xml import Attributes, Elements, read_xml

RELATIONS_MAX = 100_000
KINDS = {"wordprocessingml": "docx", "presentationml": "pptx", "spreadsheetml": "xlsx"}


class Relation(NamedTuple):
    """Where one part points."""

    kind: str
    target: str
    is_outside: bool


def relations(draft: Draft, package: Package, part: str) -> dict[str, Relation]:
    """What a part points to, by id."""
    folder, _, name = part.rpartition("/")
    rels = posixpath.join(folder, "_rels", f"{name}.rels")
    found: dict[str, Relation] = {}
    if rels not in package:
        return found

    def seen(name: str, attributes: Attributes, _: str) -> None:
        if name != "Relationship":
            return
        is_outside = attributes.get("TargetMode") == "External"
        target = attributes.get("Target", "")
        if not is_outside:
            target = posixpath.normpath(posixpath.join("/" + folder, target)).lstrip("/")
        kind = attributes.get("Type", "").rpartition("/")[2]
        if is_outside and kind != "hyperlink":
            draft.warn("references_ignored", target)
        if len(found) < RELATIONS_MAX:
            found[attributes.get("Id", "")] = Relation(kind, target, is_outside)

    read_xml(draft, package.blocks(rels), Elements(draft, seen))
    return found


def main_part(draft: Draft, package: Package) -> tuple[str, str]:
    """The part that the document is, and its content type."""
    found = [one for one in relations(draft, package, "").values() if one.kind == "officeDocument" and not one.is_outside]
    if not found:
        raise Unreadable("corrupt", "an office document without its main part")
    part = found[0].target
    types: dict[str, str] = {}

    def seen(name: str, attributes: Attributes, _: str) -> None:
        if name == "Override" and attributes.get("PartName", "").lstrip("/") == part:
            types["part"] = attributes.get("ContentType", "")

    read_xml(draft, package.blocks("[Content_Types].xml"), Elements(draft, seen))
    return part, types.get("part", "")


def read_properties(draft: Draft, package: Package) -> None:
    """Title, author and dates."""
    names = {"title": "title", "creator": "author", "created": "created", "modified": "modified"}

    def seen(name: str, _: Attributes, text: str) -> None:
        if name in names:
            draft.fact(names[name], text)

    for one in relations(draft, package, "").values():
        if one.kind == "core-properties" and one.target in package and not one.is_outside:
            read_xml(draft, package.blocks(one.target), Elements(draft, seen))
    if any(entry.filename.endswith("vbaProject.bin") for entry in package.entries):
        draft.warn("macros_ignored")
