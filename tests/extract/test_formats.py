"""Every format says in every language what was written into it."""

from __future__ import annotations

import hashlib
import io

import pytest
from PIL import Image

from chaos.corpus.all import corpus, of_sample
from chaos.corpus.samples import SAMPLES, Sample
from fairlane.extract.sniff import DOCX, ODP, ODS, ODT, PPTX, XLSX

from .conftest import Read

LANGUAGES = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.language)


def content(sample: Sample, kind: str) -> bytes:
    return of_sample(sample)[f"{sample.language}.{kind}"]


@LANGUAGES
@pytest.mark.parametrize(("kind", "media_type"), [("docx", DOCX), ("odt", ODT), ("html", "text/html"), ("md", "text/markdown")])
def test_formats_with_structure_become_the_same_markdown(read: Read, sample: Sample, kind: str, media_type: str) -> None:
    result = read(content(sample, kind), f"file.{kind}")
    assert result.media_type == media_type
    assert result.text.strip() == sample.markdown
    assert result.title == sample.title
    assert result.author == (sample.author if kind != "md" else None)
    assert result.language == sample.language
    assert result.warnings == ()


@LANGUAGES
def test_pdf(read: Read, sample: Sample) -> None:
    result = read(content(sample, "pdf"), "file.pdf")
    assert result.media_type == "application/pdf"
    assert result.text_of(0).strip().split("\n") == sample.lines  # the paragraph without the breaks of its lines
    assert result.text_of(1) == sample.title
    assert (result.title, result.author, result.language) == (sample.title, sample.author, sample.language)
    assert (result.created, result.modified) == ("2026-03-01T09:30:00+01:00", "2026-03-02T00:00:00")


@LANGUAGES
def test_pptx_in_the_order_of_the_show(read: Read, sample: Sample) -> None:
    result = read(content(sample, "pptx"), "file.pptx")
    first, second = sample.items
    assert result.media_type == PPTX
    assert (result.unit, [page.label for page in result.pages]) == ("slide", ["1", "2"])
    assert result.text_of(0).strip() == f"## {sample.title}\n\n{sample.paragraph}"
    assert result.text_of(1) == f"  - {first}\n  - {second}\n\n{sample.table_markdown}\n\n{sample.author}"


@LANGUAGES
def test_xlsx(read: Read, sample: Sample) -> None:
    result = read(content(sample, "xlsx"), "file.xlsx")
    assert result.media_type == XLSX
    assert (result.unit, [page.label for page in result.pages]) == ("sheet", [sample.title[:20].strip()])
    assert sample.table_markdown in result.text
    assert "| 2026-03-01 | 2026-03-01T09:30:00 |\n| TRUE | inline |\n| 2 | 12:00:00 |\n" in result.text
    assert "reading" not in result.text


@LANGUAGES
def test_odp(read: Read, sample: Sample) -> None:
    result = read(content(sample, "odp"), "file.odp")
    first, second = sample.items
    assert (result.media_type, result.unit, [page.label for page in result.pages]) == (ODP, "slide", ["1", "2"])
    assert result.text_of(0).strip() == f"## {sample.title}\n\n{sample.paragraph}"
    assert result.text_of(1) == f"- {first}\n- {second}\n\n{sample.table_markdown}\n\n{sample.author}"
    assert (result.title, result.author, result.language) == (sample.title, sample.author, sample.language)


@LANGUAGES
def test_ods(read: Read, sample: Sample) -> None:
    result = read(content(sample, "ods"), "file.ods")
    (first, second), (third, fourth) = sample.table
    assert (result.media_type, result.unit, [page.label for page in result.pages]) == (ODS, "sheet", [sample.title])
    assert result.text == (
        f"## {sample.title}\n\n| {first} | {second} |  |  |  |  |  |\n" + "| " + " | ".join(["---"] * 7) + " |\n"
        f"| {third} | {fourth} |  |  |  |  |  |\n"
        "| 1.1 | 2026-03-01 | 2026-03-01T09:30:00 | 36:05:00 | 7% | 120 PLN | TRUE |\n"
    )
    assert (result.title, result.created) == (sample.title, "2026-03-01T09:30:00")


@LANGUAGES
def test_epub(read: Read, sample: Sample) -> None:
    result = read(content(sample, "epub"), "file.epub")
    assert (result.media_type, len(result.pages), result.warnings) == ("application/epub+zip", 2, ())
    assert (result.text_of(0).strip(), result.text_of(1)) == (sample.markdown, sample.author)
    assert (result.title, result.author, result.language) == (sample.title, sample.author, sample.language)
    assert (result.created, result.modified) == ("2026-03-01T00:00:00", "2026-03-02T10:00:00+00:00")


@LANGUAGES
def test_svg(read: Read, sample: Sample) -> None:
    result = read(content(sample, "svg"), "file.svg")
    assert (result.media_type, result.title, result.language) == ("image/svg+xml", sample.title, sample.language)
    assert result.text == "\n\n".join([f"# {sample.title}", *sample.lines[1:]])


