"""Structure of RTF files: headings, lists, links, tables in tables, text boxes, pictures, notes and comments."""

from __future__ import annotations

import pytest

from fairlane.extract import Limits

from .conftest import NO_OCR, Read, Refused

HEAD = "{\\rtf1\\ansi\\ansicpg1250{\\fonttbl{\\f0 Arial;}}"
STYLES = (
    "{\\stylesheet{\\ql Normal;}{\\s1\\sbasedon0\\outlinelevel0 Nag\\'b3\\'f3wek;}{\\s2 heading 2;}{\\s3 Title;}"
    "{\\*\\cs9 heading 3;}{\\s10\\outlinelevel9 text;}}"
)


def rtf(read: Read, body: str, limits: Limits = NO_OCR) -> str:
    return read(f"{HEAD}{body}}}".encode(), "a.rtf", limits).text


def link(code: str, text: str = "here") -> str:
    return f"{{\\field{{\\*\\fldinst {{{code}}}}}{{\\fldrslt {{\\ul {text}}}}}}}"


def item(marker: str, text: str, level: int = 0) -> str:
    return f"{{\\listtext\\pard\\plain {marker}\\tab}}\\pard\\plain\\ls1\\ilvl{level} {text}\\par "


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("\\pard\\s1 a\\par\\pard b", "# a\n\nb"),
        ("\\pard\\s2 a\\par b\\par", "## a\n\n## b"),
        ("\\pard\\s3 a\\par", "# a"),
        ("\\pard\\s9 a\\par", "a"),
        ("\\pard\\s10 a\\par", "a"),
        ("\\pard\\outlinelevel2 a\\par", "### a"),
        ("\\pard\\outlinelevel9 a\\par", "a"),
    ],
)
def test_headings(read: Read, body: str, text: str) -> None:
    assert rtf(read, STYLES + body) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (item("\\'b7", "a") + item("\\'b7", "b", 1) + "\\pard c", "- a\n  - b\n\nc"),
        (item("1.", "a") + item("2.", "b"), "1. a\n1. b"),
        (item("(iv)", "a"), "1. a"),
        (item("o", "a"), "- a"),
        (
            "{\\pntext\\f1\\'b7\\tab}{\\*\\pn\\pnlvlblt{\\pntxtb\\'b7}}\\fi-360 a\\par{\\pntext\\f1 2)\\tab}b\\par c",
            "- a\n1. b\n\nc",
        ),
        ("\\pard\\ls2 a\\par\\pard b", "- a\n\nb"),
        (
            "\\pard\\li360\\fi-360 \\bullet \\tab a\\par\\pard\\li720\\fi-360 1.\\tab b\\par"
            "\\pard\\li360\\fi-360 \\bullet\\tab c\\par",
            "- a\n  1. b\n- c",
        ),
        ("\\pard\\li360\\fi-360 Name:\\tab Grace\\par\\pard\\li360\\fi-360 1.\\par", "Name:\tGrace\n\n1."),
        ("{\\listtext 1.\\tab}\\pard\\s1\\ls1 a\\par", "# a"),
        ("\\trowd\\intbl " + item("1.", "a") + "\\pard\\intbl b\\cell\\row\\pard", "| 1. a b |\n| --- |"),
    ],
)
def test_lists(read: Read, body: str, text: str) -> None:
    assert rtf(read, STYLES + body) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("see " + link('HYPERLINK "https://a.example/b"') + " now", "see [here](https://a.example/b) now"),
        (link('HYPERLINK "https://a.example" \\\\l "x"'), "[here](https://a.example#x)"),
        (link('HYPERLINK \\\\l "x"'), "[here](#x)"),
        (link("PAGE", "7"), "7"),
        (link('HYPERLINK "javascript:x"'), "here"),
        (link('HYPERLINK "https://a.example"', "a " + link("PAGEREF x", "7")), "[a 7](https://a.example)"),
        ("{\\field{\\*\\fldinst{HYPERLINK x}{\\*\\datafield 00d0}}{\\fldrslt here}}", "[here](x)"),
        ("{\\*\\fldinst HYPERLINK x}a{\\fldrslt b", "a[b](x)"),
        ("{\\field{\\*\\fldinst HYPERLINK x}{\\fldrslt a\\par b}}c", "a\n\nbc"),
    ],
)
def test_links(read: Read, body: str, text: str) -> None:
    assert rtf(read, body) == text


