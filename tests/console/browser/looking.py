"""How tests look at the page: a real Chromium, a person who has signed in, and what that person can see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Error, Page

from tests.api.running import Server

STATIC = Path(str(files("fairlane.console"))) / "static"
LANGUAGES = ("en", "pl", "pt", "es", "de")
MINUS = "\N{MINUS SIGN}"
KIND = "page"  # what the built-in worker does not take, so that a test decides when it goes on
OPERATOR_VIEWS = ("lanes", "customers", "documents", "waits", "what-if", "how")
CUSTOMER_VIEWS = ("mine", "how")
READY = {  # what is there when a view has drawn itself
    "lanes": ".legend > *",
    "customers": "tbody tr",
    "documents": "tbody tr, .nothing",
    "waits": ".charts section",
    "what-if": "form",
    "how": "table",
    "mine": ".files, .nothing",
}

# every text that can be seen or read out, without names that people chose
TEXTS = """() => {
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, inside = node.parentElement;
    if (inside.closest("bdi, code, pre, .brand, noscript, .switches option, time, dd, b, td, svg text, .trend")) continue;
    if (inside.checkVisibility() && node.textContent.trim()) found.push(node.textContent.trim());
  }
  for (const one of document.querySelectorAll("[aria-label], [title], [placeholder]"))
    for (const name of ["aria-label", "title", "placeholder"])
      if (one.hasAttribute(name) && !one.closest("bdi, progress")) found.push(one.getAttribute(name).trim());
  return found;
}"""

# the words that the browser itself has for units, in the language of the page
UNITS = """language => ["second", "minute", "hour", "day", "byte", "kilobyte", "megabyte"].flatMap((unit) =>
  ["long", "short"].flatMap((unitDisplay) => [1, 2, 5, 1.5].map((value) =>
    new Intl.NumberFormat(language, { style: "unit", unit, unitDisplay }).format(value))))"""

# every text that does not fit its place: options with the arrow beside them, what an empty field says, and whatever is cut
CUT = """() => {
  const pen = document.createElement("canvas").getContext("2d"), found = [];
  const wide = (one, text) => {
    const style = getComputedStyle(one);
    pen.font = style.font;
    return pen.measureText(text).width + parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
  };
  for (const one of document.querySelectorAll("select, [placeholder]")) {
    if (!one.checkVisibility()) continue;
    const texts = one.options ? [...one.options].map((option) => option.text) : [one.placeholder], arrow = one.options ? 16 : 0;
    for (const text of texts) if (wide(one, text) + arrow > one.clientWidth + 1) found.push(`no room: ${text}`);
  }
  for (const one of document.querySelectorAll("header *, main *")) {
    if (!one.checkVisibility() || one.closest(".unseen, .skip, .brand, bdi, pre, select, input, svg")) continue;
    const box = one.getBoundingClientRect();
    if (box.width && (box.right > innerWidth + 1 || box.left < -1)) found.push(`outside: ${one.textContent.slice(0, 60)}`);
    if (getComputedStyle(one).overflowX !== "visible" && one.scrollWidth > one.clientWidth + 1)
      found.push(`cut: ${one.textContent.slice(0, 60)}`);
    if (one.matches(".bar *") && one.clientWidth && one.scrollWidth > one.clientWidth + 1)
      found.push(`over its neighbour: ${one.textContent.slice(0, 60)}`);
  }
  return found;
}"""


def catalog(language: str) -> dict[str, Any]:
    """All texts of one language."""
    return cast(dict[str, Any], json.loads((STATIC / "locales" / f"{language}.json").read_text(encoding="utf-8")))


class Looker:
    """A person at a browser; whatever the page complains of is kept."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.complaints: list[str] = []
        page.on("pageerror", self._error)
        page.on("console", self._console)
        page.on("dialog", self._dialog)

    def _error(self, error: Error) -> None:
        self.complaints.append(str(error))

    def _console(self, told: ConsoleMessage) -> None:
        if told.type in ("error", "warning") and "Failed to load resource" not in told.text:
            self.complaints.append(told.text)

    def _dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def sign_in(self, key: str) -> None:
        self.page.goto(self.address)
        self.page.get_by_label("Your key").fill(key)
        self.page.locator("button.main").click()
        self.page.locator("nav a").first.wait_for()

    def open(self, view: str) -> None:
        """Go to a view and wait until it has drawn itself."""
        self.page.evaluate("hash => { location.hash = hash }", f"#/{view}")
        name = view.split("/")[0].split("?")[0]
        self.page.locator(f"main.view-{name}").wait_for()
        self.page.locator(READY[name] if "/" not in view else "main h1, main .nothing").first.wait_for()

    def says(self, text: str, within: str = "main") -> None:
        """Wait until this is to be read."""
        self.page.locator(within).filter(has_text=text).first.wait_for()

    def texts(self) -> list[str]:
        return cast(list[str], self.page.evaluate(TEXTS))

    def units(self, language: str) -> list[str]:
        return cast(list[str], self.page.evaluate(UNITS, language))

    def cut(self) -> list[str]:
        """Every text that does not fit its place."""
        return cast(list[str], self.page.evaluate(CUT))

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@contextmanager
def looking(browser: Browser, server: Server, key: str | None, address: str | None = None, **told: Any) -> Iterator[Looker]:
    """A fresh browser window; with a key somebody has signed in. Another address is that of something between."""
    told = {"locale": "en-US", "viewport": {"width": 1280, "height": 900}} | told
    context: BrowserContext = browser.new_context(**told)
    context.set_default_timeout(40_000)
    try:
        looker = Looker(context.new_page(), address or server.address)
        if key is not None:
            looker.sign_in(key)
        yield looker
        assert looker.complaints == []
    finally:
        context.close()
