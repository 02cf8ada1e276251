"""Pictures of the documentation site: `python -m bench.site_pictures`, after `make docs`.

One is for the documentation: a page in light colours on a wide screen, the search in dark colours, a page on a phone. `--all`
takes every page on a wide screen and on a phone, light and dark, to build/site-shots, and says which are wider than the screen.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import click
from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize

from tests.chromium import chromium

ROOT = Path(__file__).parents[1]
SITE, PICTURE, SHOTS = ROOT / "build/site", ROOT / "docs/pictures/site.png", ROOT / "build/site-shots"
WIDE: ViewportSize = {"width": 1240, "height": 844}
PHONE: ViewportSize = {"width": 390, "height": 844}
SCREENS = {"wide": WIDE, "phone": PHONE}
GAP_PX, HEIGHT, GROUND = 16, 560, "#8a9a96"
COLOURS = 128
SETTLED_MS = 600


def _open(browser: Browser, size: ViewportSize, is_dark: bool, page_name: str) -> Page:
    """Open a page as a file, as `make docs` says."""
    page = browser.new_page(viewport=size, color_scheme="dark" if is_dark else "light", locale="en")
    page.goto((SITE / page_name).as_uri())
    page.wait_for_timeout(SETTLED_MS)
    return page


def _search(page: Page, words: str) -> None:
    page.locator("input[name=query]").click()
    page.keyboard.type(words, delay=40)
    page.locator(".md-search-result__item").first.wait_for()
    page.wait_for_timeout(SETTLED_MS)


def _for_the_docs(browser: Browser) -> Iterator[Image.Image]:
    for size, is_dark, name, words in (
        (WIDE, False, "how-to/troubleshooting.html", ""),
        (WIDE, True, "reference/http.html", "pause a customer"),
        (PHONE, False, "priorities/pl.html", ""),
    ):
        page = _open(browser, size, is_dark, name)
        if words:
            _search(page, words)
        shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        yield shot.resize((shot.width * HEIGHT // shot.height, HEIGHT), Image.Resampling.LANCZOS)


def _side_by_side(shots: list[Image.Image]) -> Image.Image:
    picture = Image.new("RGB", (sum(shot.width for shot in shots) + GAP_PX * (len(shots) + 1), HEIGHT + 2 * GAP_PX), GROUND)
    left = GAP_PX
    for shot in shots:
        picture.paste(shot, (left, GAP_PX))
        left += shot.width + GAP_PX
    return picture


def _all(browser: Browser) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    for path in sorted(SITE.rglob("*.html")):
        name = str(path.relative_to(SITE))
        for screen, size in SCREENS.items():
            for is_dark in (False, True):
                page = _open(browser, size, is_dark, name)
                too_wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                if too_wide > 0:
                    click.echo(f"too wide by {too_wide} pixels: {name}, {screen}")
                shot = f"{name.removesuffix('.html').replace('/', '-')}-{screen}-{'dark' if is_dark else 'light'}.png"
                page.screenshot(path=SHOTS / shot)
                page.close()


@click.command()
@click.option("--all", "is_all", is_flag=True, help="Every page, to build/site-shots.")
def main(is_all: bool) -> None:
    """Take pictures of the site."""
    if not (SITE / "index.html").exists():
        raise SystemExit("there is no site yet: make docs")
    with chromium() as browser:
        if is_all:
            _all(browser)
            click.echo(f"wrote {SHOTS}")
            return
        picture = _side_by_side(list(_for_the_docs(browser)))
    picture.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE).save(PICTURE, optimize=True)
    click.echo(f"{PICTURE.name}: {PICTURE.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
