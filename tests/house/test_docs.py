"""Docs are tested: every command, setting, verb, error and limit appears, and what is shown runs."""

from __future__ import annotations

import doctest
import inspect
import re
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import get_args

import click
import pytest

import fairlane
from bench.pictures import FOLDER, pictures
from fairlane import AsyncClient, AsyncQueue, Client, Policy, Queue, Rules, Terms, worker
from fairlane.api.permissions import ROUTES, Role, Scope, permissions_of
from fairlane.blobs.files import Files
from fairlane.cli import main
from fairlane.core import document, errors
from fairlane.core.policy import CustomerLimits
from fairlane.engine.postgres import queries as postgres
from fairlane.engine.redis import scripts as redis
from fairlane.engine.sqlite import queries as sqlite
from fairlane.extract import CAN_RETRY, WARNING_CODES, Limits
from fairlane.settings import Settings
from fairlane.version import __version__
from fairlane.worker.hooks import EVENTS

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs/reference.md").read_text()
DOCUMENTS = (ROOT / "docs/documents.md").read_text()
SERVICE = (ROOT / "docs/service.md").read_text()
README = (ROOT / "README.md").read_text()
TOUR = (ROOT / "docs/tour.md").read_text()


def section(page: str, heading: str) -> str:
    """The text under a heading, up to the next one of the same level."""
    level = heading.split(" ")[0]
    start = re.search(rf"^{re.escape(heading)}", page, re.MULTILINE)
    assert start is not None, f"no heading {heading}"
    end = re.search(rf"^#{{1,{len(level)}}} ", page[start.end() :], re.MULTILINE)
    return page[start.end() :] if end is None else page[start.end() : start.end() + end.start()]


