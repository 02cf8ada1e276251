"""The documentation as a site: it builds, every link and anchor leads somewhere, and nothing comes from other sites."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site.hooks import http_reference
from fairlane.api.app import describe
from fairlane.core.policy import Policy

from ..chromium import chromium
from ..conftest import need_program

ROOT = Path(__file__).parents[2]
LANGUAGES = sorted((ROOT / "docs/priorities").glob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there_and_loads_nothing_from_other_sites(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert {path.stem for path in pages} >= {
        "index",
        "tutorial",
        "glossary",
        "http",
        "python",
        "architecture",
        "pl",
        "pipeline",
    }
    loaded = re.compile(
        r"<(?:script|img|iframe|source)[^>]* src=[\"']?(https?:|//)|<link[^>]* rel=\"?stylesheet\"?[^>]*href=[\"']?(https?:|//)"
    )
    for path in pages:
        assert not loaded.search(path.read_text()), path


def test_opened_as_files_the_site_is_searched_and_commands_are_copied_alone(site: Path) -> None:
    need_program("chromium")
    with chromium() as browser:
        page = browser.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto((site / "tutorial.html").as_uri())
        page.locator("input[name=query]").click()
        page.get_by_text("Type to start searching").wait_for()
        page.keyboard.insert_text("what is a lease")
        page.keyboard.press("End")  # the search looks at the field when a key is let go
        page.locator(".md-search-result__item").first.wait_for()
        count = int(page.locator(".md-search-result__meta").inner_text().split()[0])
        assert count < len(list(site.rglob("*.html"))) / 2  # not every page that has a word beginning with "a"
        copied = page.evaluate(
            """() => [...document.querySelectorAll("code:has(.gp)")].map((code) => {
                 code.toggleAttribute("data-md-copying");  // as the button beside it does
                 return code.innerText; })"""
        )
        assert copied
        assert not any(re.search(r"^[$>] ", text, re.MULTILINE) for text in copied)
        assert faults == []


def test_each_page_says_its_language(site: Path) -> None:
    for page in LANGUAGES:
        assert f'<html lang="{page.stem}"' in (site / f"priorities/{page.stem}.html").read_text()
    assert '<html lang="en"' in (site / "fairness.html").read_text()


def test_links_are_named_after_pages_and_not_after_files(site: Path) -> None:
    named = re.compile(r"<a [^>]*href=[^>]*>[\w./-]+\.md</a>")
    assert {str(path.relative_to(site)) for path in site.rglob("*.html") if named.search(path.read_text())} == set()


def test_the_python_reference_has_the_verbs_with_their_signatures(site: Path) -> None:
    page = (site / "reference/python.html").read_text()
    for verb in ("fairlane.Queue.submit", "fairlane.Queue.prioritize", "fairlane.Worker.handler", "fairlane.Client.wait"):
        assert f'id="{verb}"' in page, verb
    assert re.search(r"<pre><code>FairlaneError\n├── Mistake  ", page), "the tree of errors is not drawn as a tree"


def test_the_http_reference_has_every_call_and_every_schema() -> None:
    document = describe()
    page = http_reference(document)
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"### {method.upper()} {path}\n" in page
    for name in document["components"]["schemas"]:
        assert f"### {name}\n" in page


@pytest.mark.parametrize("page", LANGUAGES, ids=[page.stem for page in LANGUAGES])
def test_the_table_of_each_language_is_the_policy(page: Path) -> None:
    rows = re.findall(r"^\| [^|]*?(-\d+)[^|]* \| (\d) \| ([^|]+) \|$", page.read_text(), re.MULTILINE)
    policy = Policy()
    assert [(int(number), int(priority)) for number, priority, _ in rows] == [(-2, 1)] + [
        (threshold, level) for level, threshold in enumerate(policy.thresholds, start=2)
    ]
    runs = [[int(number) for number in re.findall(r"\d+", run)] for _, _, run in rows]
    for (_, priority, _), run in zip(rows, runs, strict=True):
        assert {policy.priority(1 - number) for number in run} == {int(priority)}


def test_all_five_languages_are_there_and_lead_to_each_other() -> None:
    assert [page.stem for page in LANGUAGES] == ["de", "en", "es", "pl", "pt"]
    for page in LANGUAGES:
        assert re.findall(r"\]\((\w\w)\.md\)", page.read_text()) == ["en", "de", "es", "pl", "pt"]
