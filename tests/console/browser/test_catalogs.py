"""Every word comes from a catalog: no key is missing, none is unused, and every language has its own plural forms."""

from __future__ import annotations

import gzip
import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from fairlane.api.auth import KeyState
from fairlane.api.permissions import Role, Scope
from fairlane.api.problems import TITLES
from fairlane.console.sign_in_attempt import FailureCode
from fairlane.core.document import EventType, Hold, State
from fairlane.core.policy import CustomerLimits, Policy, Reset, Rules, Terms, Turns
from fairlane.engine.protocol import DocumentFilter
from fairlane.extract.failure import CAN_RETRY
from fairlane.extract.messages import failure_text
from fairlane.queue.bulk import Action
from fairlane.queue.models import WorkerState
from fairlane.sim.past import SENTENCES

from .browser_page import (
    ADMIN_VIEWS,
    AUDIT_ACTIONS,
    CATALOGS,
    CUSTOMER_VIEWS,
    LANGUAGES,
    OPERATOR_VIEWS,
    STATIC,
    catalog,
)

SCRIPTS = {path.name: path.read_text(encoding="utf-8") for path in sorted(STATIC.glob("*.js"))}
CODE = "\n".join(SCRIPTS.values())
PLURALS = {"en": {"one", "other"}, "de": {"one", "other"}, "pl": {"one", "few", "many", "other"},
           "pt": {"one", "many", "other"}, "es": {"one", "many", "other"}}  # fmt: skip
STORED = {"fairlane.language", "fairlane.theme", "fairlane.view"}  # names in the browser's storage
# which are what that language says too
SAME_WORDS = {  # which are what that language says too
    "pl": {"document.type", "nav.webhook", "shell.operator"},
    "pt": {"nav.webhook", "audit.group_webhook"},
    "es": {"nav.webhook", "audit.group_webhook", "audit.no"},
    "de": {"document.type", "nav.webhook", "workers.version", "audit.group_webhook"},
}
ADMIN_SCRIPTS = {"keys.js", "key_form.js", "key_texts.js", "audit.js", "audit_entry.js", "first_steps.js"}
STAFF_SCRIPTS = {
    "staff_views.js", "lanes.js", "lanes_canvas.js", "customers.js", "customer.js", "workers.js", "kinds.js",
    "waits.js", "what_if.js",
}  # fmt: skip
CUSTOMER_SCRIPTS = {"my_documents.js"}
SUFFIX = "_hint"  # of a column, where there is one
RESETS, TURNS = get_args(Reset), get_args(Turns)
LIMITS = ("waiting_max", "documents_max", "bytes_max", "retries_max")  # that the page can change
SETTINGS = {field.name for values in (Terms, Rules, Policy) for field in fields(values) if field.init} - {"policy", "limits"}
AUDITED = (  # names of what is recorded as before and after
    *SETTINGS, *CustomerLimits._fields, *DocumentFilter._fields, "counter", "instances", "older_than", "documents", "records",
    "files", "grace", "removed", "bytes", "matched", "changed", "refused", "host", "overlap", "role", "scopes", "name",
    "expires_ms", "new_key", "new_expires_ms", "old_expires_ms", "count", "entries", "schema", "customers", "from", "to",
    "folder", "files_only", "made_at", "sessions", "key", "texts", "left", "struck", "priority", "reprioritized",
    "running_max", "rate", "burst",
)  # fmt: skip
WORDS = {  # the words that may replace {}
    "nav.{}": tuple(view.replace("-", "_") for view in (*OPERATOR_VIEWS, *CUSTOMER_VIEWS, *ADMIN_VIEWS)),
    "state.{}": get_args(State),
    "life.{}": (*get_args(EventType), "checked", "prioritized", "rechecked", "attempt"),
    "failure.{}": (*CAN_RETRY, "other"),
    "reason.{}": (*CAN_RETRY, "other"),
    "reset.{}": RESETS,
    "turns.{}": TURNS,
    "limit.{}": LIMITS,
    "limit_ask.{}": LIMITS,
    "what_if.{}": ("measured", "now", "then"),
    "what_if.doubt_{}": tuple(SENTENCES),
    "bulk.{}": tuple(f"{action}_{word}" for action in get_args(Action) for word in ("all", "ask", "done")),
    "documents.{}": ("search", "customer", "kind", "reason", "since", "until"),
    "how.step_reset_{}": RESETS,
    "how.step_turns_{}": TURNS,
    "outlook.{}": ("no_worker", "unserved", "draining", *(hold.replace(" ", "_") for hold in get_args(Hold))),
    "workers.state_{}": get_args(WorkerState),
    "shell.{}": ("system", "light", "dark"),
    "sign_in.failed_{}": get_args(FailureCode),
    "keys.scope_{}": get_args(Scope),
    "keys.all_{}": get_args(Role),
    "keys.stops_{}": (*get_args(Scope), *get_args(Role), "pages"),
    "keys.state_{}": (*get_args(KeyState), "replaced", "ending"),
    "keys.only_{}": (*get_args(KeyState), "any"),
    "audit.did_{}": tuple(re.sub(r"\W", "_", action) for action in AUDIT_ACTIONS),
    "audit.group_{}": tuple({re.sub(r"\W", "_", action.partition(".")[0]) for action in AUDIT_ACTIONS}),
    "audit.error_{}": ("unknown", "wrong", "revoked", "expired", "several", "no_role"),
    "audit.field_{}": AUDITED,
    "webhook.{}": ("event", "subject", "attempts", "outcome", "tried", "again"),
}
SHOWN_WITHOUT_WORDS = {  # problems that only a program can cause
    "bad-request", "wrong-method", "too-slow", "key-conflict", "events-purged", "too-many-headers", "broken", "not-from-page",
    "token-used",
}  # fmt: skip


