"""Values typed into the forms of PDFs: PDFium does not count them as text of the page.

Laws:
- A value is told with the name of its field, in the order of the page. Of boxes to tick only the ticked ones are told.
- Passwords, hidden fields and buttons are left out.
- No action of the form runs, and nothing is filled in or drawn.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from typing import Any

import pypdfium2.raw as pdfium  # type: ignore[import-untyped]

from .builder import ExtractionBuilder
from .failure import one_line

NAME_MAX = 200
PASSWORD_FLAG = 1 << 13
TEXT = pdfium.FPDF_FORMFIELD_TEXTFIELD
TICKED = (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON)
CHOSEN = (pdfium.FPDF_FORMFIELD_COMBOBOX, pdfium.FPDF_FORMFIELD_LISTBOX)
UNLISTED, UNLISTED_KEYS, UNLISTED_KINDS = -1, (b"FT", b"TU", b"T", b"V", b"AS"), ("Tx", "Ch", "Btn")
NOT_TICKED = "Off"
OPTIONS_MAX = 1_000
_INDEX = re.compile(r"\[\d+\]$")


class FormReader:
    """Reads the fields of the pages of one document; to be closed before the document is."""

    def __init__(self, builder: ExtractionBuilder, document: Any) -> None:
        self._builder = builder
        self._environment: Any = None
        if pdfium.FPDF_GetFormType(document) != pdfium.FORMTYPE_NONE:
            self._config = pdfium.FPDF_FORMFILLINFO(version=2)  # PDFium keeps a pointer to it
            self._environment = pdfium.FPDFDOC_InitFormFillEnvironment(document, self._config)

    def close(self) -> None:
        if self._environment:
            pdfium.FPDFDOC_ExitFormFillEnvironment(self._environment)

    def values(self, page: Any) -> list[str]:
        """Return the filled fields of a page, each as a line of a list."""
        lines: dict[str, None] = {}  # a field may be shown several times
        for index in range(pdfium.FPDFPage_GetAnnotCount(page)):
            self._builder.meter.check_time()
            annotation = pdfium.FPDFPage_GetAnnot(page, index)
            if annotation:
                lines |= dict.fromkeys(self._lines(annotation))
                pdfium.FPDFPage_CloseAnnot(annotation)
        return list(lines)

    def _lines(self, annotation: Any) -> Iterator[str]:
        is_hidden = pdfium.FPDFAnnot_GetFlags(annotation) & pdfium.FPDF_ANNOT_FLAG_HIDDEN
        if pdfium.FPDFAnnot_GetSubtype(annotation) != pdfium.FPDF_ANNOT_WIDGET or is_hidden:
            return
        kind = pdfium.FPDFAnnot_GetFormFieldType(self._environment, annotation) if self._environment else UNLISTED
        if kind == UNLISTED:
            name, value = self._unlisted(annotation)
        else:
            name, value = self._name(annotation), self._value(annotation, kind)
        if value.strip():
            yield f"- {name}: " + value.strip().replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\n  ")

    def _unlisted(self, annotation: Any) -> tuple[str, str]:
        """Return name and value of a field that the form does not list; programs that merge files forget to."""
        strings = (self._read(pdfium.FPDFAnnot_GetStringValue, annotation, key) for key in UNLISTED_KEYS)
        kind, label, name, value, state = strings
        flags = ctypes.c_float()
        pdfium.FPDFAnnot_GetNumberValue(annotation, b"Ff", flags)
        is_password = kind == "Tx" and 0 < flags.value < 2**32 and int(flags.value) & PASSWORD_FLAG
        if kind == "Btn":
            value = "" if state == NOT_TICKED else state
        return one_line(label or name, NAME_MAX) or "field", "" if is_password or kind not in UNLISTED_KINDS else value

    def _value(self, annotation: Any, kind: int) -> str:
        if kind in CHOSEN and (chosen := self._chosen(annotation)):
            return ", ".join(chosen)
        flags = pdfium.FPDFAnnot_GetFormFieldFlags(self._environment, annotation)
        if kind not in (TEXT, *TICKED, *CHOSEN) or (kind == TEXT and flags & PASSWORD_FLAG):
            return ""
        value = self._string(pdfium.FPDFAnnot_GetFormFieldValue, annotation)
        return "" if kind in TICKED and value == NOT_TICKED else value

    def _chosen(self, annotation: Any) -> list[str]:
        """Return the labels of the chosen options; they are what a person sees, the value is what a program gets."""
        count = min(pdfium.FPDFAnnot_GetOptionCount(self._environment, annotation), OPTIONS_MAX)
        chosen = [n for n in range(count) if pdfium.FPDFAnnot_IsOptionSelected(self._environment, annotation, n)]
        labels = [self._string(pdfium.FPDFAnnot_GetOptionLabel, annotation, number) for number in chosen]
        return [label for label in labels if label]

    def _name(self, annotation: Any) -> str:
        """Return what people call the field: its description, or the last part of a name such as `form[0].page[0].city[0]`."""
        shown = one_line(self._string(pdfium.FPDFAnnot_GetFormFieldAlternateName, annotation), NAME_MAX)
        if shown:
            return shown
        name = one_line(self._string(pdfium.FPDFAnnot_GetFormFieldName, annotation), NAME_MAX)
        return (_INDEX.sub("", name.rpartition(".")[2]) if name.endswith("]") else name) or "field"

    def _string(self, function: Callable[..., int], annotation: Any, *number: int) -> str:
        return self._read(function, self._environment, annotation, *number)

    def _read(self, function: Callable[..., int], *arguments: Any) -> str:
        """Return a string of PDFium: asked twice, for its length and for its letters."""
        size = function(*arguments, None, 0)
        self._builder.meter.check_text(size // 2)
        if size <= 2:
            return ""
        buffer = ctypes.create_string_buffer(size)
        function(*arguments, ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), size)
        return buffer.raw[: size - 2].decode("utf-16-le", "replace")
