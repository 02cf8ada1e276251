"""States and transitions, text values, snapshots, and the messages of errors."""

from __future__ import annotations

from itertools import chain
from typing import Any, get_args

import pytest

from fairlane.core import errors
from fairlane.core.document import (
    ENDED,
    TRANSITIONS,
    WAITING,
    CheckRow,
    Customer,
    DocumentRow,
    EventType,
    ReceiptRow,
    State,
    validate_text,
)
from fairlane.core.policy import NO_LIMITS, Standing, Terms

STATES = get_args(State)
MOVES = {(what, old, new) for what, (before, after) in TRANSITIONS.items() for old in before for new in after}


# -- states and transitions --------------------------------------------------------------------------------------------


def test_every_event_has_its_transitions_and_only_known_states_appear() -> None:
    assert set(TRANSITIONS) == set(get_args(EventType))
    named = set(chain.from_iterable(before + after for before, after in TRANSITIONS.values()))
    assert named == {None, *STATES}


def test_every_state_is_waiting_running_or_ended_and_only_one_of_them() -> None:
    assert sorted((*WAITING, "running", *ENDED)) == sorted(STATES)
    assert set(WAITING) == {"ready", "delayed"}
    assert set(ENDED) == {"done", "failed", "cancelled"}


def test_every_state_is_reachable_from_a_submission() -> None:
    reached: set[str | None] = {None}
    while more := {after for _, before, after in MOVES if before in reached} - reached:
        reached |= more
    assert reached == {None, *STATES}


def test_an_ended_document_stays_so_but_a_failed_one_can_be_revived() -> None:
    assert {move[:2] for move in MOVES if move[1] in ENDED} == {("revived", "failed"), ("revived", "cancelled")}  # a part


@pytest.mark.parametrize(
    ("before", "ways"),
    [
        (None, {("submitted", "ready"), ("submitted", "delayed")}),
        ("delayed", {("due", "ready"), ("joined", "ready"), ("failed", "failed"), ("cancelled", "cancelled")}),
        ("ready", {("claimed", "running"), ("cancelled", "cancelled")}),
        (
            "running",
            {
                ("taken_over", "running"),
                ("done", "done"),
                ("continued", "ready"),
                ("split", "delayed"),
                ("failed", "failed"),
                ("retried", "ready"),
                ("retried", "delayed"),
                ("postponed", "ready"),
                ("postponed", "delayed"),
                ("released", "ready"),
                ("expired", "ready"),
                ("cancelled", "cancelled"),
            },
        ),
        ("done", set()),
        ("failed", {("revived", "ready"), ("revived", "delayed")}),
        ("cancelled", {("revived", "ready"), ("revived", "delayed")}),  # parts, with their whole
    ],
)
def test_the_ways_out_of_each_state(before: State | None, ways: set[tuple[EventType, State]]) -> None:
    assert {(what, new) for what, old, new in MOVES if old == before} == ways


def test_every_state_that_has_not_ended_can_still_end() -> None:
    ending: set[str | None] = set(ENDED)
    while more := {before for _, before, after in MOVES if after in ending} - ending:
        ending |= more
    assert ending == {None, *STATES}


def test_only_a_claim_makes_a_document_run_and_a_running_one_may_change_hands() -> None:
    assert {(what, before) for what, before, after in MOVES if after == "running"} == {
        ("claimed", "ready"), ("taken_over", "running"),
    }  # fmt: skip


# -- text --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["a", " ", "Zażółć gęślą jaźń", "客户", "🚂", "a" * 200, "\u00a0", "'; drop table --"])
def test_any_text_is_kept_exactly_as_given(value: str) -> None:
    assert validate_text("customer", value) == value


@pytest.mark.parametrize("value", ["", "a" * 201, "a\x00b", "a\n", "\x1f", "\x7f", "\x9f", "\ud800", "a\udfff", None, 5, b"a"])
def test_empty_long_or_unprintable_text_is_refused_by_name_and_value(value: Any) -> None:
    with pytest.raises(errors.BadValue, match=r"^customer is ") as caught:
        validate_text("customer", value)
    assert (caught.value.name, caught.value.value) == ("customer", value)


