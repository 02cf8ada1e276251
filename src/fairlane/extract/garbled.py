"""Whether the letters of a text can be words at all, whatever their language.

For text layers of PDFs: fonts with a wrong table of letters, bad OCR of others, and encodings that were mixed up.

Laws:
- In words of every language with Latin letters vowels and consonants mostly alternate: six to eight neighbours of ten are one
  of each, in ninety languages and in program code too. In shuffled letters it is two to five.
- Every word counts once: a column of units or currencies must not outweigh a page.
- A doubt is no proof: part numbers and base64 look shuffled too. Whoever acts on it looks at the page itself.
"""

from __future__ import annotations

import re
import unicodedata

SAMPLE = 2_000  # characters of a text that are looked at
LETTERS_LEAST = 100  # fewer show nothing
ALTERNATE_LEAST = 0.5  # of the neighbours in words
SIGNS_MOST = 0.55  # of the characters, each run of the same sign counted once
SIGN_KINDS_LEAST = 8  # forms and tables of contents have fewer
ACCENTED_MOST = 0.5  # of the letters: Cyrillic or Greek read as Western letters
MIXED_MOST = 0.02  # of the letters: UTF-8 read as Western letters, as in `Ã³`
_WORD = re.compile(r"[^\W\d_]+")
_RUN = re.compile(r"([^\w\s]|_)(?:\s*\1)+")
_SIGN = re.compile(r"[^\w\s]|_")
_ACCENTED = re.compile("[À-ÖØ-öø-ÿ]")
_MIXED = re.compile("[ÂÃÄÅ][\x80-\xbf‚ƒ„…†‡ˆ‰Š‹Œ‘’“”•–—˜™š›œŸ€ŽžÄ]")
_WITHOUT_MARK = {"ø": "o", "æ": "a", "œ": "o", "ı": "i"}
_CLASSES = {
    code: "v" if _WITHOUT_MARK.get(chr(code), unicodedata.normalize("NFD", chr(code))[0]) in "aeiouy" else "c"
    for code in (*range(0x61, 0x7B), *range(0xDF, 0x250), *range(0x1E00, 0x1F00))
}  # of small Latin letters: vowels and consonants


def is_garbled(text: str) -> bool:
    """Return whether a text can hardly be words, because its letters are not those that were meant."""
    text = text[:SAMPLE]
    words = _WORD.findall(text.lower())
    letters = sum(map(len, words))
    return (
        _is_shuffled(words)
        or _has_many_signs(text, letters)
        or (letters >= LETTERS_LEAST and not text.isascii() and _is_in_a_wrong_encoding(text, letters))
    )


def _is_shuffled(words: list[str]) -> bool:
    """Return whether vowels and consonants do not alternate."""
    long_words = [word for word in set(words) if len(word) > 2]
    classes = " ".join(long_words).translate(_CLASSES)
    neighbours = classes.count("v") + classes.count("c") - len(long_words)
    return neighbours >= LETTERS_LEAST and classes.count("vc") + classes.count("cv") < ALTERNATE_LEAST * neighbours


def _has_many_signs(text: str, letters: int) -> bool:
    if 3 * letters > len(text):
        return False
    text = _RUN.sub(r"\1", text)
    signs = _SIGN.findall(text)
    is_most = len(signs) >= LETTERS_LEAST and len(signs) > SIGNS_MOST * len("".join(text.split()))
    return is_most and len(set(signs)) >= SIGN_KINDS_LEAST


def _is_in_a_wrong_encoding(text: str, letters: int) -> bool:
    return len(_ACCENTED.findall(text)) > ACCENTED_MOST * letters or len(_MIXED.findall(text)) > MIXED_MOST * letters


def agree(text: str, other: str) -> bool:
    """Return whether at least half of the words of a text are in the other one."""
    words, others = (set(re.findall(r"\w{2,}", each.lower())) for each in (text, other))
    return bool(words) and 2 * len(words & others) >= len(words)
