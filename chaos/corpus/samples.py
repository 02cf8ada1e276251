"""One short document in five languages, with all letters that make trouble."""

from __future__ import annotations

from typing import NamedTuple


class Sample(NamedTuple):
    """A heading, a paragraph, a list, a table."""

    language: str
    title: str
    author: str
    paragraph: str
    items: tuple[str, str]
    table: tuple[tuple[str, str], tuple[str, str]]

    @property
    def lines(self) -> list[str]:
        return [self.title, self.paragraph, *self.items, *(" ".join(cells) for cells in self.table)]

    @property
    def table_markdown(self) -> str:
        first, second = self.table
        return f"| {first[0]} | {first[1]} |\n| --- | --- |\n| {second[0]} | {second[1]} |"

    @property
    def markdown(self) -> str:
        """What every format with structure must turn into."""
        first, second = self.items
        return f"# {self.title}\n\n{self.paragraph}\n\n- {first}\n- {second}\n\n{self.table_markdown}"


SAMPLES = (
    Sample(
        "en",
        "Delivery note for the spring order",
        "Zoë O'Brien",
        "The goods were sent on Monday, and they should be with you by the end of the week. "
        "Please check that all of them have arrived, and write to us if something is missing.",
        ("two boxes of paper", "a café table – 120 €"),
        (("item", "price"), ("chair", "45.50")),
    ),
    Sample(
        "pl",
        "Zażółć gęślą jaźń: faktura",
        "Łucja Żółkiewska",
        "Towar został wysłany w poniedziałek i powinien być u Państwa do końca tygodnia. Prosimy sprawdzić, czy wszystko "
        "dotarło, i napisać do nas, jeśli czegoś brakuje. Źle opisane paczki są u nas już od środy.",
        ("dwa kartony papieru", "krzesło dębowe"),
        (("nazwa", "należność"), ("stół", "120,00 zł")),
    ),
    Sample(
        "pt",
        "Avaliação e função: encomenda de verão",
        "João Gonçalves",
        "A mercadoria não foi enviada na segunda-feira, mas está à sua disposição até ao fim da semana. Verifique se as "
        "caixas são as que você pediu e escreva-nos quando faltar alguma coisa.",
        ("duas caixas de papel", "uma mesa de chá"),
        (("artigo", "preço"), ("pão de ló", "7,90")),
    ),
    Sample(
        "es",
        "¿Cuándo llega el pedido del año?",
        "Begoña Núñez",
        "La mercancía se envió el lunes y debería llegar a su casa antes del fin de semana. ¡Compruebe que todo está y "
        "escríbanos si falta algo! Mañana también hay un envío por la tarde para los niños.",
        ("dos cajas de papel", "una cigüeña pequeña"),
        (("artículo", "precio"), ("piña", "3,20")),
    ),
    Sample(
        "de",
        "Lieferschein für die größere Übergabe",
        "Jürgen Weiß",
        "Die Ware wurde am Montag verschickt und sollte bis zum Ende der Woche bei Ihnen sein. Bitte prüfen Sie, ob alles "
        "angekommen ist, und schreiben Sie uns, wenn etwas fehlt. Für Rückfragen sind wir täglich da.",
        ("zwei Kisten Papier", "fünf Äpfel und Öl"),
        (("Stück", "Größe"), ("Stühle", "übergroß")),
    ),
)
BY_LANGUAGE = {sample.language: sample for sample in SAMPLES}
