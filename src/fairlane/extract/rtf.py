"""RTF extractor.

A tokenizer of groups, control words and bytes. It decodes bytes in the code page of their font and `\\u` characters without
their fallback, and reads tables, title and author. Pictures, objects and everything marked as ignorable are skipped.

Laws:
- No recursion: a nested group costs an entry on a list.
- Every rule moves forward: reading takes linear time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import count

from .builder import ExtractionBuilder
from .failure import Unreadable
from .markdown import MarkdownWriter

_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?[0-9]{1,10})?[ ]?|\\'([0-9a-fA-F]{2})|\\(.)|([{}])|([^\\{}\r\n]+)|[\r\n]+", re.DOTALL
)
DROPPED = {
    *("pict", "object", "objdata", "stylesheet", "colortbl", "themedata", "listtable", "listoverridetable", "rsidtbl"),
    *("generator", "xmlnstbl", "datastore", "latentstyles", "fldinst", "header", "headerf", "headerl", "headerr", "footer"),
    *(
        "footerf",
        "footerl",
        "footerr",
        "private",
        "comment",
        "operator",
        "company",
        "category",
        "keywords",
        "doccomm",
        "subject",
    ),
    *("revtbl", "filetbl", "bkmkstart", "bkmkend", "annotation", "atnid", "atnauthor", "listtext", "pntext", "nonshppict"),
}
CHARSETS = {
    0: "cp1252",
    128: "cp932",
    129: "cp949",
    134: "gbk",
    136: "big5",
    161: "cp1253",
    162: "cp1254",
    163: "cp1258",
    177: "cp1255",
    178: "cp1256",
    186: "cp1257",
    204: "cp1251",
    222: "cp874",
    238: "cp1250",
    255: "cp437",
}
SIGNS = {
    "tab": "\t",
    "line": "\n",
    "emdash": "—",
    "endash": "–",
    "lquote": "‘",
    "rquote": "’",
    "ldblquote": "“",
    "rdblquote": "”",
    "bullet": "•",
    "emspace": " ",
    "enspace": " ",
    "qmspace": " ",
    "nestcell": " ",
}
SYMBOLS = {b"~": "\xa0", b"_": "-", b"\\": "\\", b"{": "{", b"}": "}", b"\n": "\n", b"\r": "\n", b"\t": "\t"}
FACTS = {"title": "title", "author": "author"}
FONTS_MAX = 10_000


@dataclass(frozen=True)
class GroupState:
    """The settings inside one group, dropped at its end."""

    target: str = "body"  # or fonttbl, dropped, title, author, creatim, revtim
    font: int = 0
    skip: int = 1  # how many fallback characters follow a \u
    is_deleted: bool = False


class RtfReader:
    """Reads the tokens of one file."""

    def __init__(self, builder: ExtractionBuilder) -> None:
        self._builder, self._writer = builder, MarkdownWriter(builder)
        self._state = GroupState()
        self._states: list[GroupState] = []
        self._codepage = "cp1252"
        self._fonts: dict[int, str] = {}
        self._bytes = bytearray()
        self._to_skip = 0
        self._high = 0
        self._facts: dict[str, list[str]] = {}
        self._datetime: dict[str, int] = {}
        self._is_table = self._is_row_over = False
        self._is_ignorable = False
        self._heading = 0

    def read(self, content: bytes) -> None:
        position = 0
        for token_number in count(1):
            if token_number % 1024 == 0:
                self._builder.meter.check_time()
            token = _TOKEN.match(content, position)
            if token is None:  # the end, or a backslash at the very end
                break
            position = token.end()
            word, number, byte, symbol, brace, text = token.groups()
            if word is not None:
                position += self._word(word.decode("ascii"), int(number) if number else None)
            elif byte is not None:
                self._byte(int(byte, 16))
            elif symbol is not None:
                self._symbol(symbol)
            elif brace is not None:
                self._brace(brace)
            elif text is not None:
                self._plain(text)
        if self._states:
            self._builder.warn("damaged_parts", f"{len(self._states)} groups do not end")
        self._end_paragraph()
        self._end_table()

    # -- groups

    def _brace(self, brace: bytes) -> None:
        self._flush()
        self._to_skip, self._is_ignorable = 0, False
        if brace == b"{":
            self._states.append(self._state)
            self._builder.meter.check_nesting(len(self._states))
        elif self._states:
            ended, self._state = self._state, self._states.pop()
            if ended.target != self._state.target:
                self._end_target(ended.target)

    def _end_target(self, target: str) -> None:
        if target in FACTS:
            self._builder.fact(FACTS[target], "".join(self._facts.pop(target, [])))
        elif target in ("creatim", "revtim") and self._datetime:
            part = {"mo": 1, "dy": 1, "hr": 0, "min": 0, "sec": 0} | self._datetime
            day = f"{part.get('yr', 0):04d}-{part['mo']:02d}-{part['dy']:02d}"
            datetime = f"{day}T{part['hr']:02d}:{part['min']:02d}:{part['sec']:02d}"
            self._builder.fact("created" if target == "creatim" else "modified", datetime)
            self._datetime = {}

    # -- words and symbols

    def _word(self, word: str, number: int | None) -> int:
        """Apply a control word; return how many bytes of binary data to skip."""
        if word == "bin":
            return max(0, number or 0)
        if self._to_skip and word != "u":
            self._to_skip -= 1
        if word == "u":
            self._unicode(number or 0)
            return 0
        self._flush()
        if self._is_ignorable or word in DROPPED:
            self._is_ignorable = False
            if word not in ("shppict", "shpinst", "shptxt"):
                self._state = replace(self._state, target="dropped")
        elif word in ("fonttbl", "title", "author", "creatim", "revtim", "info", "printim", "buptim"):
            self._state = replace(self._state, target="dropped" if word in ("info", "printim", "buptim") else word)
        elif not self._setting(word, number) and self._state.target == "body":
            self._layout(word, number)
        return 0

    def _setting(self, word: str, number: int | None) -> bool:
        """Apply a control word that changes how the following text is read."""
        if word == "ansicpg" and number is not None:
            self._codepage = f"cp{number}" if _is_codec(f"cp{number}") else self._codepage
        elif word == "mac":
            self._codepage = "mac_roman"
        elif word in ("pc", "pca"):
            self._codepage = "cp437" if word == "pc" else "cp850"
        elif word == "f":
            self._state = replace(self._state, font=number or 0)
        elif word == "fcharset":
            if self._state.target == "fonttbl" and len(self._fonts) < FONTS_MAX and (number or 0) in CHARSETS:
                self._fonts[self._state.font] = CHARSETS[number or 0]
        elif word == "uc":
            self._state = replace(self._state, skip=min(max(number or 0, 0), 16))
        elif word == "deleted":
            self._state = replace(self._state, is_deleted=number != 0)
        elif word in ("yr", "mo", "dy", "hr", "min", "sec") and self._state.target in ("creatim", "revtim"):
            self._datetime[word] = min(abs(number or 0), 9999)
        else:
            return False
        return True

    def _layout(self, word: str, number: int | None) -> None:
        """Apply a control word for paragraphs, tables and pages."""
        if word in SIGNS:
            self._text(SIGNS[word])
        elif word in ("par", "sect"):
            self._end_paragraph()
        elif word == "page":
            self._end_paragraph()
            self._builder.break_page()
        elif word == "outlinelevel":
            self._heading = (number or 0) + 1
        elif word == "pard":
            self._heading = 0
        elif word in ("trowd", "intbl"):
            self._begin_row()
        elif word == "cell" and self._is_table:
            self._writer.end_cell()
        elif word == "row" and self._is_table:
            self._writer.end_row()
            self._is_row_over = True

    def _begin_row(self) -> None:
        if not self._is_table:
            self._end_paragraph()
            self._writer.begin_table()
        self._is_table, self._is_row_over = True, False

    def _symbol(self, symbol: bytes) -> None:
        if symbol == b"*":
            self._is_ignorable = True
            return
        if self._to_skip:
            self._to_skip -= 1
            return
        self._flush()
        if symbol in (b"\n", b"\r") and self._state.target == "body":
            self._end_paragraph()
        elif symbol in SYMBOLS:
            self._text(SYMBOLS[symbol])

    # -- letters

    def _unicode(self, number: int) -> None:
        self._flush()
        self._to_skip = self._state.skip
        code = number & 0xFFFF
        if 0xD800 <= code < 0xDC00:
            self._high = code
            return
        if 0xDC00 <= code < 0xE000 and self._high:
            code = 0x10000 + ((self._high - 0xD800) << 10) + code - 0xDC00
        self._high = 0
        self._text(chr(code))

    def _byte(self, byte: int) -> None:
        if self._to_skip:
            self._to_skip -= 1
        else:
            self._bytes.append(byte)

    def _plain(self, text: bytes) -> None:
        if self._to_skip:
            text, self._to_skip = text[self._to_skip :], max(0, self._to_skip - len(text))
        self._bytes += text

    def _flush(self) -> None:
        """Decode the collected bytes: a character may take several of them."""
        if self._bytes:
            codepage = self._fonts.get(self._state.font, self._codepage)
            self._text(bytes(self._bytes).decode(codepage, "replace"))
            self._bytes.clear()

    def _text(self, text: str) -> None:
        if self._state.target in FACTS:
            self._facts.setdefault(self._state.target, []).append(text[:1000])
        elif self._state.target == "body" and not self._state.is_deleted:
            if self._is_row_over:
                self._end_table()
            self._writer.text(text)

    def _end_table(self) -> None:
        if self._is_table:
            self._writer.end_table()
        self._is_table = self._is_row_over = False

    def _end_paragraph(self) -> None:
        self._flush()
        if self._heading:
            self._writer.end_heading(self._heading)
        else:
            self._writer.end()


def _is_codec(name: str) -> bool:
    try:
        "".encode(name)
    except LookupError:
        return False
    return True


def read(builder: ExtractionBuilder) -> None:
    """Read the whole file into memory: RTF may skip any number of bytes."""
    content = builder.path.read_bytes()
    if not content.startswith(b"{\\rtf"):
        raise Unreadable("corrupt", "RTF without its beginning")
    RtfReader(builder).read(content)
