"""Number formats of spreadsheets: which show dates or times, and numbers as their readers know them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal

DATE_FORMATS = {*range(14, 18), 22, *range(27, 32), 34, 35, 36, *range(50, 59)}
TIME_FORMATS = {*range(18, 22), 32, 33, 45, 47}
DURATION_FORMAT = 46
SERIAL_MAX = 2_958_466  # the last day of the year 9999
HOURS_BELOW = 367  # a serial number with a format of time below this would be a date in 1900; it is a sum of hours
SHOWN_DIGITS = Context(prec=15, rounding=ROUND_HALF_UP)
INTEGER_BELOW = 10**15  # a spreadsheet knows no more digits
NOISE_LEAST = 17  # characters: sixteen digits and a point
_LITERAL = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?!h+\]|m+\]|s+\])[^\]]*\]', re.IGNORECASE)


def format_kind(code: str) -> str:
    """Return whether a number format shows a `date`, a `time`, a `duration` or a number (the empty string)."""
    letters = set(_LITERAL.sub("", code[:200]).lower().split(";")[0])
    if letters & {"y", "d"}:
        return "date"
    if "[" in letters:  # `[h]` counts hours beyond a day
        return "duration"
    if letters & {"h", "s"}:
        return "time"
    return "date" if "m" in letters and not letters & set("0#?") else ""


def built_in_kind(number: int) -> str:
    """Return the same for a format that every spreadsheet has, by its number."""
    if number == DURATION_FORMAT:
        return "duration"
    return "date" if number in DATE_FORMATS else "time" if number in TIME_FORMATS else ""


def serial_datetime(serial: float, kind: str, is_1904: bool) -> str | None:
    """Convert a serial number to ISO 8601; None if it is out of range."""
    if not 0 <= serial < SERIAL_MAX:
        return None
    if kind == "duration" or (kind == "time" and serial < HOURS_BELOW):
        minutes, seconds = divmod(round(serial * 86_400), 60)
        return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"
    epoch = datetime(1904, 1, 1) if is_1904 else datetime(1899, 12, 30 if serial >= 61 else 31)
    try:
        when = epoch + timedelta(seconds=round(serial * 86_400))
    except OverflowError:
        return None
    return when.date().isoformat() if when.time() == datetime.min.time() else when.isoformat()


def shown_number(stored: str) -> str:
    """Return a number without the noise of binary fractions: `1.1` for `1.1000000000000001`."""
    if len(stored) < NOISE_LEAST or stored.lstrip("-").isdecimal():  # a long integer is a number of something, digit by digit
        return stored
    try:
        value = SHOWN_DIGITS.create_decimal(stored)
    except ArithmeticError:
        return stored
    if not value.is_finite() or len(Decimal(stored).as_tuple().digits) <= SHOWN_DIGITS.prec:
        return stored
    value = value.normalize(SHOWN_DIGITS)
    return f"{value:f}" if -7 < value.adjusted() < 21 else f"{value:E}"


def shown_float(value: float, kind: str, is_1904: bool) -> str:
    """Return a number that is stored in binary, as a date or time if its format is of that kind."""
    if kind and (when := serial_datetime(value, kind, is_1904)) is not None:
        return when
    if value.is_integer() and abs(value) < INTEGER_BELOW:
        return str(int(value))
    return shown_number(repr(value).upper())
