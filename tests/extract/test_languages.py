"""The choice of languages for OCR: of a worker by a setting, of one document by its payload."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.corpus.others import draw, make_image
from fairlane import Queue
from fairlane.core.errors import BadValue
from fairlane.extract import sandboxed
from fairlane.extract.handler import ExtractOptions, built_in_worker, limits_with
from fairlane.extract.limits import Limits, parse_languages
from fairlane.settings import load_settings
from tests.system import LANGUAGES
from tests.worker.conftest import AT_ONCE, Bench

SCAN = make_image(draw(["Faktura 4217"], (500, 100), 48), "PNG")


@pytest.fixture(autouse=True, scope="module")
def release_fork_server() -> Iterator[None]:
    yield
    sandboxed.release()


def test_a_document_is_read_in_the_languages_of_its_payload(
    bench: Bench, queue: Queue, url: str, program: Callable[[str], str]
) -> None:
    for name in ("tesseract", *LANGUAGES):
        program(name)
    chosen = [["pol"], ["xyz"], ["pol", "xyz"], "pol; rm", 7]
    ids = [queue.submit("acme", {"ocr_languages": names}, content=SCAN, name="a.png").id for names in chosen]
    bench.run(built_in_worker(ExtractOptions(url), 1, backoff=AT_ONCE))
    warnings = [[warning["code"] for warning in queue.result(id)["warnings"]] for id in ids[:3]]
    assert warnings == [["ocr_used"], ["ocr_language_missing", "no_text"], ["ocr_language_missing", "ocr_used"]]
    assert queue.text(ids[0]).split() == ["Faktura", "4217"]
    for id, shown in zip(ids[3:], ("'pol; rm'", "7"), strict=True):
        reason = queue.document(id).reason or ""
        assert reason.startswith(f"unsupported: ocr_languages in the payload is {shown}")


@pytest.mark.parametrize("value", ["", "eng+", "../eng", "ENG", [], [1], "a" * 99, ["eng"] * 11, None])
def test_what_cannot_be_a_language_is_refused(value: object) -> None:
    with pytest.raises(BadValue, match="of tesseract's languages, such as"):
        parse_languages(value, "ocr_languages")


def test_languages_are_a_list_or_text() -> None:
    assert parse_languages("eng+chi_sim+eng", "") == ("eng", "chi_sim") == parse_languages(["eng", "chi_sim"], "")


def test_the_setting_is_in_the_environment_or_the_file(tmp_path: Path) -> None:
    (tmp_path / "fairlane.toml").write_text('ocr_languages = "ces"\n')
    assert load_settings(None, {}, tmp_path).ocr_languages == "ces"
    assert load_settings(None, {"FAIRLANE_OCR_LANGUAGES": "eng+ces"}, tmp_path).ocr_languages == "eng+ces"
    assert limits_with("eng+ces").ocr_languages == ("eng", "ces")
    assert limits_with(None) == Limits()
