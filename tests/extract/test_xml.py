"""XML as it is found in the wild: encodings of several bytes a letter, entities that the file declares itself."""

from __future__ import annotations

import pytest

from fairlane.extract import Limits

from .conftest import Read, Refused, codes


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("shift_jis", "日本語の文書"),
        ("euc-jp", "日本語の文書"),
        ("iso-2022-jp", "日本語の文書"),
        ("gb2312", "中文文件"),
        ("gb18030", "中文文件"),
        ("big5", "中文文件"),
        ("euc-kr", "한국어 문서"),
        ("utf-16", "Zażółć"),
        ("utf-16-le", "Zażółć"),
        ("utf-16-be", "Zażółć"),
        ("utf-32", "Zażółć"),
        ("utf-32-be", "Zażółć"),
        ("windows-1250", "Zażółć"),
        ("koi8-r", "документ"),
        ("utf-8-sig", "Zażółć"),
    ],
)
def test_encodings(read: Read, encoding: str, text: str) -> None:
    declared = encoding.removesuffix("-sig").removesuffix("-le").removesuffix("-be")
    content = f'<?xml version="1.0" encoding="{declared}"?>\n<a><b c="{text}">{text * 50}</b></a>'.encode(encoding)
    result = read(content, "a.xml")
    assert (result.media_type, codes(result), result.text.count(text)) == ("application/xml", set(), 51)


def test_an_encoding_that_is_declared_and_not_used(read: Read) -> None:
    assert "żółć" in read('<?xml version="1.0" encoding="UTF-16"?><a>żółć</a>'.encode(), "a.xml").text


def test_bytes_that_the_encoding_lacks_are_corrupt(refused: Refused) -> None:
    assert refused(b'<?xml version="1.0" encoding="shift_jis"?><a>\xff\xff</a>', "a.xml").code == "corrupt"
    assert refused(b'<?xml version="1.0" encoding="nonsense"?><a>x</a>', "a.xml").code == "corrupt"


DECLARED = (
    '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY firm "Łódź &amp; Sons"><!ENTITY full "&firm; Ltd.">'
    '<!ENTITY % part SYSTEM "http://127.0.0.1:9/a.dtd"><!ENTITY logo SYSTEM "logo.png" NDATA png>'
    '<!NOTATION png SYSTEM "png"><!ATTLIST b c CDATA "usual">]><a x="&full;">&firm;<b/>&full;</a>'
)


def test_entities_that_the_file_declares_are_read(read: Read) -> None:
    result = read(DECLARED.encode(), "a.xml")
    assert (result.text, codes(result)) == (f"```xml\n{DECLARED}\n```", set())


@pytest.mark.parametrize(
    ("declared", "body", "code"),
    [
        ('<!ENTITY a "b">', "&c;", "corrupt"),
        ('<!ENTITY a "&b;"><!ENTITY b "x">', "&a;", "corrupt"),
        ('<!ENTITY a SYSTEM "file:///etc/passwd">', "&a;", "corrupt"),
        ('<!ENTITY a SYSTEM "file:///etc/passwd">', '<b c="&a;"/>', "corrupt"),
        (f'<!ENTITY a "{"x" * 10_001}">', "", "corrupt"),
        (f'<!ENTITY a "{"x" * 6_000}"><!ENTITY b "&a;&a;">', "", "corrupt"),
        (f'<!ENTITY {"a" * 201} "x">', "", "corrupt"),
        (f'<!ENTITY a "{"x" * 9_000}">', "&a;" * 50, "too_large"),
        (f'<!ENTITY a "{"x" * 9_000}">', f'<b c="{"&a;" * 50}"/>', "too_large"),
        (f'<!ENTITY ż "{"x" * 9_000}">', "&ż;" * 50, "too_large"),
        (f'<!ENTITY a "{"<b>" * 300}{"</b>" * 300}">', "&a;", "too_large"),
    ],
    ids=[
        *(
            "undeclared",
            "forward",
            "outside",
            "outside in a tag",
            "long",
            "long by others",
            "long name",
            "many",
            "many in a tag",
        ),
        *("many of another letter", "deep"),
    ],
)
def test_limits_of_entities(refused: Refused, declared: str, body: str, code: str) -> None:
    content = f"<!DOCTYPE r [{declared}]><r>{body}</r>"
    limits = Limits(text_max=400_000, ocr_pages_max=0)
    assert refused(content.encode(), "a.xml", limits).code == code
    declared_too = f'<?xml version="1.0" encoding="iso-8859-2"?>{content}'
    assert refused(declared_too.encode("iso-8859-2"), "a.xml", limits).code == code


def test_references_are_counted_also_where_a_block_ends(read: Read, refused: Refused) -> None:
    """Three references are in the first block of 65,536 bytes, the last of them only in part, and many behind it."""
    for offset in range(9):
        head = f'<!DOCTYPE r [<!ENTITY longer "{"x" * 1_000}">]><r>'
        filler = "<b/>".ljust(65_536 - len(head) - 20 + offset)
        content = f"{head}{filler}{'&longer;' * 400}</r>"
        assert len(read(content.encode(), "a.xml", Limits(text_max=400_000, ocr_pages_max=0)).text) > 65_536
        failure = refused(content.encode(), "a.xml", Limits(text_max=399_999, ocr_pages_max=0))
        assert (failure.code, "entities" in failure.detail) == ("too_large", True)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_references_are_counted_in_every_encoding_that_is_guessed(refused: Refused, encoding: str) -> None:
    content = f' <!DOCTYPE r [<!ENTITY a "{"x" * 9_000}">]><r>' + "&a;" * 1_000 + "</r>"
    failure = refused(content.encode(encoding), "a.xml")
    assert (failure.code, "entities" in failure.detail) == ("too_large", True)
