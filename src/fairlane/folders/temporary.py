"""A temporary folder that is removed however the program ends, kill -9 aside."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def temporary_folder(prefix: str) -> Iterator[str]:
    """Make a folder and remove it afterwards; inside, SIGTERM and SIGHUP raise KeyboardInterrupt as Ctrl-C does."""
    caught = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]  # nohup ignores SIGHUP
    before = {number: signal.signal(number, _interrupt) for number in caught}
    try:
        with tempfile.TemporaryDirectory(prefix=prefix) as folder:
            yield folder
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
