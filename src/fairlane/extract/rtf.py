"""RTF extractor.

A tokenizer of groups, control words and bytes. It decodes bytes in the code page of their font and `\\u` characters without
their fallback, and knows which groups are text, links, notes, styles or facts. Of pictures it reads what they show, in the
author's words; objects and everything marked as ignorable are skipped.

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
from .field_code import CODE_MAX, link_target
from .rtf_body import TEXT_LEVEL, RtfBody

_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?[0-9]{1,10})?[ ]?|\\'([0-9a-fA-F]{2})|\\(.)|([{}])|([^\\{}\r\n]+)|[\r\n]+", re.DOTALL
)
DROPPED = {
    *("object", "objdata", "colortbl", "themedata", "listtable", "listoverridetable", "rsidtbl", "generator", "xmlnstbl"),
    *("datastore", "latentstyles", "private", "comment", "operator", "company", "category", "keywords", "doccomm", "subject"),
    *("header", "headerf", "headerl", "headerr", "footer", "footerf", "footerl", "footerr", "revtbl", "filetbl", "bkmkstart"),
    *("bkmkend", "atnid", "nonshppict", "nonesttables", "shprslt", "xe", "tc", "info", "printim", "buptim"),
}
TRANSPARENT = {"shppict", "shpinst", "picprop", "nesttableprops"}  # ignorable groups with something to read inside
FACTS = {"title": "title", "author": "author"}
TIMES = {"creatim": "created", "revtim": "modified"}
# Groups that are not text of the body, and what they are read as.
TARGETS = {name: name for name in ("fonttbl", "stylesheet", "pict", "sn", "sv", "atnauthor", *FACTS, *TIMES)} | {
    "fldinst": "code",
    "listtext": "marker",
    "pntext": "marker",
}
COLLECTED = {"stylesheet", "sn", "sv", "atnauthor", "code", "marker", *FACTS}
PARTS = ("yr", "mo", "dy", "hr", "min", "sec")
SCOPES = {"shptxt", "dptxbxtext", "footnote", "annotation", "fldrslt"}
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
SYMBOLS = {b"~": "\xa0", b"_": "-", b"\\": "\\", b"{": "{", b"}": "}", b"\n": "\n", b"\r": "\n", b"\t": "\t"}
FONTS_MAX = STYLES_MAX = 10_000
COLLECTED_MAX = CODE_MAX  # characters of a title, a field's code, a name


@dataclass(frozen=True)
class GroupState:
    """The settings inside one group, dropped at its end."""

    target: str = "body"  # or `dropped`, or one of TARGETS
    font: int = 0
    skip: int = 1  # how many fallback characters follow a \\u
    is_deleted: bool = False
    scopes: int = 0  # links, notes and text boxes around it


class RtfReader:
    """Reads the tokens of one file."""

    def __init__(self, builder: ExtractionBuilder) -> None:
        self._builder = builder
        self._style_headings: dict[int, int] = {}  # levels, of those styles that are headings
        self._body = RtfBody(builder, self._style_headings)
        self._state = GroupState()
        self._states: list[GroupState] = []
        self._codepage = "cp1252"
        self._fonts: dict[int, str] = {}
        self._bytes = bytearray()
        self._to_skip = 0
        self._high = 0
        self._collected: dict[str, str] = {}  # text of targets that are not the body
        self._datetime: dict[str, int] = {}
        self._is_ignorable = False
        self._style = 0  # the style being defined
        self._link = ""  # where the field leads whose code was read last
        self._author = ""  # of the next comment

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
        self._flush()
        self._body.finish()

    # -- groups

    def _brace(self, brace: bytes) -> None:
        self._flush()
        self._to_skip, self._is_ignorable = 0, False
        if brace == b"{":
            self._states.append(self._state)
            self._builder.meter.check_nesting(len(self._states))
        elif self._states:
            ended, self._state = self._state, self._states.pop()
            if ended.target != self._state.target or ended.target == "stylesheet":
                self._end_target(ended.target)
            while self._body.scopes > self._state.scopes:
                self._body.end()

    def _end_target(self, target: str) -> None:
        if target in TIMES:
            if self._datetime:
                part = {"mo": 1, "dy": 1, "hr": 0, "min": 0, "sec": 0} | self._datetime
                day = f"{part.get('yr', 0):04d}-{part['mo']:02d}-{part['dy']:02d}"
                self._builder.fact(TIMES[target], f"{day}T{part['hr']:02d}:{part['min']:02d}:{part['sec']:02d}")
            self._datetime = {}
            return
        text = "" if target == "sn" else self._collected.pop(target, "")  # a name is kept for its value
        if target in FACTS:
            self._builder.fact(FACTS[target], text)
        elif target == "code":
            self._link = link_target(text)
        elif target == "marker":
            self._body.set_marker(text)
        elif target == "atnauthor":
            self._author = text.strip()
        elif target == "stylesheet":
            self._end_style(text.strip(" ;").lower())
        elif target == "sv" and self._collected.pop("sn", "").strip() == "wzDescription" and not self._state.is_deleted:
            self._body.picture(text)

    def _end_style(self, name: str) -> None:
        """Remember a style that is a heading by its name, where its level was not said."""
        level = 1 if name == "title" else int(name[8]) if re.fullmatch("heading [1-9]", name) else 0
        if level and len(self._style_headings) < STYLES_MAX:
            self._style_headings.setdefault(self._style, level)
        self._style = 0

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
        is_ignorable, self._is_ignorable = self._is_ignorable, False
        if word in TARGETS and (self._state.target in ("body", "pict") or word in FACTS or word in TIMES):
            self._collected.pop(TARGETS[word], None)
            self._state = replace(self._state, target=TARGETS[word])
        elif word in SCOPES and self._state.target == "body":
            self._begin_scope(word)
        elif word in DROPPED or (is_ignorable and word not in TRANSPARENT):
            self._state = replace(self._state, target="dropped")
        elif not self._setting(word, number) and self._state.target == "body":
            self._body.word(word, number)
        return 0

    def _begin_scope(self, word: str) -> None:
        if word == "fldrslt":
            if not self._link:
                return
            self._body.begin("link", self._link)
            self._link = ""
        elif word == "annotation":
            self._body.begin("annotation", self._author)
        else:
            self._body.begin("footnote" if word == "footnote" else "box")
        self._state = replace(self._state, scopes=self._body.scopes)

    def _setting(self, word: str, number: int | None) -> bool:
        """Apply a control word that changes how the following text is read."""
        if word in ("ansicpg", "mac", "pc", "pca"):
            name = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850"}.get(word, f"cp{number}")
            self._codepage = name if _is_codec(name) else self._codepage
        elif word == "f":
            self._state = replace(self._state, font=number or 0)
        elif word == "fcharset":
            if self._state.target == "fonttbl" and len(self._fonts) < FONTS_MAX and (number or 0) in CHARSETS:
                self._fonts[self._state.font] = CHARSETS[number or 0]
        elif word == "uc":
            self._state = replace(self._state, skip=min(max(number or 0, 0), 16))
        elif word == "deleted":
            self._state = replace(self._state, is_deleted=number != 0)
        elif word in PARTS and self._state.target in TIMES:
            self._datetime[word] = min(abs(number or 0), 9999)
        elif self._state.target == "stylesheet":
            self._style_word(word, number or 0)
        else:
            return False
        return True

    def _style_word(self, word: str, number: int) -> None:
        if word == "s":
            self._style = number
        elif word == "outlinelevel" and number < TEXT_LEVEL and len(self._style_headings) < STYLES_MAX:
            self._style_headings[self._style] = number + 1

    def _symbol(self, symbol: bytes) -> None:
        if symbol == b"*":
            self._is_ignorable = True
            return
        if self._to_skip:
            self._to_skip -= 1
            return
        self._flush()
        if symbol in (b"\n", b"\r") and self._state.target == "body":
            self._body.word("par", None)
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
        target = self._state.target
        if target == "body":
            if not self._state.is_deleted:
                self._body.text(text)
        elif target in COLLECTED and len(before := self._collected.get(target, "")) < COLLECTED_MAX:
            self._collected[target] = before + text[:COLLECTED_MAX]


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
