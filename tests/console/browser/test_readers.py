"""The page is readable in five languages, light and dark, wide and narrow, and with a screen reader."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.api.running import Server

from .browser_page import ADMIN_VIEWS, CUSTOMER_VIEWS, KIND, LANGUAGES, OPERATOR_VIEWS, BrowserPage, catalog, open_page
from .test_stories import drain

AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
COUNTING = """() => {
  const real = requestAnimationFrame;
  window.framesRequested = 0;
  window.requestAnimationFrame = (work) => (window.framesRequested++, real(work));
}"""
COLOUR_RULES = ("color-contrast", "link-in-text-block")  # those that see colours; for all others, light and dark are the same
WIDTHS = (390, 1120, 1280)
NAMES = {"fairlane"}
# how much the edge of a control stands out from what is in it, as WCAG counts contrast
EDGE_CONTRAST = """(selector) => {
  const style = getComputedStyle(document.querySelector(selector));
  const light = (colour) => {
    const parts = colour.match(/\\d+/g).slice(0, 3).map((part) => part / 255);
    const [red, green, blue] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
  };
  const [edge, ground] = [light(style.borderTopColor), light(style.backgroundColor)];
  return Math.max(edge, ground) / Math.min(edge, ground);
}"""
LANGUAGE_NAMES = ("English", "Polski", "Português", "Español", "Deutsch")


def words(texts: Iterable[str]) -> set[str]:
    """Words of three letters or more, in small letters."""
    return {word.casefold() for text in texts for word in re.findall(r"[^\W\d_]{3,}", re.sub(r"\{\w+\}", " ", text))}


def vocabulary(language: str) -> set[str]:
    """Every word of a catalog."""
    return words(form for text in catalog(language).values() for form in (text.values() if isinstance(text, dict) else [text]))


class Seen(NamedTuple):
    """What a view shows in one language."""

    texts: list[str]
    problems: dict[int, list[str]]  # by the width of the window: what does not fit


def look(console: BrowserPage, view: str) -> Seen:
    """Open a view; collect what it says, and what does not fit at each width."""
    console.open(view)
    problems = {}
    for width in WIDTHS:
        console.resize(width)
        problems[width] = console.cut_texts() + [f"too wide by {pixels}" for pixels in [console.overflow()] if pixels]
    return Seen(console.texts(), problems)  # at the last width, the widest


@pytest.fixture(scope="module")
def seen(browser: Browser, server: Server) -> dict[tuple[str, str], Seen]:
    """Every view in every language, by the language and the view; and what the browser itself says there, as the view ""."""
    customer = "a reader of five languages"
    receipts, name = server.queue.submit_many(customer, [1] * 30, kind=KIND), quote(customer)
    lists = [view for view in (*OPERATOR_VIEWS, *ADMIN_VIEWS) if view != "documents"]
    of_staff = [*lists, f"documents?customer={name}", f"customers/{name}", f"documents/{receipts[-1].id}"]
    of_customer = [*CUSTOMER_VIEWS, f"mine/{receipts[0].id}"]
    found = {}
    for key, views in ((server.admin, of_staff), (server.key(customer), of_customer)):
        with open_page(browser, server, key) as console:
            for language in LANGUAGES:
                console.page.locator(".switches select").select_option(language)
                console.page.wait_for_function("language => document.documentElement.lang === language", arg=language)
                found[language, ""] = Seen(console.units(language), {})
                role = "staff" if key == server.admin else "customer"
                found |= {(language, f"{role}: {view}"): look(console, view) for view in views}
    drain(server)
    return found


def test_the_browser_says_which_language_and_the_switch_is_remembered(browser: Browser, server: Server) -> None:
    for locale, word in (("pl-PL", "Twój klucz"), ("pt-BR", "Sua chave"), ("es-AR", "Su clave"), ("de-AT", "Ihr Schlüssel"),
                         ("fr-FR", "Your key")):  # fmt: skip
        with open_page(browser, server, None, locale=locale) as console:
            console.page.goto(console.address)
            console.page.get_by_label(word).wait_for()
    with open_page(browser, server, server.operator) as console:
        console.page.get_by_label("Language").select_option("pl")
        console.wait_for_text("Pasy")
        console.page.reload()
        console.wait_for_text("Pasy")
        assert console.page.evaluate("document.documentElement.lang") == "pl"


def test_every_visible_word_changes_with_the_language(seen: dict[tuple[str, str], Seen]) -> None:
    """Whatever is read, or read out, is a word of that language's catalog."""
    for (language, view), (texts, _) in seen.items():
        known = vocabulary(language) | words(seen[language, ""].texts) | words(LANGUAGE_NAMES) | NAMES
        if view:
            assert len(words(texts)) > 15, view
            assert words(texts) - known == set(), (language, view)


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_too_wide_or_cut_in_any_language(seen: dict[tuple[str, str], Seen], width: int) -> None:
    assert {place: view.problems[width] for place, view in seen.items() if view.problems.get(width)} == {}


