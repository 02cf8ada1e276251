"""Texts of the sample documents: short letters and invoices in five languages."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Language:
    """The texts of one language."""

    code: str
    titles: tuple[str, ...]
    people: tuple[str, ...]
    sentences: tuple[str, ...]
    columns: tuple[str, ...]  # of an invoice: item, quantity, price
    items: tuple[str, ...]
    greeting: str
    closing: str


LANGUAGES = (
    Language(
        "en",
        ("Invoice", "Delivery note", "Meeting minutes", "Order confirmation"),
        ("Grace Whitfield", "Oliver Marsh", "Amira Hassan"),
        (
            "Please find attached the documents for last month.",
            "The goods were delivered on time and in good condition.",
            "We kindly ask you to pay the amount within fourteen days.",
            "The next meeting takes place on Tuesday at half past nine.",
            "Two pages of the contract still need a signature.",
            "Thank you for your order; it will be shipped this week.",
        ),
        ("Item", "Quantity", "Price"),
        ("Paper, 500 sheets", "Envelopes", "Toner", "Scanning service"),
        "Dear all,",
        "Kind regards,",
    ),
    Language(
        "pl",
        ("Faktura", "Protokół odbioru", "Notatka ze spotkania", "Potwierdzenie zamówienia"),
        ("Łucja Wiśniewska", "Paweł Zięba", "Świętosława Żak"),
        (
            "W załączeniu przesyłamy dokumenty za ubiegły miesiąc.",
            "Towar dostarczono w terminie i w należytym stanie.",
            "Prosimy o zapłatę należności w ciągu czternastu dni.",
            "Następne spotkanie odbędzie się we wtorek o wpół do dziesiątej.",
            "Dwie strony umowy wymagają jeszcze podpisu.",
            "Dziękujemy za zamówienie; wyślemy je w tym tygodniu.",
        ),
        ("Pozycja", "Ilość", "Cena"),
        ("Papier, 500 arkuszy", "Koperty", "Toner", "Usługa skanowania"),
        "Szanowni Państwo,",
        "Z wyrazami szacunku,",
    ),
    Language(
        "pt",
        ("Fatura", "Guia de remessa", "Ata da reunião", "Confirmação da encomenda"),
        ("João Conceição", "Inês Magalhães", "Tomás Araújo"),
        (
            "Seguem em anexo os documentos do mês passado.",
            "A mercadoria foi entregue dentro do prazo e em boas condições.",
            "Solicitamos o pagamento do valor no prazo de catorze dias.",
            "A próxima reunião realiza-se na terça-feira às nove e meia.",
            "Duas páginas do contrato ainda precisam de assinatura.",
            "Obrigado pela sua encomenda; será enviada esta semana.",
        ),
        ("Artigo", "Quantidade", "Preço"),
        ("Papel, 500 folhas", "Envelopes", "Toner", "Serviço de digitalização"),
        "Caros senhores,",
        "Com os melhores cumprimentos,",
    ),
    Language(
        "es",
        ("Factura", "Albarán", "Acta de la reunión", "Confirmación del pedido"),
        ("Begoña Núñez", "Íñigo Peña", "María José Ibáñez"),
        (
            "Adjuntamos los documentos correspondientes al mes pasado.",
            "La mercancía se entregó a tiempo y en buen estado.",
            "Le rogamos que abone el importe en un plazo de catorce días.",
            "¿Podría confirmar la próxima reunión, el martes a las nueve y media?",
            "Dos páginas del contrato todavía necesitan una firma.",
            "Gracias por su pedido; se enviará esta semana.",
        ),
        ("Artículo", "Cantidad", "Precio"),
        ("Papel, 500 hojas", "Sobres", "Tóner", "Servicio de digitalización"),
        "Estimados señores:",
        "Un cordial saludo,",
    ),
    Language(
        "de",
        ("Rechnung", "Lieferschein", "Sitzungsprotokoll", "Auftragsbestätigung"),
        ("Jürgen Größl", "Käthe Müller", "Sören Weiß"),
        (
            "Anbei erhalten Sie die Unterlagen für den vergangenen Monat.",
            "Die Ware wurde pünktlich und in gutem Zustand geliefert.",
            "Wir bitten um Überweisung des Betrags innerhalb von vierzehn Tagen.",
            "Die nächste Sitzung findet am Dienstag um halb zehn statt.",
            "Zwei Seiten des Vertrags müssen noch unterschrieben werden.",
            "Vielen Dank für Ihre Bestellung; sie wird diese Woche verschickt.",
        ),
        ("Artikel", "Menge", "Preis"),
        ("Papier, 500 Blatt", "Umschläge", "Toner", "Scan-Dienst"),
        "Sehr geehrte Damen und Herren,",
        "Mit freundlichen Grüßen",
    ),
)


@dataclass(frozen=True)
class Letter:
    """The content of one document, for every format."""

    language: Language
    number: int
    title: str
    author: str
    paragraphs: tuple[str, ...]
    lines: tuple[tuple[str, int, str], ...]  # item, quantity, price


def letter(random: Random, number: int, paragraphs: int) -> Letter:
    """Make a random letter."""
    language = random.choice(LANGUAGES)
    body = tuple(" ".join(random.sample(language.sentences, random.randint(2, 4))) for _ in range(paragraphs))
    lines = tuple(
        (item, random.randint(1, 40), f"{random.randint(1, 300)}.{random.randint(0, 99):02}")
        for item in random.sample(language.items, random.randint(1, len(language.items)))
    )
    return Letter(language, number, random.choice(language.titles), random.choice(language.people), body, lines)