def rows(text: str) -> list[list[str]]:
    """The rows of every table in a text, cell by cell; lines under a heading row only."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not set(line) <= set("|- ")]


def signatures(text: str) -> dict[str, set[str]]:
    """Verbs in backticks with the names of their parameters: `submit(customer, payload, key=)`."""
    found: dict[str, set[str]] = {}
    for name, parameters in re.findall(r"`@?(?:worker\.)?(\w+)\(([^`]*)\)`", text):
        found.setdefault(name, set()).update(part.strip().partition("=")[0] for part in parameters.split(",") if part.strip())
    return found


def first_cells(text: str) -> str:
    return "\n".join(row[0] for row in rows(text))


def public_verbs(owner: type) -> dict[str, set[str]]:
    verbs = {name: verb for name, verb in inspect.getmembers(owner, inspect.isfunction) if not name.startswith("_")}
    return {name: set(list(inspect.signature(verb).parameters)[1:]) for name, verb in verbs.items()}


def test_the_reader_of_tables_sees_only_what_is_there() -> None:
    page = "## A\n\n| verb | does |\n|---|---|\n| `go(far, fast=)` | goes `stop(now)` |\n\n## B\n\n| `other()` | |\n"
    assert rows(section(page, "## A")) == [["verb", "does"], ["`go(far, fast=)`", "goes `stop(now)`"]]
    assert signatures(first_cells(section(page, "## A"))) == {"go": {"far", "fast"}}


@pytest.mark.parametrize(("owner", "heading"), [(Queue, "## `Queue(url)`"), (Client, "## `Client(url, key)`")])
def test_the_table_of_verbs_has_every_verb_with_its_parameters(owner: type, heading: str) -> None:
    written = signatures(first_cells(section(REFERENCE, heading)))
    verbs = public_verbs(owner)
    assert set(written) == set(verbs)
    for name, parameters in verbs.items():
        assert "…" in written[name] or written[name] == parameters, name


def test_the_sections_name_how_queue_and_client_are_opened() -> None:
    for owner, heading in ((Queue, "## `Queue(url)`"), (AsyncQueue, "## `Queue(url)`"), (AsyncClient, "## `Client(url, key)`")):
        text = section(REFERENCE, heading).partition("| verb |")[0]
        for parameter in list(inspect.signature(owner).parameters)[1:]:
            assert f"{parameter}=" in text or f", {parameter})" in heading, f"{owner.__name__}({parameter}=)"


def test_every_value_is_in_the_table_of_values_with_its_fields() -> None:
    described = {cells[0].strip("`"): cells[1] for cells in rows(section(REFERENCE, "## Values"))}
    for name in fairlane.__all__:
        names = getattr(getattr(fairlane, name), "_fields", ())
        if name != "Input":  # an argument: it is in the table of verbs
            assert set(re.findall(r"`(\w+)`", described.get(name, ""))) >= set(names), name


def test_the_worker_its_handlers_and_hooks_are_in_their_tables() -> None:
    text = section(REFERENCE, "## `Worker(queue)`")
    options = {row[0].strip("`") for row in rows(text.partition("###")[0])} - {"option"}
    assert options == set(list(inspect.signature(fairlane.Worker.__init__).parameters)[2:])
    for verb, name in ((fairlane.Worker.handler, "handler"), (fairlane.Worker.run, "run")):
        assert signatures(text)[name] == set(list(inspect.signature(verb).parameters)[1:]), name
    claim = document.Claim("id", 1, 1, "acme", "extract", 1, "null", 1, 3, 0, 1, False)
    handed = worker.Document(claim, lambda report: None, lambda: Files("", ""))
    seen = {name for name in dir(handed) if not name.startswith("_")} - {"flush_report"}
    written_names = first_cells(section(text, "### The handler's document"))
    assert {name for name in seen if not re.search(rf"`{name}[`(]", written_names)} == set()
    hooks = section(text, "### Hooks")
    assert set(re.findall(r"`(\w+)`", first_cells(hooks))) == set(EVENTS)
    for name in worker.Event._fields:
        assert f"`{name}`" in hooks, name
    for name in worker.Summary._fields:
        assert f"`{name}`" in text, name


def test_every_command_has_its_row_with_every_option() -> None:
    text = section(REFERENCE, "## Commands")
    for_all = text[text.rindex("|\n") :]
    lines = {name: row for row in rows(text) for name in re.findall(r"`fairlane (\w+)", row[0])}
    assert set(lines) == set(main.commands)
    for name, command in main.commands.items():
        written = " ".join(lines[name])
        for parameter in _parameters(command):
            shown = (parameter.metavar or parameter.opts[0]) if isinstance(parameter, click.Argument) else parameter.opts[0]
            wanted = shown.upper() if isinstance(parameter, click.Argument) else rf"(?<![\w-]){shown}(?![\w-])"
            assert re.search(wanted, written) or f"`{shown}" in for_all, (name, shown)


def _parameters(command: click.Command) -> list[click.Parameter]:
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return [*command.params, *(parameter for one in inner for parameter in one.params)]


def test_the_table_of_permissions_has_every_route_and_who_may_use_it() -> None:
    (head, *lines) = rows(section(SERVICE, "### Who may do what"))
    keys: list[tuple[Role, tuple[Scope, ...]]] = [
        ("customer", ("submit",)), ("customer", ("read",)), ("customer", ()), ("viewer", ()), ("operator", ()), ("admin", ()),
        ("viewer", ("metrics",)),
    ]  # fmt: skip
    assert head[2:] == [
        "customer with `submit`",
        "customer with `read`",
        "customer",
        "viewer",
        "operator",
        "admin",
        "`metrics`",
    ]
    written: dict[tuple[str, ...], str] = {}
    for permission, calls, *cells in lines:
        name = permission.strip("`")
        written |= {tuple(call.split(" ")): name for call in re.findall(r"`(\w+ [^`]+)`", calls)}
        allowed = [name == "public" or name in permissions_of(*key) for key in keys]
        assert [cell == "yes" for cell in cells] == allowed, name
    assert written == ROUTES


def test_every_setting_rule_and_term_is_in_its_table() -> None:
    options = {name for row in rows(section(REFERENCE, "## Settings")) for name in re.findall(r"`--([a-z-]+)`", row[1])}
    assert {name.replace("-", "_") for name in options} - {"key_file"} == {field.name for field in fields(Settings)}
    limits = {name for row in rows(section(REFERENCE, "## Rules and limits")) for name in re.findall(r"^`(\w+)`", row[0])}
    known = {field.name for kind in (Policy, Rules, Terms) for field in fields(kind) if field.init} | {*CustomerLimits._fields}
    assert known - {"policy", "version", "paused"} <= limits


def test_the_newest_line_of_the_schema_versions_is_that_of_the_code() -> None:
    lines = rows(section((ROOT / "docs/engines.md").read_text(), "## Upgrading"))
    schemas = [str(schema.version) for schema in (sqlite.SCHEMA, postgres.SCHEMA, redis.SCHEMA)]
    assert lines[-1] == [__version__, *schemas]
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"schema {schemas[0]} on SQLite, {schemas[1]} on PostgreSQL, and form {schemas[2]} on Redis" in changes


def test_every_error_state_and_event_is_in_its_section() -> None:
    queue = section(REFERENCE, "## `Queue(url)`")
    for name, error in vars(errors).items():
        if inspect.isclass(error) and issubclass(error, Exception) and not name.startswith("_"):
            assert f"`{name}`" in queue, name
    states = section(REFERENCE, "## States")
    for word in (*get_args(document.State), *get_args(document.EventType)):
        assert word == "due" or f"`{word}`" in states, word


def test_every_public_name_is_in_the_reference() -> None:
    for name in fairlane.__all__:
        assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", REFERENCE), name


def test_the_example_of_the_package_runs() -> None:
    assert doctest.testmod(fairlane).failed == 0
    assert doctest.testmod(fairlane).attempted > 0


def test_the_table_of_the_tour_is_the_policy() -> None:
    lines = dict(re.findall(r"\| (-2 or more|below -\d+) \| (\d)", TOUR))
    assert lines.pop("-2 or more") == "1"
    thresholds = {int(name.removeprefix("below ")): int(priority) for name, priority in lines.items()}
    assert thresholds == {value: level for level, value in enumerate(Policy().thresholds, start=2)}


MARKDOWN = sorted(path.relative_to(ROOT) for name in ("*.md", "docs/**/*.md", "examples/*/*.md") for path in ROOT.glob(name))


@pytest.mark.parametrize("page", MARKDOWN, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!\w+:)([^)#]+)\)", (ROOT / page).read_text()):
        target = (ROOT / page).parent / link
        assert target.exists() or target == ROOT / "docs/reference/http.md", link  # the site makes that one


def test_no_two_decisions_share_a_number() -> None:
    numbers = Counter(path.name.partition("-")[0] for path in (ROOT / "docs/decisions").glob("*.md"))
    assert [number for number, count in numbers.items() if count > 1] == []
    assert all(re.fullmatch(r"\d{4}", number) for number in numbers)


def test_a_decision_is_named_by_the_number_of_its_file() -> None:
    pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").rglob("*.md")]
    named = [pair for page in pages for pair in re.findall(r"\[[Dd]ecision (\d+)\]\([^)]*?(\d{4})-", page.read_text())]
    assert [pair for pair in named if int(pair[0]) != int(pair[1])] == []
    assert named


def test_every_format_limit_code_and_warning_of_documents_is_documented() -> None:
    for limit in fields(Limits):
        value = getattr(Limits(), limit.name)
        shown = "all" if value is None else ", ".join(value) if isinstance(value, tuple) else f"{int(value):,}"
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