@LANGUAGES
def test_calendar(read: Read, sample: Sample) -> None:
    result = read(content(sample, "ics"), "file.ics")
    organizer = f"{sample.author} <office@example.org>"
    assert (result.media_type, result.title, result.author) == ("text/calendar", sample.title, organizer)
    assert result.text == (
        f"## {sample.title}\n\n**When:** 2026-03-01T09:30:00 – 2026-03-01T10:30:00 (Europe/Warsaw)  \n"
        f"**Where:** {sample.items[0]}  \n**Organizer:** {organizer}  \n**Repeats:** FREQ=WEEKLY;COUNT=3\n\n"
        f"{sample.paragraph}\n\n{sample.items[1]}"
    )
    assert result.language == sample.language


@LANGUAGES
def test_contacts(read: Read, sample: Sample) -> None:
    result = read(content(sample, "vcf"), "file.vcf")
    assert (result.media_type, result.title) == ("text/vcard", None)
    assert result.text == (
        f"## {sample.author}\n\n**Organization:** {sample.items[0]}  \n**Phone (work):** +48 600 000 000\n\n"
        f"{sample.paragraph}\n\n## {sample.author}\n\n**E-mail:** office@example.org"
    )
    assert [warning.code for warning in result.warnings] == ["attachments_ignored"]


@LANGUAGES
def test_rtf(read: Read, sample: Sample) -> None:
    result = read(content(sample, "rtf"), "file.rtf")
    first, second = sample.items
    assert result.media_type == "application/rtf"
    assert result.text == f"# {sample.title}\n\n{sample.paragraph}\n\n{first}\n\n{second}\n\n{sample.table_markdown}"
    assert (result.title, result.author, result.created) == (sample.title, sample.author, "2026-03-01T09:30:00")


@LANGUAGES
def test_mail(read: Read, sample: Sample) -> None:
    result = read(content(sample, "eml"), "file.eml")
    assert result.media_type == "message/rfc822"
    assert result.text.startswith(f"# {sample.title}\n\n**From:** {sample.author} <sender@example.org>")
    assert "\n\n".join([sample.paragraph, *sample.items]) in result.text
    assert "<p>" not in result.text
    assert (result.title, result.created) == (sample.title, "2026-03-01T09:30:00+01:00")
    (member,) = result.members
    assert member.name == f"{sample.table[0][1]}.csv"
    assert f"- {member.name} (" in result.text
    assert member.path.read_bytes().decode().splitlines()[0] == ";".join(sample.table[0])


@LANGUAGES
@pytest.mark.parametrize(
    ("kind", "media_type"), [("txt", "text/plain"), ("json", "application/json"), ("xml", "application/xml")]
)
def test_texts_are_kept(read: Read, sample: Sample, kind: str, media_type: str) -> None:
    result = read(content(sample, kind), f"file.{kind}")
    assert result.media_type == media_type
    assert result.language == sample.language
    if kind == "txt":
        assert result.text == "\n".join(sample.lines)
    else:
        assert result.text == f"```{kind}\n{content(sample, kind).decode()}\n```"


@LANGUAGES
def test_csv_becomes_a_table(read: Read, sample: Sample) -> None:
    result = read(content(sample, "csv"), "file.csv")
    assert result.media_type == "text/csv"
    assert result.text == sample.table_markdown + "\n"


@LANGUAGES
def test_zip_gives_its_files(read: Read, sample: Sample) -> None:
    result = read(content(sample, "zip"), "file.zip")
    files = of_sample(sample)
    assert result.media_type == "application/zip"
    assert len(result.members) == len(files) - 1
    for member in result.members:
        kind = member.name.rpartition(".")[2]
        assert member.name == f"{sample.title}/{kind}.{kind}"
        assert member.path.read_bytes() == files[f"{sample.language}.{kind}"]
        assert member.size == len(files[f"{sample.language}.{kind}"])


@pytest.mark.parametrize("name", [name for name in corpus() if name.startswith(("picture", "scan", "pages"))])
def test_pictures(read: Read, name: str) -> None:
    result = read(corpus()[name], name)
    assert result.media_type == {"pdf": "application/pdf", "jpg": "image/jpeg"}.get(
        name[-3:], f"image/{name.rpartition('.')[2]}"
    )
    assert [warning.code for warning in result.warnings] == ["no_text"]
    assert len(result.pages) == (2 if name.startswith("pages") else 1)
    if not name.endswith("pdf"):
        assert (result.width, result.height) == (160, 60)


@pytest.mark.parametrize("name", corpus())
def test_what_holds_for_every_result(read: Read, name: str) -> None:
    content = corpus()[name]
    result = read(content, name)
    assert (result.size, result.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert result.text.encode().decode() == result.text
    assert result.pages[0].start == 0
    assert result.pages[-1].end == len(result.text)
    assert all(page.end == following.start for page, following in zip(result.pages, result.pages[1:], strict=False))
    if result.thumbnail is not None:
        with Image.open(io.BytesIO(result.thumbnail)) as image:
            assert image.format == "PNG"
            assert max(image.size) <= 256
            assert len(set(image.convert("L").tobytes())) > 1, "it shows something"
    else:
        assert result.members, "everything but archives and messages has a picture"
    assert not any(value is result.text for value in result.facts().values())
