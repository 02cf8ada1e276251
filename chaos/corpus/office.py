"""Writers of small DOCX, PPTX, XLSX, OpenDocument and EPUB files: a ZIP with the parts that every such file has."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from .others import make_xhtml
from .samples import Sample

PACKAGE = "http://schemas.openxmlformats.org/package/2006"
DOCUMENT = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:r="' + DOCUMENT + '"'
SHEET = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="' + DOCUMENT + '"'
SHOW = (
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" xmlns:r="' + DOCUMENT + '"'
)
ODF = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" '
    'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" xmlns:xlink="http://www.w3.org/1999/xlink" '
    'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:meta="urn:oasis:names:tc:opendocument:xmlns:meta:1.0" '
    'xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0" '
    'xmlns:presentation="urn:oasis:names:tc:opendocument:xmlns:presentation:1.0" '
    'xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0" '
    'xmlns:chart="urn:oasis:names:tc:opendocument:xmlns:chart:1.0" '
    'xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0" '
    'xmlns:calcext="urn:org:documentfoundation:names:experimental:calc:xmlns:calcext:1.0" '
    'xmlns:fo="urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0"'
)
Parts = Mapping[str, str | bytes]
HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'


def zipped(parts: Mapping[str, str | bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A ZIP of these parts, the same for the same parts."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as package:
        for name, content in parts.items():
            entry = zipfile.ZipInfo(name, (2026, 3, 1, 9, 30, 0))
            entry.compress_type = zipfile.ZIP_STORED if name == "mimetype" else compression
            package.writestr(entry, content)
    return buffer.getvalue()


def rels(*targets: tuple[str, str, str]) -> str:
    """Relationships: id, kind, target; a target with a scheme is outside."""
    elements = "".join(
        f"<Relationship Id={quoteattr(id)} Type={quoteattr(kind if '/' in kind else f'{DOCUMENT}/{kind}')} "
        f"Target={quoteattr(target)}{' TargetMode=' + quoteattr('External') if '://' in target else ''}/>"
        for id, kind, target in targets
    )
    return f'{HEAD}<Relationships xmlns="{PACKAGE}/relationships">{elements}</Relationships>'


def office(main: str, content_type: str, sample: Sample, parts: Mapping[str, str | bytes]) -> bytes:
    """The parts that every office document has, and its own."""
    core = (
        f'{HEAD}<cp:coreProperties xmlns:cp="{PACKAGE}/metadata/core-properties" xmlns:dc="http://purl.org/dc/elements/1.1/" '
        f'xmlns:dcterms="http://purl.org/dc/terms/"><dc:title>{escape(sample.title)}</dc:title>'
        f"<dc:creator>{escape(sample.author)}</dc:creator><dcterms:created>2026-03-01T09:30:00Z</dcterms:created>"
        "<dcterms:modified>2026-03-02T10:00:00Z</dcterms:modified></cp:coreProperties>"
    )
    core_kind = f"{PACKAGE}/relationships/metadata/core-properties"
    return zipped(
        {
            "[Content_Types].xml": f'{HEAD}<Types xmlns="{PACKAGE}/content-types"><Default Extension="xml" '
            f'ContentType="application/xml"/><Override PartName="/{main}" ContentType="{content_type}"/></Types>',
            "_rels/.rels": rels(("a", "officeDocument", main), ("b", core_kind, "docProps/core.xml")),
            "docProps/core.xml": core,
            **parts,
        }
    )


# -- DOCX


def paragraph(text: str, properties: str = "") -> str:
    return f'<w:p><w:pPr>{properties}</w:pPr><w:r><w:t xml:space="preserve">{escape(text)}</w:t></w:r></w:p>'


def word_table(table: tuple[tuple[str, ...], ...]) -> str:
    rows = "".join("<w:tr>" + "".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in cells) + "</w:tr>" for cells in table)
    return f"<w:tbl>{rows}</w:tbl>"


def word_body(sample: Sample) -> str:
    """Its heading, paragraph, list and table."""
    item = '<w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr>'
    body = paragraph(sample.title, '<w:pStyle w:val="Nagwek1"/>') + paragraph(sample.paragraph)
    return body + "".join(paragraph(text, item) for text in sample.items) + word_table(sample.table)


def make_docx(sample: Sample, body: str | None = None, more: Parts | None = None) -> bytes:
    """A DOCX whose heading style has a name in the writer's language, as Word makes them."""
    body = word_body(sample) if body is None else body
    return office(
        "word/document.xml",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml",
        sample,
        {
            "word/document.xml": f"{HEAD}<w:document {WORD}><w:body>{body}</w:body></w:document>",
            "word/_rels/document.xml.rels": rels(
                ("r1", "styles", "styles.xml"),
                ("r2", "numbering", "numbering.xml"),
                ("r3", "hyperlink", "https://example.org/a"),
            ),
            "word/styles.xml": f'{HEAD}<w:styles {WORD}><w:style w:type="paragraph" w:styleId="Nagwek1">'
            '<w:name w:val="heading 1"/></w:style></w:styles>',
            "word/numbering.xml": f'{HEAD}<w:numbering {WORD}><w:abstractNum w:abstractNumId="7"><w:lvl w:ilvl="0">'
            '<w:numFmt w:val="bullet"/></w:lvl></w:abstractNum><w:abstractNum w:abstractNumId="8"><w:lvl w:ilvl="0">'
            '<w:numFmt w:val="decimal"/></w:lvl></w:abstractNum><w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num>'
            '<w:num w:numId="2"><w:abstractNumId w:val="8"/></w:num></w:numbering>',
            **(more or {}),
        },
    )


