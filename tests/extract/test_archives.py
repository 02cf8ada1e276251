"""Archives beside ZIP: tar, packed files, and what tries to do harm with them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from pathlib import Path

import pytest

from chaos.corpus.archives import Form, entry, make_tar, nested_gzip, packings, tar_of, tar_of_everything, tar_that_lies
from fairlane.extract import Extraction, Limits

from .conftest import Read, Refused, codes

FILES = {"a.txt": b"words of a", "folder/b.txt": b"x" * 1_000, "empty.txt": b"", "large.bin": bytes(range(256)) * 300}
FORMS: dict[str, Form] = {"old": tarfile.USTAR_FORMAT, "GNU": tarfile.GNU_FORMAT, "PAX": tarfile.PAX_FORMAT}
LONG = "folder/" * 30 + "żółć.txt"


def contents(result: Extraction) -> dict[str, bytes]:
    return {member.name: member.path.read_bytes() for member in result.members}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_tar(read: Read, form: Form) -> None:
    result = read(make_tar(FILES, form), "a.tar")
    assert (result.media_type, contents(result), result.warnings) == ("application/x-tar", FILES, ())
    assert "- folder/b.txt (1,000 bytes)\n" in result.text


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
def test_packed_tar(read: Read, kind: str) -> None:
    result = read(packings(make_tar(FILES))[kind], f"a.tar.{kind}")
    assert (contents(result), result.warnings) == (FILES, ())


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_and_letters(read: Read, form: Form) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name in (LONG, "./b.txt"):
            archive.addfile(entry(name, 5), io.BytesIO(b"words"))
    assert contents(read(buffer.getvalue(), "a.tar")) == {LONG: b"words", "b.txt": b"words"}


def test_names_in_old_encodings(read: Read) -> None:
    assert [*contents(read(make_tar({"za\udcbf\udcf3\udcb3\udce6.txt": b"words"}, tarfile.GNU_FORMAT), "a.tar"))] == [
        "zażółć.txt"
    ]


def test_a_tar_of_before_1988_has_no_mark(read: Read) -> None:
    content = bytearray(make_tar(FILES, tarfile.USTAR_FORMAT))
    content[257:265], content[148:156] = bytes(8), b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])
    assert read(bytes(content), "a").media_type == "application/x-tar"


@pytest.mark.parametrize(
    ("name", "member"),
    [("a.txt.gz", "a.txt"), ("picture.SVGZ", "picture.svg"), ("../../a.b.gz", "a.b"), ("invoice", "invoice"), ("", "content")],
)
def test_the_name_of_what_is_packed(read: Read, name: str, member: str) -> None:
    assert contents(read(gzip.compress(b"words"), name)) == {member: b"words"}


def test_the_name_in_a_gzip_counts_where_the_senders_says_nothing(read: Read) -> None:
    buffer = io.BytesIO()
    with gzip.GzipFile("/home/żółć/letter.txt", "wb", fileobj=buffer) as file:
        file.write(b"words")
    assert [*contents(read(buffer.getvalue(), "a"))] == ["letter.txt"]
    assert [*contents(read(buffer.getvalue(), "a.gz"))] == ["a"]


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
def test_packed_pieces_in_a_row_zeros_and_what_does_not_belong_there(read: Read, kind: str) -> None:
    one, two = packings(b"words of one")[kind], packings(b" and two")[kind]
    assert contents(read(one + two, f"a.{kind}")) == {"a": b"words of one and two"}
    assert codes(read(one + bytes(100_000) + two + bytes(512), f"a.{kind}")) == set()
    result = read(one + b"something else", f"a.{kind}")
    assert (contents(result), codes(result)) == ({"a": b"words of one"}, {"damaged_parts"})


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
def test_packed_files_that_are_cut_off_or_damaged_are_corrupt(refused: Refused, kind: str) -> None:
    content = packings(bytes(range(256)) * 1_000)[kind]
    assert refused(content[:-9], f"a.{kind}").code == "corrupt"
    assert refused(content[:200] + bytes(20) + content[220:], f"a.{kind}").code == "corrupt"
    assert refused(packings(b"")[kind], f"a.{kind}").code == "empty"


def test_the_files_before_a_damage_are_kept(read: Read, refused: Refused) -> None:
    noise = b"".join(bytes([n * n % 251, n % 241]) for n in range(60_000))
    content = make_tar({"a.txt": b"words", "b.bin": noise, "c.txt": b"words"}, tarfile.GNU_FORMAT)
    for cut in (content[:3_000], content[:2048] + b"x" * 512 + content[2560:2570], gzip.compress(content)[:-5_000]):
        result = read(cut, "a.tar")
        assert contents(result) == {"a.txt": b"words"}
        assert codes(result) >= {"damaged_parts"}
    assert codes(read(content[:100_000], "a.tar")) == {"damaged_parts", "members_skipped"}
    assert refused(content[:514], "a.tar").code == "corrupt"


def test_a_header_in_the_middle_that_is_damaged(read: Read) -> None:
    content = bytearray(make_tar({"a.txt": b"words", "b.txt": b"words"}, tarfile.GNU_FORMAT))
    content[1024 + 100] ^= 0xFF
    result = read(bytes(content), "a.tar")
    assert (contents(result), codes(result)) == ({"a.txt": b"words"}, {"damaged_parts"})


def test_links_devices_and_names_of_a_tar_do_no_harm(read: Read) -> None:
    result = read(tar_of_everything(), "a.tar")
    assert contents(result) == {"../../etc/passwd": b"harmless", "/etc/cron.d/x": b"harmless"}
    assert [(warning.code, warning.detail) for warning in result.warnings] == [("members_skipped", "hard: a link")]


def test_holes_in_the_attributes_of_a_file_are_skipped_too(read: Read) -> None:
    info = entry("GNUSparseFile.0/holes", 5)
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.name": "holes", "GNU.sparse.realsize": "8000000000"}
    content = info.tobuf(tarfile.PAX_FORMAT) + b"words" + bytes(507) + make_tar({"a.txt": b"words"})
    result = read(content, "a.tar")
    assert (contents(result), codes(result)) == ({"a.txt": b"words"}, {"members_skipped"})


def test_a_size_in_the_attributes_counts(read: Read) -> None:
    info = entry("a.txt", 5)
    info.pax_headers = {"size": "5"}
    content = bytearray(info.tobuf(tarfile.PAX_FORMAT))
    content[1024 + 124 : 1024 + 136] = b"%011o\0" % 0
    content[1024 + 148 : 1024 + 156] = b" " * 8
    content[1024 + 148 : 1024 + 156] = b"%06o\0 " % sum(content[1024:])
    assert contents(read(bytes(content) + b"words" + bytes(507), "a.tar")) == {"a.txt": b"words"}


def test_what_is_said_to_be_large_and_is_not_there(read: Read, refused: Refused) -> None:
    result = read(tar_that_lies(), "a.tar")
    assert (contents(result), codes(result)) == ({"small.txt": b"words"}, {"members_skipped", "damaged_parts"})
    assert refused(tar_of((entry("large", 8**11 - 1), b"words")), "a.tar").code == "too_large"


def test_archives_without_files_are_empty(refused: Refused) -> None:
    folder = (entry("folder/", 0, tarfile.DIRTYPE), b"")
    junk = (entry("._a.txt", 5), b"words")
    assert refused(tar_of(folder, junk), "a.tar").code == "empty"
    assert refused(tar_of((entry("a", 0, tarfile.SYMTYPE, "b"), b"")), "a.tar").code == "corrupt"


def test_limits_of_tars_and_packed_files(read: Read, refused: Refused) -> None:
    content = make_tar({f"{number}.txt": b"words" for number in range(5)})
    packed = gzip.compress(content)
    for archive in (content, packed):
        assert len(read(archive, "a", Limits(members_max=5)).members) == 5
        assert refused(archive, "a", Limits(members_max=4)).code == "too_large"
        assert refused(archive, "a", Limits(unpacked_max=4_000)).code == "too_large"
        assert refused(archive, "a", depth=3).code == "too_large"
    zeros = make_tar({"large.bin": bytes(60_000), "small.txt": b"words"})
    result = read(gzip.compress(zeros), "a.tgz", Limits(size_max=10_000))
    assert (contents(result), codes(result)) == ({"small.txt": b"words"}, {"members_skipped"})
    for packed in (gzip.compress(bytes(60_000)), bz2.compress(bytes(60_000)), lzma.compress(bytes(60_000))):
        assert refused(packed, "a", Limits(size_max=10_000)).code == "too_large"


def test_a_failure_leaves_no_member_behind(refused: Refused, tmp_path: Path) -> None:
    content = make_tar({f"{number}.txt": b"words" for number in range(3)})
    assert refused(content, "a.tar", Limits(members_max=2)).code == "too_large"
    assert [*tmp_path.glob("scratch-*/*")] == []


def test_archives_in_archives_of_all_kinds_end_at_their_depth(read: Read, refused: Refused) -> None:
    content = nested_gzip(6)
    for depth in range(Limits().depth_max):
        (member,) = read(content, "a.gz", depth=depth).members
        content = member.path.read_bytes()
    assert refused(content, "a.gz", depth=Limits().depth_max).code == "too_large"