@pytest.mark.parametrize(("length", "allowed"), [(99, True), (100, True), (101, False)])
def test_a_text_may_have_another_length(length: int, allowed: bool) -> None:
    if allowed:
        assert validate_text("kind", "k" * length, 100) == "k" * length
    else:
        with pytest.raises(errors.BadValue, match="1 to 100 characters"):
            validate_text("kind", "k" * length, 100)


def test_a_subclass_of_text_is_refused() -> None:
    class Shouting(str):
        __slots__ = ()

    with pytest.raises(errors.BadValue):
        validate_text("customer", Shouting("a"))


# -- snapshots ---------------------------------------------------------------------------------------------------------

CHECK = CheckRow("acme", priority=2, counter_thousandths=-3_500, checked_ms=77, policy_version=1, terms_version=0)


@pytest.mark.parametrize(("thousandths", "counter"), [(-3_500, -3.5), (-3_000, -3), (0, 0)])
def test_a_receipt_shows_customer_priority_and_counter_of_its_check(thousandths: int, counter: float) -> None:
    receipt = ReceiptRow("id", 5, CHECK._replace(counter_thousandths=thousandths))
    assert (receipt.customer, receipt.priority, receipt.counter, receipt.check.counter) == ("acme", 2, counter, counter)


def test_a_document_shows_its_priority_and_the_one_of_its_check() -> None:
    document = DocumentRow(
        "id", 5, "acme", "pdf", "ready", CHECK, 1000, None, 80, 0, 3, 0, None, None, None, None,
        priority=1, no_better_than=None, is_set_by_hand=True, claimed_ms=None,
    )  # fmt: skip
    assert (document.priority, document.check.priority, document.check.checked_ms) == (1, 2, 77)


def test_a_customer_shows_the_stored_counter() -> None:
    customer = Customer("acme", Standing(-1_249, 0, 1), 1, 0, waiting=7, running=0, done=0, failed=0, cancelled=0,
                        oldest_wait_ms=None, terms=Terms(), terms_version=0, documents=7, bytes=90,
                        limits=NO_LIMITS, usual=None)  # fmt: skip
    assert (customer.counter, customer.waiting) == (-1.249, 7)


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "parents"),
    [
        (errors.BadValue, (errors.Mistake, ValueError)),
        (errors.KeyConflict, (errors.Mistake,)),
        (errors.Unknown, (errors.Mistake, LookupError)),
        (errors.WrongState, (errors.Mistake,)),
        (errors.StoreBusy, (errors.StoreError,)),
        (errors.StoreFull, (errors.StoreError,)),
        (errors.StoreUnfit, (errors.StoreError,)),
        (errors.StoreUnreachable, (errors.StoreError,)),
    ],
)
def test_errors_are_a_tree_by_who_is_at_fault(error: type[Exception], parents: tuple[type[Exception], ...]) -> None:
    assert all(issubclass(error, parent) for parent in (*parents, errors.FairlaneError))
    assert issubclass(error, errors.Mistake) != issubclass(error, errors.StoreError)


def test_a_bad_value_says_what_was_wrong_with_which_value_and_what_is_wanted() -> None:
    assert str(errors.BadValue("cap", "x", "a whole number")) == "cap is 'x'; it must be a whole number"


def test_a_long_value_is_cut_in_the_message_and_kept_whole() -> None:
    error = errors.BadValue("customer", "x" * 10_000, "shorter")
    assert (error.value, len(str(error)) < 200) == ("x" * 10_000, True)
    assert str(error).startswith("customer is 'xxx")


def test_a_number_of_any_length_can_be_refused() -> None:
    assert "cap is " in str(errors.BadValue("cap", 10**5000, "a whole number"))


def test_a_key_conflict_names_the_key_the_customer_and_the_document() -> None:
    error = errors.KeyConflict("acme", "k-1", "doc-9")
    assert error.document == "doc-9"
    assert all(word in str(error) for word in ("'acme'", "'k-1'", "doc-9"))