# -- PPTX


def _shape(lines: list[tuple[str, int]], role: str = "") -> str:
    paragraphs = "".join(f'<a:p><a:pPr lvl="{level}"/><a:r><a:t>{escape(line)}</a:t></a:r></a:p>' for line, level in lines)
    placeholder = f'<p:ph type="{role}"/>' if role else ""
    return f"<p:sp><p:nvSpPr><p:nvPr>{placeholder}</p:nvPr></p:nvSpPr><p:txBody>{paragraphs}</p:txBody></p:sp>"


def _slide_table(table: tuple[tuple[str, ...], ...]) -> str:
    rows = "".join(
        "<a:tr>"
        + "".join(f"<a:tc><a:txBody><a:p><a:r><a:t>{escape(cell)}</a:t></a:r></a:p></a:txBody></a:tc>" for cell in cells)
        + "</a:tr>"
        for cells in table
    )
    return f"<p:graphicFrame><a:tbl>{rows}</a:tbl></p:graphicFrame>"


def make_pptx(sample: Sample) -> bytes:
    """Two slides, whose parts are numbered against their order, and notes."""
    first = _shape([(sample.title, 0)], "ctrTitle") + _shape([(sample.paragraph, 0)]) + _shape([("17", 0)], "sldNum")
    second = _shape([(text, 1) for text in sample.items]) + _slide_table(sample.table)
    return office(
        "ppt/presentation.xml",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation.main+xml",
        sample,
        {
            "ppt/presentation.xml": f'{HEAD}<p:presentation {SHOW}><p:sldIdLst><p:sldId id="256" r:id="r2"/>'
            '<p:sldId id="257" r:id="r1"/></p:sldIdLst></p:presentation>',
            "ppt/_rels/presentation.xml.rels": rels(("r1", "slide", "slides/slide1.xml"), ("r2", "slide", "slides/slide2.xml")),
            "ppt/slides/slide2.xml": f"{HEAD}<p:sld {SHOW}><p:cSld><p:spTree>{first}</p:spTree></p:cSld></p:sld>",
            "ppt/slides/slide1.xml": f"{HEAD}<p:sld {SHOW}><p:cSld><p:spTree>{second}</p:spTree></p:cSld></p:sld>",
            "ppt/slides/_rels/slide1.xml.rels": rels(("n", "notesSlide", "../notesSlides/notesSlide1.xml")),
            "ppt/notesSlides/notesSlide1.xml": f"{HEAD}<p:notes {SHOW}><p:cSld><p:spTree>"
            f"{_shape([(sample.author, 0)], 'body')}</p:spTree></p:cSld></p:notes>",
        },
    )


# -- XLSX


