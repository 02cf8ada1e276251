"""Packages as other programs write them: types by default, names with backslashes, parts in another order."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable

import pytest

from chaos.corpus.office import HEAD, PACKAGE, SHOW, make_docx, make_odt, make_pptx, make_xlsx, rels, zipped
from chaos.corpus.samples import BY_LANGUAGE
from fairlane.extract.sniff import DOCX, ODT, PPTX, XLSX

from .conftest import Read, Refused, codes

SAMPLE = BY_LANGUAGE["pl"]
Parts = dict[str, str | bytes]


def parts_of(content: bytes) -> Parts:
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        return {name: package.read(name) for name in package.namelist()}


@pytest.mark.parametrize(("make", "kind"), [(make_xlsx, XLSX), (make_docx, DOCX), (make_pptx, PPTX)])
def test_the_type_of_the_main_part_may_be_that_of_its_suffix(read: Read, make: Callable[..., bytes], kind: str) -> None:
    content = make(SAMPLE)
    types = (
        f'{HEAD}<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" ContentType="x"/><Default Extension="XML" '
        f'ContentType="{kind}.main+xml"/><Override PartName="/docProps/core.xml" ContentType="y"/></Types>'
    )
    result = read(zipped(parts_of(content) | {"[Content_Types].xml": types}), "a")
    assert (result.media_type, result.text) == (kind, read(content, "a").text)


def test_the_type_of_the_part_itself_comes_first(read: Read) -> None:
    content = make_docx(SAMPLE)
    types = (
        f'{HEAD}<Types><Override PartName="/WORD/Document.xml" ContentType="{DOCX}.main+xml"/>'
        f'<Default Extension="xml" ContentType="{XLSX}.main+xml"/></Types>'
    )
    assert read(zipped(parts_of(content) | {"[Content_Types].xml": types}), "a").media_type == DOCX


def test_names_of_parts_with_backslashes(read: Read) -> None:
    content = make_xlsx(SAMPLE)
    other = zipped({name.replace("/", "\\"): part for name, part in parts_of(content).items()})
    result = read(other, "a.xlsx")
    assert (result.media_type, result.text) == (XLSX, read(content, "a.xlsx").text)


def test_a_document_whose_mimetype_comes_late(read: Read) -> None:
    parts = parts_of(make_odt(SAMPLE))
    parts["mimetype"] = parts.pop("mimetype")
    result = read(zipped(parts), "a.odt")
    assert (result.media_type, codes(result)) == (ODT, set())
    assert SAMPLE.title in result.text


@pytest.mark.parametrize("content", ["text/plain", "x" * 2_000], ids=["small", "large"])
def test_an_archive_with_a_file_called_mimetype_is_an_archive(read: Read, content: str) -> None:
    assert read(zipped({"a.txt": "x", "mimetype": content}), "a.zip").media_type == "application/zip"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.vsdx", "http://schemas.microsoft.com/visio/2010/relationships/document"),
        ("a.xps", "http://schemas.microsoft.com/xps/2005/06/fixedrepresentation"),
    ],
)
def test_packages_of_other_programs_are_unsupported(refused: Refused, name: str, kind: str) -> None:
    core = (f"{PACKAGE}/relationships/metadata/core-properties", "docProps/core.xml")
    parts: Parts = {"[Content_Types].xml": f"{HEAD}<Types/>", "_rels/.rels": rels(("a", *core), ("b", kind, "x.xml"))}
    failure = refused(zipped(parts | {"x.xml": "<x/>"}), name)
    assert (failure.code, kind.rpartition("/")[2] in failure.detail) == ("unsupported", True)


@pytest.mark.parametrize("ids", ['id="256" r:id="r2"', 'r:id="r2" id="256"'])
def test_slides_are_found_whatever_the_order_of_their_ids(read: Read, ids: str) -> None:
    content = make_pptx(SAMPLE)
    listed = f"{HEAD}<p:presentation {SHOW}><p:sldIdLst><p:sldId {ids}/></p:sldIdLst></p:presentation>"
    result = read(zipped(parts_of(content) | {"ppt/presentation.xml": listed}), "a.pptx")
    assert len(result.pages) == 1
    assert SAMPLE.title in result.text


def test_the_words_of_diagrams_are_read(read: Read) -> None:
    """SmartArt: its words are in a part of their own, beside points that only say how it is drawn."""
    words = "".join(
        f"<d:pt {kind}><d:t><a:p><a:r><a:t>{text}</a:t></a:r></a:p></d:t></d:pt>"
        for kind, text in (
            ('type="doc"', ""),
            ("", "plan"),
            ('type="sibTrans"', "arrow"),
            ('type="node"', "build"),
            ('type="pres"', "x"),
        )
    )
    diagram = (
        f'{HEAD}<d:dataModel xmlns:d="http://schemas.openxmlformats.org/drawingml/2006/diagram" {SHOW}>{words}</d:dataModel>'
    )
    parts: Parts = {
        "ppt/slides/_rels/slide2.xml.rels": rels(("d", "diagramData", "../diagrams/data1.xml")),
        "ppt/diagrams/data1.xml": diagram,
    }
    result = read(zipped(parts_of(make_pptx(SAMPLE)) | parts), "a.pptx")
    assert result.text_of(0).strip() == f"## {SAMPLE.title}\n\n{SAMPLE.paragraph}\n\n- plan\n- build"
