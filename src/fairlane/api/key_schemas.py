"""Models of requests and responses about keys, upload tokens and the audit log, behind the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, StrictInt, StrictStr

from .permissions import Role, Scope
from .schemas import NO_BETTER_THAN, Number, ResponseModel, StrictBody

KEY_ID = "3f9c2a7b51e08d46"
AUDIT_ID = "9005399454140991-ffffffff5f0c1a2b"
UPLOAD_ID = "006a1b2c3d3f9c2a7b51e08d46"
KEYS_MAX = 100


class NewKeyBody(StrictBody):
    """A key to be made: of a customer, or of a role."""

    customer: StrictStr | None = Field(default=None, min_length=1, max_length=200, description="Whose key it is.")
    role: Role | None = Field(default=None, description="viewer, operator or admin, where there is no customer.")
    scopes: list[Scope] = Field(default_factory=list, max_length=3, description="What it may do; none: all that its role may.")
    name: StrictStr = Field(default="", max_length=200, description="What it is for.", examples=["laptop"])
    expires_in: Number | None = Field(
        default=None, description="Seconds; 90 days if it is left out, null: never.", examples=[7_776_000]
    )


class KeysBody(StrictBody):
    """Keys to be made."""

    keys: list[NewKeyBody] = Field(min_length=1, max_length=KEYS_MAX)


class KeyRotationBody(StrictBody):
    """How a key is replaced."""

    overlap: Number = Field(default=604_800, description="Seconds that the old one stays valid.")
    expires_in: Number | None = Field(
        default=None, description="Of the new one, in seconds; as the old one if it is left out, null: never."
    )


class KeyModel(ResponseModel, title="Key"):
    """A key, without its secret."""

    id: str = Field(description="The public part of the key.", examples=[KEY_ID])
    role: Role
    customer: str | None
    scopes: list[Scope] = Field(description="Empty: all that its role may do.")
    name: str
    state: Literal["active", "expired", "revoked"]
    made_at: float
    expires_at: float | None
    ends_soon: bool = Field(description="Within two weeks, and no other key replaces it.")
    revoked_at: float | None
    replaced_by: str | None = Field(description="The id of the key that a rotation made.")
    last_used_at: float | None = Field(description="Up to a minute or so ago; null: never.")


class NewKeyModel(KeyModel, title="NewKey"):
    """A key that was made, with its secret."""

    key: str = Field(description="Shown this once.", examples=["fl_3f9c2a7b51e08d46_..."])


class NewKeysModel(ResponseModel, title="NewKeys"):
    """Keys that were made, in the order of the request."""

    keys: list[NewKeyModel]


class KeyPageModel(ResponseModel, title="KeyPage"):
    """A page of keys, by their ids."""

    keys: list[KeyModel]
    next: str | None = Field(description="The address of the next page.")


class UploadTokenBody(StrictBody):
    """What an upload token allows, all of it chosen by its maker."""

    customer: StrictStr | None = Field(
        default=None, min_length=1, max_length=200, description="For operators: whose document it will be."
    )
    kind: StrictStr = Field(default="extract", min_length=1, max_length=100)
    bytes_max: StrictInt | None = Field(
        default=None, ge=1, description="Of the file; null: as every upload.", examples=[10_000_000]
    )
    cost: Number | Literal["pages"] = Field(default=1, description='A number, or "pages".', examples=[1])
    payload: Any = Field(default=None, description="What the document carries beside its file.", examples=[{"user": 17}])
    no_better_than: StrictInt | None = Field(default=None, ge=1, le=9, description=NO_BETTER_THAN, examples=[7])
    expires_in: Number = Field(default=900, description="Seconds, 3,600 at most.", examples=[900])


class UploadTokenModel(ResponseModel, title="UploadToken"):
    """An upload token, without its secret."""

    id: str = Field(description="The public part of the token.", examples=[UPLOAD_ID])
    customer: str
    kind: str
    bytes_max: int | None
    cost: float | Literal["pages"]
    payload: Any
    no_better_than: int | None
    state: Literal["unused", "used", "expired"]
    document: str | None = Field(description="The id of the document that it was used for.")
    made_at: float
    expires_at: float


class NewUploadTokenModel(UploadTokenModel, title="NewUploadToken"):
    """An upload token that was made, with its secret."""

    token: str = Field(description="Shown this once.", examples=["flu_006a1b2c3d3f9c2a7b51e08d46_..."])
    links: dict[str, str] = Field(examples=[{"upload": "/v1/uploads"}])


class UploadForm(StrictBody):
    """A file, as a form."""

    file: bytes = Field(json_schema_extra={"format": "binary"})
    name: str | None = Field(default=None, max_length=255, description="What the sender calls it.", examples=["invoice.pdf"])


class UploadedModel(ResponseModel, title="Uploaded"):
    """A document that was uploaded."""

    id: str = Field(description="Of the document.")


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
