"""Language detection for the five languages of the catalogs.

Counts the most frequent short words of each language among the first words of a text. The language with the most wins if it
has enough of them and clearly more than any other; letters that only one language has count as a word each. A short or mixed
text, or one in another language, has no language: a wrong answer is worse than none.
"""

from __future__ import annotations

import re
from collections import Counter

WORDS_COUNTED_MAX = 2_000
HITS_LEAST, SHARE_LEAST, LEAD = 3, 0.08, 1.4
_WORD = re.compile(r"[^\W\d_]+")
WORDS = {
    "en": "the of and to in is that it was for on are with as his they at be this have from or had by but what were we when "
    "your can said there which their will would not has been our you please all she he do an if",
    "pl": "i w na z do się nie że to jest o jak za po co tak dla od ale przez czy są być może ich jego jej tego oraz był było "
    "która które który przy tylko lub już pod we ze nas tym proszę pan pani nr dnia",
    "pt": "de o que e do da em um para com não uma os no se na por mais as dos como mas ao ele das à seu sua ou quando muito "
    "nos já eu também só pelo pela até isso ela entre sem mesmo aos nas foi são está você às pelos obrigado",
    "es": "de la que el en y a los se del las un por con no una su para es al lo como más o pero sus le ya este sí porque esta "
    "entre cuando muy sin sobre también me hasta hay donde quien desde todo nos durante fue son está usted gracias",
    "de": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden aus er hat dass "
    "sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur oder aber vor zur bis mehr wir ich",
}
SETS = {language: frozenset(words.split()) for language, words in WORDS.items()}
LETTERS = {"pl": frozenset("ąćęłńśźż"), "pt": frozenset("ãõ"), "es": frozenset("ñ"), "de": frozenset("ßäö")}


def guess(text: str) -> str | None:
    """Return the language of a text, or None."""
    words = Counter(_WORD.findall(text.lower())[:WORDS_COUNTED_MAX])
    scores = {language: float(sum(words[word] for word in known)) for language, known in SETS.items()}
    for language, letters in LETTERS.items():
        scores[language] += sum(count for word, count in words.items() if not letters.isdisjoint(word))
    first, second, *_ = sorted(scores, key=lambda language: -scores[language])
    is_clear = scores[first] >= max(HITS_LEAST, words.total() * SHARE_LEAST) and scores[first] >= scores[second] * LEAD
    return first if is_clear else None
