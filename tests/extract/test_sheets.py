"""Numbers, dates and times of sheets, as a reader of the sheet knows them."""

from __future__ import annotations

import pytest

from chaos.corpus.office import make_xlsx
from chaos.corpus.samples import BY_LANGUAGE
from fairlane.extract.number_format import format_kind, serial_datetime, shown_number

from .conftest import Read

SAMPLE = BY_LANGUAGE["en"]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("1.1000000000000001", "1.1"),
        ("-0.30000000000000004", "-0.3"),
        ("159.8694685160085", "159.869468516009"),
        ("1234.5599999999999", "1234.56"),
        ("9.9999999999999995E-7", "0.000001"),
        ("1.0000000000000001E-9", "1E-9"),
        ("1.0000000000000001E+30", "1E+30"),
        ("0.12345678901234", "0.12345678901234"),
        ("12345678901234567890", "12345678901234567890"),
        ("100000000000000000.0", "100000000000000000"),
        ("0.00000000000000000001", "0.00000000000000000001"),
        ("NaN", "NaN"),
        ("Infinity and so on", "Infinity and so on"),
        ("1E+999999999999999999999", "1E+999999999999999999999"),
    ],
)
def test_digits_that_only_the_machine_sees_are_left_out(stored: str, shown: str) -> None:
    assert shown_number(stored) == shown


@pytest.mark.parametrize("style", ["", ' s="0"'])
def test_the_noise_of_fractions_is_no_text(read: Read, style: str) -> None:
    row = f'<row><c{style}><v>1.1000000000000001</v></c><c t="str"><v>1.1000000000000001</v></c></row>'
    assert "| 1.1 | 1.1000000000000001 |" in read(make_xlsx(SAMPLE, row), "a.xlsx").text


@pytest.mark.parametrize(
    ("serial", "format_code", "shown"),
    [
        (46082.5, "h:mm", "2026-03-01T12:00:00"),
        (46082.0, "h:mm:ss AM/PM", "2026-03-01"),
        (0.5, "h:mm", "12:00:00"),
        (1.25, "h:mm", "30:00:00"),
        (46082.5, "[h]:mm", "1105980:00:00"),
        (0.5, "mm:ss", "12:00:00"),
    ],
)
def test_a_date_stays_a_date_where_only_its_time_is_shown(serial: float, format_code: str, shown: str) -> None:
    assert serial_datetime(serial, format_kind(format_code), is_1904=False) == shown
