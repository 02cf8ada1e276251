"""Models of requests and responses about keys and the audit log, behind the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from .schemas import ResponseModel

AUDIT_ID = "9005399454140991-5f0c1a2b"


class ActorModel(ResponseModel, title="Actor"):
    """Who made a change, and from where."""

    kind: Literal["key", "person", "cli", "server"]
    id: str = Field(description="The public part of a key, a person, or a user of the operating system.")
    name: str = Field(description="Of the key, or the host of the command line.")
    role: str
    address: str = Field(description="Of the client.", examples=["192.0.2.7"])


class AuditEntryModel(ResponseModel, title="AuditEntry"):
    """One change, or one sign-in."""

    id: str = Field(examples=[AUDIT_ID])
    at: float
    who: ActorModel
    action: str = Field(examples=["customer.pause"])
    target: str | None = Field(description="The id of what was changed.")
    customer: str | None = Field(description="Whose it is.")
    before: Any
    after: Any
    outcome: Literal["begun", "done", "failed"] = Field(description="begun: not completed; it may have been made.")
    error: str | None


class AuditPageModel(ResponseModel, title="AuditPage"):
    """A page of the audit log, newest first."""

    entries: list[AuditEntryModel]
    next: str | None = Field(description="The address of the next page.")