def serious(page: Page, rules: tuple[str, ...] = ()) -> list[Any]:
    """What axe finds that keeps people out; all of its rules, or some."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    only = {"runOnly": list(rules)} if rules else {}
    result = page.evaluate("options => axe.run(document, options)", {"resultTypes": ["violations"], **only})
    return [
        (violation["id"], violation["help"], [node["html"][:200] for node in violation["nodes"][:3]])
        for violation in result["violations"]
        if violation["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize(("scheme", "rules"), [("light", ()), ("dark", COLOUR_RULES)])
def test_axe_finds_nothing_serious(
    browser: Browser, server: Server, customer: str, scheme: str, rules: tuple[str, ...]
) -> None:
    receipts = server.queue.submit_many(customer, [1] * 30, kind=KIND)
    server.queue.tune(customer, paused=True)
    name = quote(customer)
    with open_page(browser, server, None, color_scheme=scheme) as console:
        console.page.goto(console.address)
        console.page.get_by_label("Your key").wait_for()
        assert serious(console.page, rules) == []
        assert console.page.evaluate(EDGE_CONTRAST, "input") >= 3
        assert console.page.evaluate(EDGE_CONTRAST, ".switches button") >= 3
        console.sign_in(server.admin)
        for view in (*OPERATOR_VIEWS, *ADMIN_VIEWS, f"customers/{name}", f"documents/{receipts[-1].id}"):
            console.open(view)
            assert serious(console.page, rules) == [], view
    with open_page(browser, server, server.key(customer), color_scheme=scheme) as console:
        for view in (*CUSTOMER_VIEWS, f"mine/{receipts[0].id}"):
            console.open(view)
            assert serious(console.page, rules) == [], view
    server.queue.tune(customer, paused=False)
    drain(server)


def test_colours_can_be_chosen_and_stay(operator: BrowserPage) -> None:
    page = operator.page
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Theme").click()  # light
    page.get_by_role("button", name="Theme").click()  # dark
    assert page.evaluate(ground) != light
    page.reload()
    expect(page.locator(".lanes")).to_be_visible()
    assert page.evaluate(ground) != light


def test_less_motion_is_respected(browser: Browser, server: Server, customer: str) -> None:
    """With reduced motion the picture is drawn once a frame, and nothing flies."""
    for motion, moves in (("reduce", False), ("no-preference", True)):
        with open_page(browser, server, server.operator, reduced_motion=motion) as console:
            console.page.locator(".figure").first.wait_for()  # the first frame has no moves
            console.page.evaluate(COUNTING)
            server.queue.submit_many(f"{customer} {motion}", [1] * 5, kind=KIND)
            expect(console.page.locator(".legend")).to_contain_text(f"{customer} {motion}")
            assert bool(console.page.evaluate("window.framesRequested")) == moves
    drain(server)
