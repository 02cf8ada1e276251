"""What the files of the corpus say: documents, slides and workbooks composed from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial

from chaos.corpus.pdf_pages import ENGLISH, GERMAN, POLISH

from .model import Block, Cell, Document, Heading, Item, Listing, Paragraph, Speech, Table
from .texts import LANGUAGES, Texts

ALL = frozenset({"notes", "comments", "merged", "nested", "numbered", "links", "speech"})
LONG = {"en": ENGLISH, "pl": POLISH, "de": GERMAN}
SITES = (
    "https://example.org/orders?id=17&page=2",
    "https://example.com/a_b/(c)",
    "mailto:office@example.org",
    "https://example.net/#top",
)


class _Composer:
    """Composes blocks of one document; what is numbered makes each of them one of a kind."""

    def __init__(self, seed: int, features: frozenset[str], languages: int) -> None:
        self._random = random.Random(seed)
        self._features = features
        # Not the seed itself: the ways to write a format take their turns by it.
        self.texts: Texts = random.Random(f"language {seed}").choice(LANGUAGES[:languages])
        self._number = 0

    def _count(self) -> int:
        self._number += 1
        return self._number

    def choose(self, *counts: int) -> int:
        return self._random.choice(counts)

    def heading(self, level: int) -> Heading:
        return Heading(level, f"{self._random.choice(self.texts.titles)} {self._count()}")

    def sentences(self, *counts: int) -> str:
        return " ".join(self._random.sample(self.texts.sentences, self.choose(*counts)))

    def _has(self, feature: str, share: float) -> bool:
        drawn = self._random.random() < share  # drawn whether it is wanted or not, so that documents stay alike
        return drawn and feature in self._features

    def paragraph(self) -> Paragraph:
        long = LONG.get(self.texts.code)
        text = self._random.choice(long) if long and self._random.random() < 0.5 else self.sentences(2, 3, 4)
        text = f"{text} ({self._count()})"
        link = note = comment = None
        if self._has("links", 0.3):
            words = text.split()
            begin = self._random.randrange(max(1, len(words) - 4))
            link = " ".join(words[begin : begin + 3]), self._random.choice(SITES)
        if self._has("notes", 0.2):
            note = f"{self.sentences(1)} [{self._count()}]".replace("[", "").replace("]", "")
        if self._has("comments", 0.2):
            comment = f"{self.sentences(1)} {self._count()}"
        return Paragraph(text, link, note or "", comment or "")

    def listing(self, *lengths: int) -> Listing:
        items, level = [], 0
        is_nested = self._has("nested", 0.5)
        for position in range(self.choose(*lengths)):
            level = min(self._random.randrange(level + 2), 2) if is_nested and position else 0
            text = self._random.choice(self.texts.items) if self._random.random() < 0.6 else self.sentences(1)
            items.append(Item(level, f"{text} {self._count()}"))
        return Listing(tuple(items), self._has("numbered", 0.4))

    def table(self) -> Table:
        columns = self.choose(3, 4)
        rows: list[tuple[Cell, ...]] = [(*self.texts.columns, "2026")[:columns]]
        for _ in range(self.choose(3, 4, 6)):
            numbers = (self._random.randrange(1, 90), f"{self._random.randrange(100, 99999) / 100:.2f}", self._count())
            rows.append((f"{self._random.choice(self.texts.items)} {self._count()}", *(str(n) for n in numbers))[:columns])
        if self._has("merged", 0.4):
            rows.append((f"{self.texts.titles[0]} {self._count()}", None, *(str(self._count()) for _ in range(columns - 2))))
        return Table(tuple(rows))

    def body(self) -> Iterator[Block]:
        """Yield a document with a title, sections and, in some, subsections."""
        yield self.heading(1)
        yield self.paragraph()
        for _ in range(self.choose(2, 3)):
            yield self.heading(2)
            yield self.paragraph()
            extras: list[Callable[[], Block]] = [self.table, partial(self.listing, 3, 4, 5), self.paragraph]
            for extra in self._random.sample(extras, self.choose(1, 2, 3)):
                yield extra()
                if self._random.random() < 0.4:
                    yield self.paragraph()
            if self._random.random() < 0.3:
                yield self.heading(3)
                yield self.paragraph()


def compose_text(seed: int, features: frozenset[str] = ALL, languages: int = 99) -> Document:
    """Compose a document of text; `languages` is how many of them are drawn from."""
    composer = _Composer(seed, features, languages)
    return Document(composer.texts.code, tuple(composer.body()))


def compose_slides(seed: int, features: frozenset[str] = ALL) -> Document:
    """Compose slides: each has a heading, then a list, a paragraph or a table, and perhaps speaker's notes."""
    composer = _Composer(seed, features, 99)
    blocks: list[Block] = []
    for _ in range(composer.choose(3, 4, 5)):
        blocks.append(composer.heading(1))
        blocks.append((composer.table, partial(composer.listing, 3, 4), composer.paragraph)[composer.choose(0, 1, 1, 2)]())
        if "speech" in features and composer.choose(0, 1):
            blocks.append(Speech(composer.sentences(2)))
    return Document(composer.texts.code, tuple(blocks))


def compose_sheets(seed: int, features: frozenset[str] = ALL) -> Document:
    """Compose a workbook: each sheet has a name and a table of words, numbers, dates and truths."""
    composer = _Composer(seed, features, 99)
    randomness = random.Random(-seed - 1)
    blocks: list[Block] = []
    for number in range(composer.choose(1, 2, 3)):
        blocks.append(Heading(2, f"{composer.texts.titles[0][:20]} {number + 1}"))
        rows: list[tuple[Cell, ...]] = [(*composer.texts.columns, "date", "paid", "rate")]
        for row in range(composer.choose(5, 12, 30)):
            cells = (
                f"{randomness.choice(composer.texts.items)} {row}",
                randomness.randrange(1, 100_000),
                randomness.randrange(1, 1_000_000) / 100,
                date(2026, 1, 1).replace(day=1 + row % 28, month=1 + row % 12),
                randomness.random() < 0.5,
                row / 10 + 0.05,
            )
            rows.append(cells)
        blocks.append(Table(tuple(rows)))
    return Document(composer.texts.code, tuple(blocks))


COMPOSERS = {"text": compose_text, "slides": compose_slides, "sheets": compose_sheets}
