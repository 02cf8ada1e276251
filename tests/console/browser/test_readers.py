"""The page is readable in five languages, light and dark, wide and narrow, and with a screen reader."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files
from typing import Any
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
NAMES = {"fairlane"}
LANGUAGE_NAMES = ("English", "Polski", "Português", "Español", "Deutsch")


def words(texts: Iterable[str]) -> set[str]:
    """Words of three letters or more, in small letters."""
    return {word.casefold() for text in texts for word in re.findall(r"[^\W\d_]{3,}", re.sub(r"\{\w+\}", " ", text))}


def vocabulary(language: str) -> set[str]:
    """Every word of a catalog."""
    return words(form for text in catalog(language).values() for form in (text.values() if isinstance(text, dict) else [text]))


def visit(console: BrowserPage, views: tuple[str, ...]) -> dict[str, list[str]]:
    """Collect the texts of each view."""
    texts = {}
    for view in views:
        console.open(view)
        texts[view] = console.texts()
    return texts


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


def test_every_visible_word_changes_with_the_language(browser: Browser, server: Server, customer: str) -> None:
    """Whatever is read, or read out, is a word of that language's catalog."""
    receipts = server.queue.submit_many(customer, [1] * 30, kind=KIND)
    views = (*OPERATOR_VIEWS, *ADMIN_VIEWS, f"customers/{quote(customer)}", f"documents/{receipts[-1].id}")
    with open_page(browser, server, server.admin) as first, open_page(browser, server, server.key(customer)) as second:
        for language in LANGUAGES:
            for console in (first, second):
                console.page.locator(".switches select").select_option(language)
                console.page.wait_for_function("language => document.documentElement.lang === language", arg=language)
            known = vocabulary(language) | words(first.units(language)) | words(LANGUAGE_NAMES) | NAMES
            texts = visit(first, views) | {f"customer: {view}": read for view, read in visit(second, CUSTOMER_VIEWS).items()}
            for view, read in texts.items():
                assert len(words(read)) > 15, view
                assert words(read) - known == set(), (language, view)
    drain(server)


def serious(page: Page) -> list[Any]:
    """What axe finds that keeps people out."""
    page.evaluate(AXE)
    result = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        (violation["id"], violation["help"], [node["html"][:200] for node in violation["nodes"][:3]])
        for violation in result["violations"]
        if violation["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Browser, server: Server, customer: str, scheme: str) -> None:
    receipts = server.queue.submit_many(customer, [1] * 30, kind=KIND)
    server.queue.tune(customer, paused=True)
    name = quote(customer)
    with open_page(browser, server, None, color_scheme=scheme) as console:
        console.page.goto(console.address)
        console.page.get_by_label("Your key").wait_for()
        assert serious(console.page) == []
        console.sign_in(server.admin)
        for view in (*OPERATOR_VIEWS, *ADMIN_VIEWS, f"customers/{name}", f"documents/{receipts[-1].id}"):
            console.open(view)
            assert serious(console.page) == [], view
    with open_page(browser, server, server.key(customer), color_scheme=scheme) as console:
        for view in (*CUSTOMER_VIEWS, f"mine/{receipts[0].id}"):
            console.open(view)
            assert serious(console.page) == [], view
    server.queue.tune(customer, paused=False)
    drain(server)


@pytest.mark.parametrize("width", [390, 1120, 1280])
def test_nothing_is_too_wide_or_cut_in_any_language(browser: Browser, server: Server, customer: str, width: int) -> None:
    receipts = server.queue.submit_many(customer, [1] * 30, kind=KIND)
    name, window = quote(customer), {"width": width, "height": 844}
    views_by_key: tuple[tuple[str, tuple[str, ...]], ...] = (
        (server.admin, (*OPERATOR_VIEWS, *ADMIN_VIEWS, f"customers/{name}", f"documents/{receipts[-1].id}")),
        (server.key(customer), (*CUSTOMER_VIEWS, f"mine/{receipts[0].id}")),
    )
    for key, views in views_by_key:
        with open_page(browser, server, key, viewport=window) as console:
            for language in LANGUAGES:
                console.page.locator(".switches select").select_option(language)
                console.page.wait_for_function("language => document.documentElement.lang === language", arg=language)
                for view in views:
                    console.open(view)
                    assert console.overflow() == 0, (language, view)
                    assert console.cut_texts() == [], (language, view)
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
