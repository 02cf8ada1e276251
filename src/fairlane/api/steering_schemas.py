"""Models of requests and responses about steering: priorities by hand, limits of kinds, the backlog; behind the OpenAPI
document."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, StrictBool, StrictInt

from .schemas import CustomerModel, FilterBody, Number, ResponseModel, StrictBody

CURSOR = "`next` of the step before; null: the first step."


class PriorityBody(StrictBody):
    """What an operator sets of a document."""

    priority: StrictInt = Field(ge=1, le=9, description="1 is served first, 9 last.", examples=[1])


class PrioritizeBody(PriorityBody):
    """A priority for every waiting document that matches."""

    filter: FilterBody
    cursor: str | None = Field(default=None, max_length=39, description="`next` or `start` of another step.", examples=[None])
    dry_run: bool = Field(default=False, description="Count, and change nothing.")


class KindModel(ResponseModel, title="Kind"):
    """A kind, and what all workers together may do with it; null: no limit."""

    kind: str = Field(examples=["extract"])
    running: int = Field(ge=0, description="Documents of it that run now.")
    running_max: int | None = Field(description="That may run at once.", examples=[3])
    rate: float | None = Field(description="Starts a second.", examples=[10])
    burst: float = Field(description="Of which so many may come at once.", examples=[20])
    held_by: Literal["kind running", "kind rate"] | None = Field(description="The limit that it has reached.")
    version: int = Field(ge=0, description="Of its limit; 0: it never had one.")


class KindPageModel(ResponseModel, title="Kinds"):
    """A page of kinds, by name."""

    kinds: list[KindModel]
    next: str | None = Field(description="The address of the next page; null: this was the last.")


class KindLimitBody(StrictBody):
    """What is not named stays; null is no limit. With `version` only if that is the current one."""

    version: StrictInt | None = Field(default=None, ge=0, examples=[1])
    running_max: StrictInt | None = Field(default=None, ge=1, le=1_000_000, examples=[3])
    rate: Number | None = Field(default=None, ge=0.001, le=1_000_000, description="Starts a second.", examples=[10])
    burst: Number = Field(default=1, ge=1, le=1_000_000, description="How many may come at once.", examples=[20])


class ApplyBody(StrictBody):
    """Whose waiting documents get the priorities of the table of now, and where a step begins."""

    customer: str | None = Field(default=None, min_length=1, max_length=200, description="null: everybody's.")
    cursor: str | None = Field(default=None, max_length=240, description=CURSOR, examples=[None])


class BacklogStepModel(ResponseModel, title="BacklogStep"):
    """One step through waiting documents."""

    changed: int = Field(ge=0, description="How many got another priority.")
    next: str | None = Field(description="The cursor of the next step; null: this was the last.")


class ResetBody(StrictBody):
    """Whether a customer's waiting documents are checked again after its reset, a step at a time."""

    with_backlog: StrictBool = False
    cursor: str | None = Field(default=None, max_length=240, description=CURSOR, examples=[None])


class ResetModel(CustomerModel, title="Reset"):
    """A customer after its reset, and how far its waiting documents have been checked again."""

    changed: int = Field(ge=0, description="Documents of this step that got another priority.")
    next: str | None = Field(description="The cursor of the next step; null: this was the last.")