def make_xlsx(sample: Sample, rows: str | None = None, strings: list[str] | None = None, more_sheets: int = 0) -> bytes:
    """A first sheet with the table, dates and kinds of cells; `rows` replaces what is in it."""
    shared = strings if strings is not None else [cell for cells in sample.table for cell in cells]
    if rows is None:
        rows = '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c></row>'
        rows += '<row r="2"><c r="A2" t="s"><v>2</v></c><c r="B2" t="s"><v>3</v></c></row>'
        rows += '<row r="4"><c r="A4" s="1"><v>46082</v></c><c r="B4" s="2"><v>46082.395833333</v></c></row>'
        rows += '<row r="5"><c r="A5" t="b"><v>1</v></c><c r="B5" t="inlineStr"><is><t>inline</t></is></c></row>'
        rows += '<row r="6"><c r="A6"><f>1+1</f><v>2</v></c><c r="B6" s="3"><v>0.5</v></c></row>'
    names = [sample.title[:20], *(f"sheet {number}" for number in range(more_sheets))]
    listed = "".join(f'<sheet name={quoteattr(name)} sheetId="{n}" r:id="s{n}"/>' for n, name in enumerate(names, start=1))
    sheets = {
        f"xl/worksheets/sheet{n}.xml": f"{HEAD}<worksheet {SHEET}><sheetData>{rows if n == 1 else ''}</sheetData></worksheet>"
        for n, _ in enumerate(names, start=1)
    }
    targets = [(f"s{n}", "worksheet", f"worksheets/sheet{n}.xml") for n, _ in enumerate(names, start=1)]
    targets += [("st", "styles", "styles.xml"), ("sh", "sharedStrings", "sharedStrings.xml")]
    return office(
        "xl/workbook.xml",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml",
        sample,
        {
            "xl/workbook.xml": f"{HEAD}<workbook {SHEET}><sheets>{listed}</sheets></workbook>",
            "xl/_rels/workbook.xml.rels": rels(*targets),
            "xl/styles.xml": f'{HEAD}<styleSheet {SHEET}><numFmts><numFmt numFmtId="165" formatCode="[h]:mm:ss"/>'
            '<numFmt numFmtId="164" formatCode="[$-415]d\\ mmmm\\ yyyy&quot; r.&quot;"/></numFmts><cellXfs><xf numFmtId="0"/>'
            '<xf numFmtId="164"/><xf numFmtId="22"/><xf numFmtId="165"/></cellXfs></styleSheet>',
            "xl/sharedStrings.xml": f"{HEAD}<sst {SHEET}>"
            + "".join(f"<si><r><t>{escape(text)}</t></r><rPh><t>reading</t></rPh></si>" for text in shared)
            + "</sst>",
            **sheets,
        },
    )


# -- OpenDocument


def open_document(kind: str, sample: Sample, content: str, manifest: str = "", more: Parts | None = None) -> bytes:
    """The parts that every OpenDocument file has, and its content: a text, spreadsheet or presentation."""
    return zipped(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "META-INF/manifest.xml": f'{HEAD}<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">'
            f"{manifest}</m:manifest>",
            "meta.xml": f"{HEAD}<office:document-meta {ODF}><office:meta><dc:title>{escape(sample.title)}</dc:title>"
            f"<meta:initial-creator>{escape(sample.author)}</meta:initial-creator>"
            "<meta:creation-date>2026-03-01T09:30:00</meta:creation-date><dc:date>2026-03-02T10:00:00</dc:date>"
            "</office:meta></office:document-meta>",
            "content.xml": f"{HEAD}<office:document-content {ODF}><office:body><office:{kind}>{content}</office:{kind}>"
            "</office:body></office:document-content>",
            **(more or {}),
        }
    )


def odf_table(table: tuple[tuple[str, ...], ...], name: str = "") -> str:
    rows = "".join(
        "<table:table-row>"
        + "".join(f"<table:table-cell><text:p>{escape(cell)}</text:p></table:table-cell>" for cell in cells)
        + "</table:table-row>"
        for cells in table
    )
    return f"<table:table table:name={quoteattr(name)}>{rows}</table:table>"


def odf_list(items: tuple[str, ...]) -> str:
    return (
        "<text:list>"
        + "".join(f"<text:list-item><text:p>{escape(text)}</text:p></text:list-item>" for text in items)
        + "</text:list>"
    )


