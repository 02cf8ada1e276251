"""Writers of office files and PDFs with python-docx, python-pptx, openpyxl, XlsxWriter and ReportLab.

It runs in an environment that has them: `python -m bench.corpus.office JOBS`, a JSON file with the path, the writer, the seed
and the content of each file. A writer whose library is missing says so, and its files are not written.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from .model import Cell, Document, Heading, Item, Listing, Paragraph, Speech, Table, from_json, shown

REL_HYPERLINK = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/hyperlink"
FONT_FILES = ("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", "/usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf")


def write_docx(path: Path, document: Document, seed: int) -> None:
    """Write with python-docx: lists by style or by numbering of their own, headings by style or by outline level."""
    docx = import_module("docx")
    file = docx.Document()
    randomness = random.Random(seed)
    is_direct, is_outlined = randomness.random() < 0.4, randomness.random() < 0.3
    for block in document.blocks:
        match block:
            case Heading(level, text):
                if is_outlined and level > 1:
                    _outlined(file.add_paragraph(), text, level)
                else:
                    file.add_heading(text, level)
            case Paragraph():
                _docx_paragraph(file, block)
            case Listing(items, is_numbered):
                for item in items:
                    _docx_item(file, item, is_numbered, is_direct)
            case Table(rows):
                _docx_table(file, rows, randomness.choice(("Table Grid", "Light Shading Accent 1", None)))
            case Speech(text):
                file.add_paragraph(text)
    file.core_properties.title = document.title
    file.save(path)


def _element(name: str, **values: str) -> Any:
    element = import_module("docx.oxml").OxmlElement(f"w:{name}")
    for key, value in values.items():
        element.set(import_module("docx.oxml.ns").qn(f"w:{key}"), value)
    return element


def _outlined(paragraph: Any, text: str, level: int) -> None:
    paragraph.add_run(text).bold = True
    paragraph._p.get_or_add_pPr().append(_element("outlineLvl", val=str(level - 1)))


def _docx_paragraph(file: Any, block: Paragraph) -> None:
    paragraph = file.add_paragraph()
    before, _, after = block.text.partition(block.link[0]) if block.link else (block.text, "", "")
    run = paragraph.add_run(before)
    if block.link is not None:
        relation = file.part.relate_to(block.link[1], REL_HYPERLINK, is_external=True)
        link = _element("hyperlink")
        link.set(import_module("docx.oxml.ns").qn("r:id"), relation)
        inner = paragraph.add_run(block.link[0])
        link.append(inner._r)
        paragraph._p.append(link)
        run = paragraph.add_run(after)
    if block.comment:
        file.add_comment(runs=run, text=block.comment, author="Grace", initials="G")


def _docx_item(file: Any, item: Item, is_numbered: bool, is_direct: bool) -> None:
    name = "List Number" if is_numbered else "List Bullet"
    style = name if item.level == 0 else f"{name} {item.level + 1}"
    if not is_direct or item.level:  # the numberings of the template have one level
        file.add_paragraph(item.text, style=style)
        return
    number = file.styles[name].element.pPr.numPr.numId.val
    properties = file.add_paragraph(item.text)._p.get_or_add_pPr()
    numbering = _element("numPr")
    numbering.append(_element("ilvl", val=str(item.level)))
    numbering.append(_element("numId", val=str(number)))
    properties.append(numbering)


def _docx_table(file: Any, rows: tuple[tuple[Cell, ...], ...], style: str | None) -> None:
    table = file.add_table(len(rows), len(rows[0]), style=style)
    for cells, row in zip(table.rows, rows, strict=True):
        for index, value in enumerate(row):
            if value is None:
                cells.cells[index - 1].merge(cells.cells[index])
            else:
                cells.cells[index].text = shown(value)


def write_pptx(path: Path, document: Document, seed: int) -> None:
    """Write with python-pptx: a slide a heading, with the placeholders of its layouts, text boxes and tables."""
    pptx = import_module("pptx")
    deck = pptx.Presentation()
    inches = import_module("pptx.util").Inches
    slide: Any = None
    for block, following in zip(document.blocks, [*document.blocks[1:], None], strict=True):
        match block:
            case Heading(_, text):
                slide = deck.slides.add_slide(deck.slide_layouts[1 if isinstance(following, Listing) else 5])
                slide.shapes.title.text = text
            case Listing(items):
                _fill(slide.placeholders[1].text_frame, items)
            case Paragraph(text, link):
                frame = slide.shapes.add_textbox(inches(1), inches(2), inches(8), inches(2)).text_frame
                _fill_box(frame.paragraphs[0], text, link)
            case Table(rows):
                grid = slide.shapes.add_table(len(rows), len(rows[0]), inches(1), inches(2), inches(8), inches(2)).table
                _fill_grid(grid, rows)
            case Speech(text):
                slide.notes_slide.notes_text_frame.text = text
    deck.save(path)


def _fill_grid(grid: Any, rows: tuple[tuple[Cell, ...], ...]) -> None:
    for row, values in enumerate(rows):
        for column, value in enumerate(values):
            if value is None:
                grid.cell(row, column - 1).merge(grid.cell(row, column))
            else:
                grid.cell(row, column).text = shown(value)


def _fill_box(paragraph: Any, text: str, link: tuple[str, str] | None) -> None:
    before, _, after = text.partition(link[0]) if link else (text, "", "")
    for part in (before, link[0] if link else "", after):
        run = paragraph.add_run()
        run.text = part
        if link and part == link[0]:
            run.hyperlink.address = link[1]


def _fill(frame: Any, items: tuple[Item, ...]) -> None:
    for index, item in enumerate(items):
        paragraph = frame.add_paragraph() if index else frame.paragraphs[0]
        paragraph.text, paragraph.level = item.text, item.level


def _sheets(document: Document) -> list[tuple[str, tuple[tuple[Cell, ...], ...]]]:
    names = [block.text for block in document.blocks if isinstance(block, Heading)]
    return list(zip(names, [block.rows for block in document.blocks if isinstance(block, Table)], strict=True))


def write_openpyxl(path: Path, document: Document, seed: int) -> None:
    """Write with openpyxl; every other workbook begins in a corner of its own."""
    book = import_module("openpyxl").Workbook()
    book.remove(book.active)
    down, right = random.Random(seed).choice(((1, 1), (3, 2)))
    for name, rows in _sheets(document):
        sheet = book.create_sheet(name)
        for y, row in enumerate(rows):
            for x, value in enumerate(row):
                cell = sheet.cell(y + down, x + right, value)
                if hasattr(value, "isoformat"):
                    cell.number_format = ("yyyy-mm-dd", "DD/MM/YYYY", "d mmm yy")[seed % 3]
    book.save(path)


def write_xlsxwriter(path: Path, document: Document, seed: int) -> None:
    """Write with XlsxWriter, with formats of numbers and a header in bold."""
    book = import_module("xlsxwriter").Workbook(str(path), {"default_date_format": ("yyyy-mm-dd", "dd.mm.yy")[seed % 2]})
    bold, money = book.add_format({"bold": True}), book.add_format({"num_format": "#,##0.00"})
    for name, rows in _sheets(document):
        sheet = book.add_worksheet(name)
        for y, row in enumerate(rows):
            for x, value in enumerate(row):
                sheet.write(y, x, value, *([bold] if y == 0 else [money] if isinstance(value, float) and x == 2 else []))
    book.close()


def write_reportlab(path: Path, document: Document, seed: int) -> None:
    """Write a PDF with ReportLab's Platypus, in one column or two."""
    platypus, lib = import_module("reportlab.platypus"), import_module("reportlab.lib.styles")
    randomness = random.Random(seed)
    styles, fonts = lib.getSampleStyleSheet(), _fonts(randomness.random() < 0.5 or document.language in ("uk", "el", "pl"))
    for name in ("Normal", "BodyText", "Heading1", "Heading2", "Heading3"):
        styles[name].fontName = fonts[name.startswith("Heading")]
    styles["BodyText"].alignment = randomness.choice((0, 4))
    lines = randomness.choice(("grid", "rows", "shaded", "none"))
    story: list[Any] = []
    for block in document.blocks:
        match block:
            case Heading(level, text):
                story.append(platypus.Paragraph(_markup(text), styles[f"Heading{level}"]))
            case Paragraph(text, link):
                words = _markup(text)
                if link is not None:
                    target = _markup(link[1]).replace('"', "&quot;")
                    words = words.replace(_markup(link[0]), f'<a href="{target}" color="blue">{_markup(link[0])}</a>', 1)
                story.append(platypus.Paragraph(words, styles["BodyText"]))
            case Listing(items, is_numbered):
                story.append(_reportlab_list(platypus, styles["BodyText"], list(items), 0, is_numbered))
            case Table(rows):
                story += [_reportlab_table(platypus, rows, lines, fonts), platypus.Spacer(1, 8)]
            case Speech():
                pass
    _build(platypus, path, document, story, columns=2 if randomness.random() < 0.3 else 1)


