"""Every good file, by name: each format in five languages. The same every time."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from textwrap import wrap

from PIL import Image

from .archives import make_mbox, make_tar, packings
from .office import make_docx, make_epub, make_odp, make_ods, make_odt, make_pptx, make_xlsx, zipped
from .old_office import by_libreoffice, make_doc, make_msg, make_ppt, make_xls, make_xlsb
from .others import (
    HEIC,
    draw,
    make_csv,
    make_eml,
    make_html,
    make_ics,
    make_image,
    make_json,
    make_markdown,
    make_rtf,
    make_svg,
    make_vcf,
    make_xml,
)
from .pdf import make_form, make_pdf, make_scan
from .samples import SAMPLES, Sample

IMAGES = {
    "png": "PNG",
    "jpg": "JPEG",
    "tiff": "TIFF",
    "webp": "WEBP",
    "gif": "GIF",
    "bmp": "BMP",
    "jp2": "JPEG2000",
    "avif": "AVIF",
}


def pdf_lines(sample: Sample) -> list[str]:
    """Lines that fit on a page."""
    return [part for line in sample.lines for part in wrap(line, 90)]


def of_sample(sample: Sample) -> dict[str, bytes]:
    """Every format, saying what the sample says."""
    files = {
        "pdf": make_pdf([pdf_lines(sample), [sample.title]], sample.title, sample.author),
        "docx": make_docx(sample),
        "pptx": make_pptx(sample),
        "xlsx": make_xlsx(sample),
        "odt": make_odt(sample),
        "ods": make_ods(sample),
        "odp": make_odp(sample),
        "xls": make_xls(sample),
        "xlsb": make_xlsb(sample),
        "doc": make_doc(sample),
        "ppt": make_ppt(sample),
        "msg": make_msg(sample),
        "epub": make_epub(sample),
        "svg": make_svg(sample),
        "ics": make_ics(sample),
        "vcf": make_vcf(sample),
        "rtf": make_rtf(sample, 1250 if sample.language == "pl" else 1252),
        "html": make_html(sample),
        "eml": make_eml(sample),
        "md": make_markdown(sample),
        "txt": "\n".join(sample.lines).encode(),
        "csv": make_csv(sample),
        "json": make_json(sample),
        "xml": make_xml(sample),
    }
    files["zip"] = zipped({f"{sample.title}/{name}.{name}": content for name, content in files.items()})
    return {f"{sample.language}.{kind}": content for kind, content in files.items()}


def pictures() -> dict[str, bytes]:
    """Small images in every format, a scan, a TIFF of two pages."""
    image = draw(["Hello"], (160, 60), 24)
    files = {f"picture.{name}": make_image(image, kind) for name, kind in IMAGES.items()}
    if find_spec("pi_heif") is not None:
        files["picture.heic"] = HEIC
    files["scan.pdf"] = make_scan(image)
    files["pages.tiff"] = make_image(image, "TIFF", save_all=True, append_images=[Image.new("L", (50, 80), 200)])
    return files


def archives() -> dict[str, bytes]:
    """A tar, also packed; a packed file, and a mailbox."""
    tar = make_tar({f"{sample.title}.txt": "\n".join(sample.lines).encode() for sample in SAMPLES})
    files = {f"letters.tar.{kind}": content for kind, content in packings(tar).items()}
    files |= {f"letter.txt.{kind}": content for kind, content in packings(SAMPLES[0].paragraph.encode()).items()}
    return files | {"letters.tar": tar, "letters.mbox": make_mbox([*SAMPLES])}


@cache
def corpus() -> dict[str, bytes]:
    """All of them."""
    files: dict[str, bytes] = {}
    for sample in SAMPLES:
        files |= of_sample(sample)
    files |= {name: by_libreoffice()[name] for name in ("letter.doc", "stock.xls", "plans.ppt", "opened.xls")}
    return files | pictures() | archives() | {"form.pdf": make_form()}
