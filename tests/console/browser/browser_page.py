"""A page in a real Chromium, signed in or not, and what a reader sees of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Error, Page

from tests.api.running import Server, until

STATIC = Path(str(files("fairlane.console"))) / "static"
CATALOGS = ("locales", "locales/admin")  # what everybody loads, and what admins load
LANGUAGES = ("en", "pl", "pt", "es", "de")
MINUS = "\N{MINUS SIGN}"
REFRESH_MS = 5000  # no view that refreshes itself waits longer
KIND = "page"  # the built-in worker does not claim it, so a test decides when a document goes on
OPERATOR_VIEWS = ("lanes", "customers", "documents", "workers", "kinds", "waits", "what-if", "how")
ADMIN_VIEWS = ("keys", "audit")  # besides those of operators
CUSTOMER_VIEWS = ("mine", "webhook", "how")
READY = {  # the selector of something that a view has when it is drawn
    "lanes": ".legend > *",
    "customers": "tbody tr",
    "documents": "tbody tr, .empty-state",
    "workers": "tbody tr",
    "kinds": "tbody tr, .empty-state",
    "waits": ".charts section",
    "what-if": "form",
    "how": "table",
    "mine": ".files, .empty-state",
    "webhook": "form.control",
    "keys": "tbody tr, .empty-state",
    "audit": "tbody tr, .empty-state",
}
SERVICE = (Path(__file__).parents[3] / "docs/service.md").read_text(encoding="utf-8")


def documented_actions() -> set[str]:
    """Every action of the audit log: `customer.pause`, then `resume` for the same word before the dot."""
    (row,) = re.findall(r"^\| `action` \| (.+) \|$", SERVICE, re.MULTILINE)
    actions, group = set[str](), ""
    for name in re.findall(r"`([a-z.-]+)`", row):
        group = name.partition(".")[0] if "." in name else group
        actions.add(f"{group}.{name.rpartition('.')[2]}")
    return actions


AUDIT_ACTIONS = sorted(documented_actions())

# every text that can be seen or read out, without the names that users chose
TEXTS = """() => {
  const texts = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, inside = node.parentElement;
    if (inside.closest("bdi, code, pre, .brand, noscript, .switches option, time, dd, b, td, svg text, .trend")) continue;
    if (inside.checkVisibility() && node.textContent.trim()) texts.push(node.textContent.trim());
  }
  for (const element of document.querySelectorAll("[aria-label], [title], [placeholder]"))
    for (const name of ["aria-label", "title", "placeholder"])
      if (element.hasAttribute(name) && !element.closest("bdi, progress, time")) texts.push(element.getAttribute(name).trim());
  return texts;
}"""

# the browser's own words for units, in the language of the page
UNITS = """language => ["second", "minute", "hour", "day", "byte", "kilobyte", "megabyte"].flatMap((unit) =>
  ["long", "short"].flatMap((unitDisplay) => [1, 2, 5, 1.5].map((value) =>
    new Intl.NumberFormat(language, { style: "unit", unit, unitDisplay }).format(value))))"""

# every text that does not fit: options with the arrow beside them, placeholders, and whatever is cut
CUT = """() => {
  const pen = document.createElement("canvas").getContext("2d"), problems = [];
  const widthOf = (element, text) => {
    const style = getComputedStyle(element);
    pen.font = style.font;
    return pen.measureText(text).width + parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
  };
  for (const element of document.querySelectorAll("select, [placeholder]")) {
    if (!element.checkVisibility()) continue;
    const texts = element.options ? [...element.options].map((option) => option.text) : [element.placeholder];
    const arrow = element.options ? 16 : 0;
    for (const text of texts) if (widthOf(element, text) + arrow > element.clientWidth + 1) problems.push(`no room: ${text}`);
  }
  for (const element of document.querySelectorAll("header *, main *")) {
    const isIgnored = element.closest(".visually-hidden, .skip, .brand, bdi, pre, select, input, svg");
    if (isIgnored || !element.checkVisibility()) continue;
    const box = element.getBoundingClientRect();
    const text = element.textContent.slice(0, 60), isTooWide = element.scrollWidth > element.clientWidth + 1;
    if (box.width && (box.right > innerWidth + 1 || box.left < -1)) problems.push(`outside: ${text}`);
    if (getComputedStyle(element).overflowX !== "visible" && isTooWide) problems.push(`cut: ${text}`);
    if (element.matches(".bar *, button, .button, .figure *") && element.clientWidth && isTooWide)
      problems.push(`over its neighbour: ${text}`);
  }
  return problems;
}"""


def catalog(language: str, folders: tuple[str, ...] = CATALOGS) -> dict[str, Any]:
    """All texts of one language."""
    texts: dict[str, Any] = {}
    for folder in folders:
        texts |= json.loads((STATIC / folder / f"{language}.json").read_text(encoding="utf-8"))
    return texts


class BrowserPage:
    """A page of the console; its errors, warnings and dialogs are collected."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.problems: list[str] = []
        page.on("pageerror", self._on_error)
        page.on("console", self._on_console)
        page.on("dialog", self._on_dialog)

    def _on_error(self, error: Error) -> None:
        self.problems.append(str(error))

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.problems.append(message.text)

    def _on_dialog(self, dialog: Dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def sign_in(self, key: str) -> None:
        self.page.goto(self.address)
        self.page.get_by_label("Your key").fill(key)
        self.page.locator("button.main").click()
        self.page.locator("nav a").first.wait_for()

    def open(self, view: str) -> None:
        """Go to a view and wait until it is drawn; a customer's not before the server's picture of the queue holds it."""
        if view.startswith("customers/"):
            is_known = "address => fetch(address).then((response) => response.ok)"
            until(lambda: self.page.evaluate(is_known, f"/page/{view}"), "the customer's first document")
        self.page.evaluate("hash => { location.hash = hash }", f"#/{view}")
        name = view.split("/")[0].split("?")[0]
        self.page.locator(f"main.view-{name}").wait_for()
        self.page.locator(READY[name] if "/" not in view else "main h1, main .empty-state").first.wait_for()
        self.page.locator("main details").evaluate_all("all => all.forEach((details) => { details.open = true })")

    def wait_for_text(self, text: str, within: str = "main") -> None:
        """Wait until this text is shown."""
        self.page.locator(within).filter(has_text=text).first.wait_for()

    def texts(self) -> list[str]:
        return cast(list[str], self.page.evaluate(TEXTS))

    def units(self, language: str) -> list[str]:
        return cast(list[str], self.page.evaluate(UNITS, language))

    def cut_texts(self) -> list[str]:
        """Every text that does not fit."""
        return cast(list[str], self.page.evaluate(CUT))

    def overflow(self) -> int:
        """How many pixels the page is wider than its window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def overflows(self) -> list[int]:
        """The widths at which the page is wider than its window: a phone's and a desk's."""
        found = []
        for width in (390, 1280):
            self.resize(width)
            if self.overflow():
                found.append(width)
        return found

    def resize(self, width: int) -> None:
        """Give the window another width, and wait until charts and lanes have followed."""
        self.page.set_viewport_size({"width": width, "height": 844})
        self.page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")

    def refresh(self) -> None:
        """Let the page's clock jump over the pause before it asks the server again."""
        self.page.clock.fast_forward(REFRESH_MS)


@contextmanager
def open_page(
    browser: Browser, server: Server, key: str | None, address: str | None = None, clock: bool = False, **options: Any
) -> Iterator[BrowserPage]:
    """Open a fresh browser window, signed in if there is a key. Another address is that of a proxy; a `clock` can jump."""
    options = {"locale": "en-US", "viewport": {"width": 1280, "height": 900}} | options
    context: BrowserContext = browser.new_context(**options)
    context.set_default_timeout(40_000)
    if clock:
        context.clock.install()  # it goes as always, until it is made to jump
    try:
        console = BrowserPage(context.new_page(), address or server.address)
        if key is not None:
            console.sign_in(key)
        yield console
        assert console.problems == []
    finally:
        context.close()