def _build(platypus: Any, path: Path, document: Document, story: list[Any], columns: int) -> None:
    width, height = import_module("reportlab.lib.pagesizes").A4
    if columns == 1:
        platypus.SimpleDocTemplate(str(path), title=document.title).build(story)
        return
    gap, margin = 20, 50
    each = (width - 2 * margin - gap) / 2
    frames = [
        platypus.Frame(margin + n * (each + gap), margin, each, height - 2 * margin, leftPadding=0, rightPadding=0)
        for n in range(2)
    ]
    template = platypus.BaseDocTemplate(str(path), title=document.title)
    template.addPageTemplates([platypus.PageTemplate(frames=frames)])
    template.build(story)


def _markup(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _fonts(is_wide: bool) -> tuple[str, str]:
    """Return the fonts of text and of headings; the wide ones have Greek and Cyrillic letters."""
    if not is_wide or not all(Path(file).exists() for file in FONT_FILES):
        return "Helvetica", "Helvetica-Bold"
    metrics, ttfonts = import_module("reportlab.pdfbase.pdfmetrics"), import_module("reportlab.pdfbase.ttfonts")
    for name, file in zip(("Wide", "Wide-Bold"), FONT_FILES, strict=True):
        metrics.registerFont(ttfonts.TTFont(name, file))
    return "Wide", "Wide-Bold"


def _reportlab_list(platypus: Any, style: Any, items: list[Item], level: int, is_numbered: bool) -> Any:
    parts: list[list[Any]] = []
    while items and items[0].level >= level:
        if items[0].level > level:
            parts[-1].append(_reportlab_list(platypus, style, items, level + 1, is_numbered))
        else:
            parts.append([platypus.Paragraph(_markup(items.pop(0).text), style)])
    flowables = [platypus.ListItem(part) for part in parts]
    return platypus.ListFlowable(flowables, bulletType="1" if is_numbered else "bullet", bulletFontName=style.fontName)


def _reportlab_table(platypus: Any, rows: tuple[tuple[Cell, ...], ...], lines: str, fonts: tuple[str, str]) -> Any:
    colors = import_module("reportlab.lib.colors")
    commands: list[Any] = [("FONTNAME", (0, 0), (-1, -1), fonts[0]), ("FONTNAME", (0, 0), (-1, 0), fonts[1])]
    for y, row in enumerate(rows):
        commands += [("SPAN", (x - 1, y), (x, y)) for x, value in enumerate(row) if value is None]
        if lines == "shaded" and y % 2 == 0:
            commands.append(("BACKGROUND", (0, y), (-1, y), colors.lightgrey))
    if lines == "grid":
        commands.append(("GRID", (0, 0), (-1, -1), 0.5, colors.black))
    elif lines == "rows":
        commands.append(("LINEBELOW", (0, 0), (-1, -1), 0.5, colors.grey))
    return platypus.Table([[shown(cell) for cell in row] for row in rows], style=platypus.TableStyle(commands))


WRITERS: dict[str, Callable[[Path, Document, int], None]] = {
    "python-docx": write_docx,
    "python-pptx": write_pptx,
    "openpyxl": write_openpyxl,
    "xlsxwriter": write_xlsxwriter,
    "reportlab": write_reportlab,
}


def main(jobs: Path) -> None:
    """Write the files; print each writer whose library is missing once."""
    missing: set[str] = set()
    for job in json.loads(jobs.read_text(encoding="utf-8")):
        try:
            WRITERS[job["writer"]](Path(job["path"]), from_json(job["document"]), job["seed"])
        except ModuleNotFoundError as error:
            missing.add(f"{job['writer']}: {error}")
    print("\n".join(sorted(missing)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