def odt_content(sample: Sample) -> str:
    """Its heading, paragraph, list and table."""
    content = f'<text:h text:outline-level="1">{escape(sample.title)}</text:h><text:p>{escape(sample.paragraph)}</text:p>'
    return content + odf_list(sample.items) + odf_table(sample.table)


def make_odt(sample: Sample, content: str | None = None, manifest: str = "", more: Parts | None = None) -> bytes:
    return open_document("text", sample, odt_content(sample) if content is None else content, manifest, more)


def make_ods(sample: Sample, sheets: str | None = None, more: Parts | None = None) -> bytes:
    """A sheet with the table, then values of every type and the empty cells that programs write to the end of a sheet."""
    if sheets is None:
        values = (
            'office:value-type="float" office:value="1.1000000000000001"',
            'office:value-type="date" office:date-value="2026-03-01"',
            'office:value-type="date" office:date-value="2026-03-01T09:29:59.999999971"',
            'office:value-type="time" office:time-value="PT36H05M00S"',
            'office:value-type="percentage" office:value="0.07"',
            'office:value-type="currency" office:currency="PLN" office:value="120"',
            'office:value-type="boolean" office:boolean-value="true"',
        )
        row = "".join(f"<table:table-cell {value}><text:p>as shown</text:p></table:table-cell>" for value in values)
        row += '<table:table-cell table:number-columns-repeated="16377"/>'
        empty = '<table:table-cell table:number-columns-repeated="16384"/>'
        sheets = odf_table(sample.table, sample.title).removesuffix("</table:table>")
        sheets += f"<table:table-row>{row}</table:table-row>"
        sheets += f'<table:table-row table:number-rows-repeated="1048573">{empty}</table:table-row></table:table>'
    return open_document("spreadsheet", sample, sheets, more=more)


def frame(content: str, role: str = "") -> str:
    """A frame of a slide."""
    kind = f' presentation:class="{role}"' if role else ""
    return f"<draw:frame{kind}><draw:text-box>{content}</draw:text-box></draw:frame>"


def make_odp(sample: Sample, slides: str | None = None, more: Parts | None = None) -> bytes:
    """Two slides, and notes."""
    if slides is None:
        first = frame(f"<text:p>{escape(sample.title)}</text:p>", "title")
        first += frame(f"<text:p>{escape(sample.paragraph)}</text:p>", "subtitle")
        first += frame("<text:p>17</text:p>", "page-number")
        second = frame(odf_list(sample.items), "outline") + f"<draw:frame>{odf_table(sample.table)}</draw:frame>"
        second += "<presentation:notes>" + frame(f"<text:p>{escape(sample.author)}</text:p>", "notes") + "</presentation:notes>"
        slides = f"<draw:page>{first}</draw:page><draw:page>{second}</draw:page>"
    return open_document("presentation", sample, slides, more=more)


# -- EPUB

CONTAINER = f'{HEAD}<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'


def make_epub(
    sample: Sample, chapters: Mapping[str, str] | None = None, more: Parts | None = None, metadata: str = ""
) -> bytes:
    """A book of chapters; by default the sample's, and its author as another one."""
    if chapters is None:
        chapters = {"text/a b.xhtml": make_xhtml(sample), "text/2.xhtml": make_xhtml(sample, f"<p>{escape(sample.author)}</p>")}
    items = "".join(
        f'<item id="c{number}" href={quoteattr(quote(path))} media-type="application/xhtml+xml"/>'
        for number, path in enumerate(chapters)
    )
    order = "".join(f'<itemref idref="c{number}"/>' for number, _ in enumerate(chapters))
    package = (
        f'{HEAD}<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
        f"<dc:title>{escape(sample.title)}</dc:title><dc:creator>{escape(sample.author)}</dc:creator>"
        '<dc:date>2026-03-01</dc:date><meta property="dcterms:modified">2026-03-02T10:00:00Z</meta>'
        f'{metadata}</metadata><manifest>{items}<item id="cover" href="cover.png" media-type="image/png" '
        f'properties="cover-image"/></manifest><spine>{order}</spine></package>'
    )
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": CONTAINER,
            "OEBPS/book.opf": package,
            **{f"OEBPS/{path}": content for path, content in chapters.items()},
            **(more or {}),
        }
    )