NEST = "{\\*\\nesttableprops\\trowd\\cellx1\\nestrow}{\\nonesttables\\par}"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            f"\\trowd a\\intbl\\cell\\pard\\intbl\\itap2 b\\nestcell c\\nestcell{NEST}\\pard\\intbl d\\cell\\row\\pard e",
            "a\n\n| b | c |\n| --- | --- |\n\nd\n\ne",
        ),
        (f"\\pard\\itap2 b\\nestcell{NEST}\\pard\\itap1 \\cell\\row", "| b |\n| --- |"),
        ("\\trowd\\intbl a\\cell\\row\\pard\\par\\trowd\\intbl b\\cell\\row", "| a |\n| --- |\n\n| b |\n| --- |"),
        ("\\trowd\\clmgf\\clmrg\\intbl a\\cell\\cell\\row\\intbl b\\cell c\\cell\\row", "| a |  |\n| --- | --- |\n| b | c |"),
        ("a\\nestcell b", "a b"),
        ("a\\nestrow\\row\\cell b", "ab"),
    ],
)
def test_tables(read: Read, body: str, text: str) -> None:
    assert rtf(read, body) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("a{\\footnote \\pard\\plain {\\super \\chftn} below\\par and more} b", "a[^1] b\n\n[^1]: below and more"),
        ("a{\\footnote\\ftnalt x}b{\\footnote y}", "a[^e1]b[^1]\n\n[^e1]: x\n\n[^1]: y"),
        (
            "a{\\*\\atnid Z}{\\*\\atnauthor Zoe}\\chatn{\\*\\annotation{\\*\\atnref 1}why}b",
            "a[^c1]b\n\n[^c1]: **Comment by Zoe:** why",
        ),
        ("a{\\footnote b{\\footnote c} d}", "a[^1]\n\n[^1]: b c d"),
        ("a{\\footnote \\trowd b\\intbl\\cell c\\cell\\row}", "a[^1]\n\n[^1]: b c"),
        ("\\trowd a{\\footnote b}\\intbl\\cell\\row", "| a[^1] |\n| --- |\n\n[^1]: b"),
        ("a{\\footnote }b{\\footnote c", "ab[^2]\n\n[^2]: c"),
    ],
)
def test_notes_and_comments(read: Read, body: str, text: str) -> None:
    assert rtf(read, body) == text


PROPERTY = "{\\sp{\\sn wzDescription}{\\sv a red chair}}{\\sp{\\sn shapeType}{\\sv 202}}"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            "a {\\*\\shppict{\\pict{\\*\\picprop" + PROPERTY + "}\\pngblip 0123}}{\\nonshppict{\\pict 01}}b",
            "a ![a red chair]()b",
        ),
        (f"{{\\header {PROPERTY}}}b", "b"),
        ("a{\\shp{\\*\\shpinst" + PROPERTY[35:] + "{\\shptxt in the box\\par}}{\\shprslt in the box}}b", "in the box\n\nab"),
        ("a{\\shptxt\\trowd\\intbl c\\cell\\row\\pard}b", "| c |\n| --- |\n\nab"),
        ("a{\\xe{\\v index}}b", "ab"),
    ],
)
def test_pictures_and_text_boxes(read: Read, body: str, text: str) -> None:
    assert rtf(read, body) == text


def test_what_waits_counts_as_text(refused: Refused) -> None:
    notes = "{\\footnote " + "x" * 100 + "}"
    assert refused(f"{HEAD}{notes * 40}}}".encode(), "a.rtf", Limits(text_max=3_000, ocr_pages_max=0)).code == "too_large"


@pytest.mark.parametrize(
    "piece", ["{\\footnote a", "{\\fldrslt ", "{\\shptxt\\trowd ", "\\itap9 ", "\\fldinst ", "{\\s1 a;}", "\\nestrow"]
)
def test_what_never_ends_costs_its_length(read: Read, piece: str) -> None:
    ends = "}" if piece.startswith("{") else ""
    read(f"{HEAD}{{\\stylesheet}}{(piece + ends) * 50_000}}}".encode(), "a.rtf", Limits(seconds_max=8, ocr_pages_max=0))
    read(f"{HEAD}{piece * 200}}}".encode(), "a.rtf")
