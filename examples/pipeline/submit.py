"""A big customer submits its scanned pages, then a bakery two: python submit.py [PAGES]."""

from __future__ import annotations

import io
import sys

from PIL import Image, ImageDraw, ImageFont
from steps import STEPS, URL

from fairlane import Input, Queue

PAGES = int(sys.argv[1]) if len(sys.argv) > 1 else 40


def scan(text: str) -> bytes:
    """Draw a page, as a scanner would make it."""
    page, png = Image.new("L", (520, 160), 255), io.BytesIO()
    ImageDraw.Draw(page).multiline_text((30, 30), text, fill=0, font=ImageFont.load_default(30), spacing=16)
    page.save(png, "PNG")
    return png.getvalue()


with Queue(URL) as queue:
    for customer, kind, count in (("big", "INVOICE", PAGES), ("bakery", "RECEIPT", 2)):
        texts = [f"{kind} No {1000 + number}\nTotal {number + 10}.50 EUR" for number in range(count)]
        files = [Input(content=scan(text), name=f"{kind.lower()}-{number}.png") for number, text in enumerate(texts)]
        receipts = queue.submit_files(customer, files, steps=STEPS)
        print(f"{customer} submitted {count} pages, the last one at priority {receipts[-1].priority}")
