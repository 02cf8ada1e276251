"""Docs are tested: every command, setting, verb, error and limit appears, and what is shown runs."""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import click
import pytest

import fairlane
from bench.pictures import FOLDER, pictures
from fairlane import AsyncClient, Client, Policy, Queue, Rules, Terms, client, worker
from fairlane.blobs.files import Files
from fairlane.cli import main
from fairlane.core import document, errors
from fairlane.extract import CAN_RETRY, WARNING_CODES, Limits
from fairlane.settings import Settings
from fairlane.worker.hooks import EVENTS

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs/reference.md").read_text()
DOCUMENTS = (ROOT / "docs/documents.md").read_text()
README = (ROOT / "README.md").read_text()


def test_every_verb_of_the_queue_is_in_the_reference() -> None:
    for name, verb in inspect.getmembers(Queue, inspect.isfunction):
        if name.startswith("_"):
            continue
        assert f"`{name}(" in REFERENCE, name
        for parameter in list(inspect.signature(verb).parameters.values())[1:]:
            assert parameter.name in REFERENCE, f"{name}({parameter.name}=)"


def test_every_verb_and_answer_of_the_client_is_in_the_reference() -> None:
    section = REFERENCE[REFERENCE.index("## `Client(") : REFERENCE.index("## Commands")]
    for name, verb in inspect.getmembers(Client, inspect.isfunction):
        if name.startswith("_"):
            continue
        assert f"`{name}(" in section, name
        for parameter in list(inspect.signature(verb).parameters)[1:]:
            assert parameter in REFERENCE, f"{name}({parameter}=)"
    for parameter in list(inspect.signature(AsyncClient).parameters)[2:]:
        assert f"{parameter}=" in section, parameter
    for answer in (client.Receipt, client.BatchReceipt, client.Batch, client.Check, client.Me, client.Event):
        for one in fields(answer):
            assert f"`{one.name}`" in section, f"{answer.__name__}.{one.name}"


def test_every_option_of_the_worker_and_everything_a_handler_sees_is_in_the_reference() -> None:
    for verb in (fairlane.Worker.__init__, fairlane.Worker.handler, fairlane.Worker.run):
        for parameter in list(inspect.signature(verb).parameters)[1:]:
            assert f"`{parameter}" in REFERENCE or f"{parameter}=" in REFERENCE, parameter
    claim = document.Claim("id", 1, 1, "acme", "extract", 1, "null", 1, 3, 0, 1, False)
    seen = [name for name in dir(worker.Document(claim, lambda told: None, lambda: Files("", ""))) if not name.startswith("_")]
    for name in (*seen, *EVENTS, *worker.Event._fields, *worker.Summary._fields):
        assert name == "tell_last" or f"`{name}" in REFERENCE, name


def test_every_command_and_option_is_in_the_reference() -> None:
    for name, command in main.commands.items():
        assert f"`fairlane {name}" in REFERENCE
        for parameter in command.params:
            shown = parameter.metavar if isinstance(parameter, click.Argument) and parameter.metavar else parameter.opts[0]
            assert shown in REFERENCE or shown.upper() in REFERENCE, parameter.opts


def test_every_setting_is_in_the_reference() -> None:
    for one in (*fields(Settings), *fields(Policy), *fields(Rules), *fields(Terms)):
        if one.init and one.name not in ("policy", "version"):
            assert f"`{one.name}`" in REFERENCE or f"{one.name}=" in REFERENCE, one.name


def test_every_error_state_and_happening_is_in_the_reference() -> None:
    named = [name for name, one in vars(errors).items() if inspect.isclass(one) and issubclass(one, Exception)]
    for word in (*named, *get_args(document.State), *get_args(document.EventType)):
        assert word == "due" or f"`{word}" in REFERENCE, word


def test_every_public_name_is_documented() -> None:
    for name in fairlane.__all__:
        assert name in REFERENCE or name in README or name in ("Policy", "Rules", "Terms"), name


def test_the_examples_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, *others = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        exec(first, {})
        for other in others:
            exec(other, {"queue": Queue()})
    assert Queue().look("acme").done == 30  # one of the 31 was cancelled
    assert "Priority 1, because acme's counter stood at 0" in told.getvalue()
    assert len(first.strip().splitlines()) <= 10


def test_the_example_of_the_package_runs() -> None:
    assert doctest.testmod(fairlane).failed == 0
    assert doctest.testmod(fairlane).attempted > 0


def test_the_table_of_the_readme_is_the_policy() -> None:
    lines = dict(re.findall(r"\| (-2 or more|below -\d+) \| (\d)", README))
    assert lines.pop("-2 or more") == "1"
    thresholds = {int(name.removeprefix("below ")): int(priority) for name, priority in lines.items()}
    assert thresholds == {value: level for level, value in enumerate(Policy().thresholds, start=2)}


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        *(f"docs/{one}.md" for one in ("reference", "fairness", "engines", "documents", "service", "page")),
    ],
)
def test_links_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text()):
        assert ((ROOT / page).parent / link).exists(), link


def test_every_format_limit_code_and_warning_of_documents_is_documented() -> None:
    for limit in fields(Limits):
        value = getattr(Limits(), limit.name)
        shown = ", ".join(value) if isinstance(value, tuple) else f"{int(value):,}"
        assert f"| `{limit.name}` | {shown} |" in DOCUMENTS, limit.name
    for code, can_retry in CAN_RETRY.items():
        assert re.search(rf"\| `{code}` \| .* \| {'yes' if can_retry else 'no'} \|", DOCUMENTS), code
    for warning in WARNING_CODES:
        assert f"`{warning}`" in DOCUMENTS, warning


def test_every_picture_is_shown_somewhere() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {Path(link).name for page in pages for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text())}
    assert {path.name for path in FOLDER.iterdir()} <= shown


def test_makefile_targets_of_the_docs_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in ("README.md", "CONTRIBUTING.md"):
        assert set(re.findall(r"^make ([\w-]+)", (ROOT / page).read_text(), re.MULTILINE)) <= targets


def test_the_pictures_are_what_the_simulator_draws() -> None:
    drawn = dict(pictures())
    assert {path.name for path in FOLDER.glob("*.svg")} == set(drawn)
    for name, content in drawn.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == content, f"{name}: run make pictures"
