"""Scanned pages in five languages whose words are known, clean and with the defects that scans have.

Laws:
- A page is the same in every run: noise has a seed.
- Only the fonts that come with Fairlane or with the system are used; a page can be made without the latter.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont

from fairlane.extract.thumbnail import font

PAPER_WIDTH, PAPER_HEIGHT = 8.27, 11.69  # inches, A4
MARGIN = 0.9
FONTS = Path("/usr/share/fonts/truetype/liberation")
_WORD = re.compile(r"[^\W_]+")


class Letter(NamedTuple):
    """What is written on the pages of a language."""

    language: str  # as tesseract names it
    paragraphs: tuple[str, ...]
    receipt: tuple[str, ...]

    @property
    def words(self) -> Counter[str]:
        return words_of("\n".join(self.paragraphs))


LETTERS = (
    Letter(
        "eng",
        (
            "Notice of delivery no. 4471",
            "Dear Mrs Whitaker, thank you for your order of 14 March. Eleven of the twelve parcels left our warehouse "
            "on Tuesday and should reach you before the weekend. The last one holds the glass shelves, which the "
            "supplier could not finish in time; we expect them within ten working days and will send them at our own "
            "expense.",
            "Please check every parcel while the driver is still with you. If a box is wet, torn or open, write that "
            "on the sheet before you sign it, and keep the wrapping until our insurer has seen it. Small scratches can "
            "be mended at your house; just call us between eight and half past five.",
            "The invoice comes to 1,284.60 and is due thirty days after the last parcel has arrived. You may pay by "
            "transfer or by card, whichever suits you better. We were glad to work for you and hope that you enjoy "
            "your new kitchen.",
            "Yours sincerely, Oliver Pembroke, customer service",
        ),
        ("CORNER BAKERY", "12 Mill Lane, Shrewsbury", "Receipt 00871", "2 brown loaf 4.80",
         "1 cheese scone 1.95", "3 apple turnover 6.45", "1 oat flat white 3.20", "Subtotal 16.40",
         "Discount 10 % 1.64", "Total 14.76", "Paid by card 14.76", "Thank you for your visit"),
    ),
    Letter(
        "pol",
        (
            "Zawiadomienie o dostawie nr 4471",
            "Szanowna Pani, dziękujemy za zamówienie z 14 marca. Jedenaście z dwunastu paczek opuściło nasz magazyn we "
            "wtorek i powinno dotrzeć do Pani przed końcem tygodnia. W ostatniej są szklane półki, których dostawca "
            "nie zdążył wykończyć; spodziewamy się ich w ciągu dziesięciu dni roboczych i wyślemy je na własny koszt.",
            "Prosimy obejrzeć każdą paczkę, dopóki kierowca jest na miejscu. Jeżeli karton jest mokry, rozdarty albo "
            "otwarty, proszę zapisać to na protokole przed złożeniem podpisu i zachować opakowanie, aż obejrzy je "
            "rzeczoznawca. Drobne rysy usuwamy u klienta; wystarczy zadzwonić między ósmą a wpół do szóstej.",
            "Faktura opiewa na 1284,60 zł i jest płatna w ciągu trzydziestu dni od nadejścia ostatniej paczki. Można "
            "zapłacić przelewem lub kartą. Cieszymy się, że mogliśmy dla Pani pracować, i życzymy radości z nowej "
            "kuchni.",
            "Z poważaniem, Grzegorz Wójcik, obsługa klientów",
        ),
        ("PIEKARNIA POD LIPĄ", "ul. Młyńska 12, Świdnica", "Paragon 00871", "2 chleb żytni 9,80",
         "1 bułka z serem 3,95", "3 szarlotka 18,45", "1 kawa z mlekiem 11,20", "Razem 43,40", "Rabat 10 % 4,34",
         "Do zapłaty 39,06", "Zapłacono kartą 39,06", "Dziękujemy i zapraszamy ponownie"),
    ),
    Letter(
        "por",
        (
            "Aviso de entrega n.º 4471",
            "Exma. Senhora, agradecemos a sua encomenda de 14 de março. Onze dos doze volumes saíram do nosso armazém "
            "na terça-feira e devem chegar antes do fim de semana. O último contém as prateleiras de vidro, que o "
            "fornecedor não conseguiu acabar a tempo; contamos recebê-las dentro de dez dias úteis e enviá-las-emos à "
            "nossa custa.",
            "Verifique cada volume enquanto o motorista ainda aí estiver. Se uma caixa vier molhada, rasgada ou "
            "aberta, escreva-o na guia antes de assinar e guarde a embalagem até à visita do perito. Pequenos riscos "
            "são reparados em sua casa; basta telefonar entre as oito e as cinco e meia.",
            "A fatura é de 1284,60 euros e vence trinta dias após a chegada do último volume. Pode pagar por "
            "transferência ou com cartão, como preferir. Foi um prazer trabalhar para si; esperamos que a nova cozinha "
            "lhe dê muita satisfação.",
            "Com os melhores cumprimentos, João Conceição, apoio ao cliente",
        ),
        ("PADARIA DA PRAÇA", "Rua do Moinho 12, Guimarães", "Recibo 00871", "2 pão de centeio 4,80",
         "1 pão com queijo 1,95", "3 pastel de maçã 6,45", "1 galão 3,20", "Soma 16,40", "Desconto 10 % 1,64",
         "Total a pagar 14,76", "Pago com cartão 14,76", "Obrigado e até à próxima"),
    ),
    Letter(
        "spa",
        (
            "Aviso de entrega n.º 4471",
            "Estimada señora: le agradecemos su pedido del 14 de marzo. Once de los doce bultos salieron de nuestro "
            "almacén el martes y deberían llegar antes del fin de semana. El último contiene los estantes de vidrio, "
            "que el proveedor no pudo acabar a tiempo; los esperamos dentro de diez días hábiles y se los enviaremos "
            "por nuestra cuenta.",
            "Revise cada bulto mientras el conductor siga con usted. Si una caja está mojada, rota o abierta, anótelo "
            "en el albarán antes de firmar y guarde el embalaje hasta que lo haya visto el perito. Los pequeños "
            "arañazos se arreglan en su casa; basta con llamarnos entre las ocho y las cinco y media.",
            "La factura asciende a 1284,60 euros y vence treinta días después de la llegada del último bulto. Puede "
            "pagar por transferencia o con tarjeta, según prefiera. Ha sido un placer trabajar para usted; ojalá "
            "disfrute muchos años de su nueva cocina.",
            "Atentamente, Íñigo Muñoz, atención al cliente",
        ),
        ("PANADERÍA DE LA PEÑA", "Calle del Molino 12, Logroño", "Recibo 00871", "2 pan de centeno 4,80",
         "1 bollo con queso 1,95", "3 hojaldre de manzana 6,45", "1 café con leche 3,20", "Suma 16,40",
         "Descuento 10 % 1,64", "Total a pagar 14,76", "Pagado con tarjeta 14,76", "Gracias y hasta mañana"),
    ),
    Letter(
        "deu",
        (
            "Lieferanzeige Nr. 4471",
            "Sehr geehrte Frau Groß, vielen Dank für Ihre Bestellung vom 14. März. Elf der zwölf Pakete haben unser "
            "Lager am Dienstag verlassen und sollten Sie vor dem Wochenende erreichen. Im letzten sind die Glasböden, "
            "die der Zulieferer nicht rechtzeitig fertigstellen konnte; wir erwarten sie binnen zehn Werktagen und "
            "schicken sie auf unsere Kosten.",
            "Bitte prüfen Sie jedes Paket, solange der Fahrer noch bei Ihnen ist. Ist ein Karton nass, zerrissen oder "
            "offen, so vermerken Sie das vor der Unterschrift auf dem Schein und heben Sie die Hülle auf, bis der "
            "Gutachter sie gesehen hat. Kleine Kratzer beseitigen wir bei Ihnen zu Hause; rufen Sie uns einfach "
            "zwischen acht und halb sechs an.",
            "Die Rechnung beträgt 1284,60 Euro und ist dreißig Tage nach dem Eintreffen des letzten Pakets fällig. Sie "
            "können überweisen oder mit Karte zahlen. Wir haben gern für Sie gearbeitet und wünschen Ihnen viel Freude "
            "an der neuen Küche.",
            "Mit freundlichen Grüßen, Jürgen Löwe, Kundendienst",
        ),
        ("BÄCKEREI AM MÜHLTOR", "Mühlgasse 12, Nördlingen", "Beleg 00871", "2 Roggenbrot 9,80",
         "1 Käsestange 1,95", "3 Apfeltasche 6,45", "1 Milchkaffee 3,20", "Zwischensumme 21,40",
         "Nachlass 10 % 2,14", "Gesamtbetrag 19,26", "Mit Karte bezahlt 19,26", "Vielen Dank für Ihren Besuch"),
    ),
)  # fmt: skip
BY_LANGUAGE = {letter.language: letter for letter in LETTERS}


def words_of(text: str) -> Counter[str]:
    """Count the words and numbers of a text."""
    return Counter(_WORD.findall(text))


def recall(expected: Counter[str], text: str) -> float:
    """Return the share of the expected words that a text has."""
    found = words_of(text)
    return sum(min(count, found[word]) for word, count in expected.items()) / expected.total()


def draw_page(letter: Letter, dpi: int = 200, points: float = 11, face: str = "LiberationSerif-Regular") -> Image.Image:
    """Draw a letter on A4, black on white."""
    paper = Image.new("L", (round(PAPER_WIDTH * dpi), round(PAPER_HEIGHT * dpi)), 255)
    pen, y = ImageDraw.Draw(paper), MARGIN * dpi
    letters = _font(face, points * dpi / 72)
    for paragraph in letter.paragraphs:
        for line in _wrapped(paragraph, letters, (PAPER_WIDTH - 2 * MARGIN) * dpi):
            pen.text((MARGIN * dpi, y), line, fill=0, font=letters)
            y += points * dpi / 72 * 1.35
        y += points * dpi / 72 * 0.8
    return paper


def draw_receipt(letter: Letter, dpi: int = 150, points: float = 8) -> Image.Image:
    """Draw a receipt as a printer on thermal paper makes it: narrow, small, grey on a shaded ground."""
    letters = _font("LiberationMono-Regular", points * dpi / 72)
    width, step = round(2.6 * dpi), points * dpi / 72 * 1.25
    paper = Image.new("L", (width, round(step * (len(letter.receipt) + 4))), 255)
    pen = ImageDraw.Draw(paper)
    for index, line in enumerate(letter.receipt):
        pen.text((0.12 * dpi, step * (index + 2)), line, fill=0, font=letters)
    return _shaded(paper, 70, 150, 60)


def _font(face: str, size: float) -> ImageFont.FreeTypeFont:
    path = FONTS / f"{face}.ttf"
    return ImageFont.truetype(str(path), size) if path.exists() else font().font_variant(size=size)


def _wrapped(text: str, letters: ImageFont.FreeTypeFont, width: float) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if letters.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


# -- what scanners and cameras do


def skewed(degrees: float) -> Callable[[Image.Image], Image.Image]:
    """Turn a page by a few degrees, as a feeder that draws it in askew."""
    return lambda page: page.rotate(degrees, Image.Resampling.BICUBIC, expand=False, fillcolor=255)


def turned(degrees: int) -> Callable[[Image.Image], Image.Image]:
    """Turn a page by quarters."""
    return lambda page: page.rotate(degrees, expand=True)


def pale(page: Image.Image) -> Image.Image:
    """Print pale letters on grey paper, under a lamp at one side."""
    return _shaded(page, 150, 185, 60)


def noisy(page: Image.Image) -> Image.Image:
    """Blur a page slightly and add grain and specks."""
    grain = random.Random(23)
    blurred = page.filter(ImageFilter.GaussianBlur(page.width / 2200))
    noise = Image.frombytes("L", page.size, grain.randbytes(page.width * page.height))
    specks = noise.point(lambda value: 0 if value < 2 else 255)
    return ImageChops.darker(Image.blend(blurred, noise, 0.22), specks)


def _shaded(page: Image.Image, ink: int, paper: int, lamp: int) -> Image.Image:
    """Give a page this ink and paper, and a light that falls off from left to right."""
    toned = page.point(lambda value: ink + (paper - ink) * value // 255)
    light = Image.linear_gradient("L").rotate(90).resize(page.size).point(lambda value: lamp * value // 255)
    return ImageChops.add(toned, light)


DEFECTS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "clean": lambda page: page,
    "skewed by 2°": skewed(2),
    "skewed by -5°": skewed(-5),
    "skewed by 8°": skewed(8),
    "turned by 90°": turned(90),
    "turned by 180°": turned(180),
    "turned by 270°": turned(270),
    "turned by 90°, skewed by 3°": lambda page: turned(90)(skewed(3)(page)),
    "low contrast": pale,
    "noisy": noisy,
}
