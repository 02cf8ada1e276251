"""Writers of tars, of packed files and of mailboxes, and hostile ones of them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Mapping
from typing import Literal

from .others import make_eml
from .samples import Sample

MILLION = 1_000_000
Form = Literal[0, 1, 2]


def make_tar(files: Mapping[str, bytes], form: Form = tarfile.PAX_FORMAT) -> bytes:
    """A tar of these files, the same for the same files."""
    return tar_of(*((entry(name, len(content)), content) for name, content in files.items()), form=form)


def entry(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    """The header of an entry."""
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, target
    return info


def tar_of(*entries: tuple[tarfile.TarInfo, bytes], form: Form = tarfile.GNU_FORMAT) -> bytes:
    """A tar of headers and contents, which need not fit each other."""
    pieces = [info.tobuf(form) + content + bytes(-len(content) % 512) for info, content in entries]
    return b"".join(pieces) + bytes(1024)


def packings(content: bytes) -> dict[str, bytes]:
    """What gzip, bzip2 and xz make of a file, by suffix."""
    return {
        "gz": gzip.compress(content, mtime=0),
        "bz2": bz2.compress(content),
        "xz": lzma.compress(content),
    }


def make_mbox(samples: list[Sample]) -> bytes:
    """A mailbox with a message for each sample."""
    return b"\n".join(b"From sender@example.org Sun Mar  1 09:30:00 2026\n" + make_eml(sample) for sample in samples)


# -- hostile ones


def gzip_of_zeros(unpacked: int = 2_000 * MILLION, start: bytes = b"") -> bytes:
    """A stream of zeros, deflated only once: after a full flush nothing refers to what was before."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(bytes(MILLION)) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + again * (unpacked // MILLION)


def nested_gzip(depth: int) -> bytes:
    content = b"words at the bottom"
    for _ in range(depth):
        content = gzip.compress(content, mtime=0)
    return content


def tar_of_everything() -> bytes:
    """Names that would be dangerous if they were used, links, devices, pipes, a file with holes, and two that are read."""
    harmless = [(entry(name, 8), b"harmless") for name in ("../../etc/passwd", "/etc/cron.d/x")]
    special = [
        (entry("hard", 8_000_000, tarfile.LNKTYPE, "/etc/passwd"), b""),
        (entry("soft", 0, tarfile.SYMTYPE, "../../etc/shadow"), b""),
        (entry("disk", 0, tarfile.BLKTYPE), b""),
        (entry("zero", 0, tarfile.CHRTYPE), b""),
        (entry("pipe", 0, tarfile.FIFOTYPE), b""),
        (entry("folder/", 0, tarfile.DIRTYPE), b""),
        (sparse("holes"), b"x" * 512),
    ]
    return tar_of(harmless[0], *special, harmless[1])


def sparse(name: str, size: int = 512, real: int = 8**11 - 1) -> tarfile.TarInfo:
    """A file that says it is 8 GB, nearly all of them holes."""
    info = entry(name, size, tarfile.GNUTYPE_SPARSE)
    info.linkname = ""
    return _Sparse.of(info, real)


class _Sparse(tarfile.TarInfo):
    """A header with the fields of a file with holes, of which `tarfile` writes none."""

    real = 0

    @classmethod
    def of(cls, info: tarfile.TarInfo, real: int) -> _Sparse:
        header = cls(info.name)
        header.size, header.type, header.real = info.size, info.type, real
        return header

    def tobuf(self, *arguments: object, **options: object) -> bytes:
        content = bytearray(super().tobuf(*arguments, **options))  # type: ignore[arg-type]
        content[386:410] = b"%011o\0%011o\0" % (0, 512)
        content[483:495] = b"%011o\0" % self.real
        content[148:156] = b" " * 8
        content[148:156] = b"%06o\0 " % sum(content[:512])
        return bytes(content)


def tar_that_lies(size: int = 8**11 - 1) -> bytes:
    """A file of 8 GB, of which the archive holds none."""
    return tar_of((entry("small.txt", 5), b"words"), (entry("large.txt", size), b""))


def long_name_bomb(size: int = 300 * MILLION) -> bytes:
    """A name of 300 MB, packed."""
    header = entry("././@LongLink", size, tarfile.GNUTYPE_LONGNAME).tobuf(tarfile.GNU_FORMAT)
    return gzip_of_zeros(size, header)


def tar_of_folders(count: int = 150_000) -> bytes:
    return gzip.compress(entry("folder/", 0, tarfile.DIRTYPE).tobuf(tarfile.GNU_FORMAT) * count, 1)


def many_streams(count: int = 200_000) -> bytes:
    return gzip.compress(b"", mtime=0) * count


def greedy_xz() -> bytes:
    """An xz that wants 1.5 GB to be unpacked."""
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 8 << 20}]
    content = bytearray(lzma.compress(b"words" * 100, filters=filters))
    position = content.index(b"\x21\x01", 12) + 2  # the size of the dictionary, in the header of the block
    content[position] = 40
    start, length = 12, (content[12] + 1) * 4
    content[start + length - 4 : start + length] = zlib.crc32(content[start : start + length - 4]).to_bytes(4, "little")
    return bytes(content)
