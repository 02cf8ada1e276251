"""What the placeholders of slides inherit from their layout and its master: their kind, and the bullets of each level.

Laws:
- A level has the first bullet that is said: by the paragraph, the shape, the layout's placeholder, the master's, the master's
  text styles. Nobody saying anything is not the same as a bullet that is taken away.
- What is kept is limited, in a layout and in all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .builder import ExtractionBuilder
from .ooxml import Relationship, read_relationships
from .xml import Attributes, read_xml
from .zip_package import Package

TITLES = ("title", "ctrTitle")
LEVELS = {f"lvl{number}pPr": number - 1 for number in range(1, 10)}  # what a list style says about a level
MARKERS = {"buChar": "-", "buBlip": "-", "buAutoNum": "1.", "buNone": ""}
LAYOUTS_MAX = 100  # kept at once
PLACEHOLDERS_MAX = 200
Markers = dict[int, str]  # by level, from 0; the empty string where there is no bullet


@dataclass(slots=True)
class Placeholder:
    """A placeholder of a layout or a master."""

    kind: str
    index: str
    markers: Markers = field(default_factory=dict)


class Layout:
    """Handler for a layout or a master, and what was found in it."""

    def __init__(self) -> None:
        self.placeholders: list[Placeholder] = []
        self.master: Layout | None = None
        self.styles: dict[str, Markers] = {"titleStyle": {}, "bodyStyle": {}}
        self._markers: Markers | None = None  # of the placeholder or the style that is being read
        self._level: int | None = None

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "ph":
            if len(self.placeholders) < PLACEHOLDERS_MAX:
                self.placeholders.append(Placeholder(attributes.get("type", "obj"), attributes.get("idx", "0")))
                self._markers = self.placeholders[-1].markers
        elif name in self.styles:
            self._markers = self.styles[name]
        elif name in LEVELS:
            self._level = LEVELS[name]
        elif name in MARKERS and self._level is not None and self._markers is not None:
            self._markers.setdefault(self._level, MARKERS[name])

    def end(self, name: str) -> None:
        if name == "sp" or name in self.styles:
            self._markers = None
        elif name in LEVELS:
            self._level = None

    def text(self, text: str) -> None:
        pass

    def find(self, kind: str, index: str) -> Placeholder | None:
        """Return the placeholder that one of a slide is made from: the one with its index and kind, or with either."""
        same_index = [placeholder for placeholder in self.placeholders if placeholder.index == index]
        same_kind = [placeholder for placeholder in self.placeholders if placeholder.kind == kind]
        both = [placeholder for placeholder in same_index if placeholder.kind == kind]
        return next(iter(both or (same_index if kind == "obj" else []) or same_kind or same_index), None)

    def inherited(self, kind: str, index: str) -> tuple[str, list[Markers]]:
        """Return the kind of a slide's placeholder and the markers that it inherits, nearest first."""
        own = self.find(kind, index)
        kind = own.kind if own is not None and kind == "obj" else kind
        is_title = kind in TITLES
        chain = [own.markers] if own is not None else []
        if self.master is not None:
            above = self.master.find("title" if is_title else "body", "")
            chain += [above.markers] if above is not None else []
            chain.append(self.master.styles["titleStyle" if is_title else "bodyStyle"])
        return kind, chain


class Layouts:
    """The layouts of a presentation, read when a slide needs them."""

    def __init__(self, builder: ExtractionBuilder, package: Package) -> None:
        self._builder, self._package = builder, package
        self._layouts: dict[str, Layout] = {}

    def of(self, rels: dict[str, Relationship], kind: str = "slideLayout") -> Layout | None:
        """Return the layout of a slide with these relationships, or the master of a layout."""
        for rel in rels.values():
            if rel.kind == kind and rel.target in self._package and not rel.is_external:
                return self._load(rel.target, kind)
        return None

    def _load(self, part: str, kind: str) -> Layout:
        if part not in self._layouts:
            if len(self._layouts) >= LAYOUTS_MAX:
                self._layouts.clear()
            layout = Layout()
            read_xml(self._builder, self._package.iter_blocks(part), layout)
            if kind == "slideLayout":
                layout.master = self.of(read_relationships(self._builder, self._package, part), "slideMaster")
            self._layouts[part] = layout
        return self._layouts[part]