def written_keys() -> set[str]:
    return set(re.findall(r"[\"'`]([a-z_]+\.[a-z_0-9]+)[\"'`]", CODE)) - STORED


def prefixes() -> set[str]:
    return set(re.findall(r"`([a-z_]+\.[a-z_]*)\$\{", CODE)) - {"prefix."}


def forms(text: object) -> list[str]:
    return list(text.values()) if isinstance(text, dict) else [str(text)]


def test_every_key_of_the_scripts_is_in_the_catalog() -> None:
    assert written_keys() - set(catalog("en")) == set()
    for pattern, words in WORDS.items():
        for word in words:
            assert pattern.format(word) in catalog("en"), pattern.format(word)


def test_every_key_of_the_catalog_is_used() -> None:
    known = set(catalog("en"))
    columns = {key + SUFFIX for key in known if key.startswith("column.")}
    made = {pattern.format(word) for pattern, words in WORDS.items() for word in words}
    unused = known - written_keys() - made - columns - {key for key in known if key.startswith("problem.")}
    assert unused == set()
    assert prefixes() == {pattern.removesuffix("{}") for pattern in WORDS} | {"problem."}


def test_every_problem_that_people_meet_has_words() -> None:
    explained = {key.removeprefix("problem.") for key in catalog("en") if key.startswith("problem.")}
    assert explained - {"other", "offline"} == set(TITLES) - SHOWN_WITHOUT_WORDS


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_says_everything(language: str) -> None:
    ours, english = catalog(language), catalog("en")
    for folder in CATALOGS:
        part = catalog("en", (folder,))
        assert list(catalog(language, (folder,))) == list(part) == sorted(part)
    for key, text in ours.items():
        assert isinstance(text, dict) == isinstance(english[key], dict), key
        if isinstance(text, dict):
            assert set(text) == PLURALS[language], key
        for form in forms(text):
            assert form == form.strip(), key
            assert form, key
            placeholders = set(re.findall(r"\{(\w+)\}", form))
            expected = set(re.findall(r"\{(\w+)\}", " ".join(forms(english[key]))))
            assert placeholders <= expected, key
            assert expected - placeholders <= {"count"}, key


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_nothing_is_left_in_english(language: str) -> None:
    ours, english = catalog(language), catalog("en")
    equal = {key for key, text in ours.items() if set(forms(text)) & set(forms(english[key]))}
    assert equal == SAME_WORDS.get(language, set())


@pytest.mark.parametrize("language", LANGUAGES)
def test_failures_have_the_same_words_everywhere(language: str) -> None:
    for code in CAN_RETRY:
        assert catalog(language)[f"failure.{code}"] == failure_text(code, language)


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_make_no_markup_out_of_text(name: str) -> None:
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "javascript:"):
        assert word not in SCRIPTS[name]


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_can_be_read_in_one_sitting(name: str) -> None:
    lines = SCRIPTS[name].splitlines()
    assert lines[0].startswith("// ")  # what it is
    assert len(lines) <= 400
    assert max(len(line) for line in lines) <= 128


def test_the_page_has_no_inline_script_or_style_and_nothing_from_elsewhere() -> None:
    index = (STATIC / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)", index) == []
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=", index) == []
    for text in (index, CODE, (STATIC / "style.css").read_text(encoding="utf-8")):
        assert set(re.findall(r"https?://[^\s\"'`)]+", text)) <= {"http://www.w3.org/2000/svg"}


def test_every_script_is_preloaded_except_those_of_a_role() -> None:
    index = (STATIC / "index.html").read_text(encoding="utf-8")
    everybody = set(SCRIPTS) - ADMIN_SCRIPTS - STAFF_SCRIPTS - CUSTOMER_SCRIPTS
    assert set(re.findall(r"/static/(\w+\.js)", index)) == everybody
    # only `import()` loads the others, when somebody of that role has signed in
    assert [name for name in everybody if imported(name) - everybody] == []
    assert [name for name in STAFF_SCRIPTS if imported(name) - everybody - STAFF_SCRIPTS] == []
    assert [name for name in CUSTOMER_SCRIPTS if imported(name) - everybody - CUSTOMER_SCRIPTS] == []


def imported(name: str) -> set[str]:
    return set(re.findall(r'from "\./(\w+\.js)"', SCRIPTS[name]))


def test_nobody_loads_the_texts_of_admins_in_vain() -> None:
    for name in set(SCRIPTS) - ADMIN_SCRIPTS:
        assert not set(re.findall(r"[\"'`]((?:keys|audit|first)\.[a-z_]+)", SCRIPTS[name])), name
    assert not {key for key in catalog("en", CATALOGS[:1]) if key.startswith(("keys.", "audit.", "first."))}
    assert all(key.startswith(("keys.", "audit.", "first.")) for key in catalog("en", CATALOGS[1:]))


def size(*paths: Path) -> int:
    return sum(len(gzip.compress(path.read_bytes(), 9)) for path in paths)


def test_the_page_is_small() -> None:
    everybody = {path.name for path in STATIC.iterdir() if path.is_file()} - ADMIN_SCRIPTS - STAFF_SCRIPTS - CUSTOMER_SCRIPTS
    largest, for_admins = (max(size(STATIC / folder / f"{code}.json") for code in LANGUAGES) for folder in CATALOGS)
    for scripts in (everybody | STAFF_SCRIPTS, everybody | CUSTOMER_SCRIPTS):
        assert size(*(STATIC / name for name in scripts)) + largest <= 75_000  # what one reader loads; the promise is 150,000
    assert size(*(STATIC / name for name in ADMIN_SCRIPTS)) + for_admins <= 20_000
