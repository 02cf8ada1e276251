"""Chromium for tests, benchmarks and pictures: which program it is, and how it is started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from .system import chromium_program, why_missing

# What Chromium does beside the page, and nobody needs here; without a network it would try again and again.
QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-gpu", "--disable-sync", "--no-first-run")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a browser without a window, and end it."""
    program = chromium_program()
    if program is None:
        raise SystemExit(why_missing("chromium"))
    options = [*QUIET, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=options)
        try:
            yield browser
        finally:
            browser.close()
