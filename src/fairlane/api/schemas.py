"""Models of requests and responses, behind the OpenAPI document.

Laws:
- Times are seconds since the epoch, durations are seconds.
- A request may hold nothing but what is named here; responses may grow.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from .permissions import Role

State = Literal["delayed", "ready", "running", "done", "failed", "cancelled"]
Reset = Literal["idle", "sliding"]
Turns = Literal["time", "documents"]
Number = StrictInt | StrictFloat

STEPS = "The kinds that it passes through, one after the other; it begins as the first of them."
SLICES = "A long PDF or TIFF may be read in slices of so many pages, by several workers at once."
NO_BETTER_THAN = "The best priority that it may get, 1 to 9; the counter moves as always."
COST = "Below 1 only for operators, and for customers to whom they allowed it."
ID = "0199a3f2-1c5e-7d31-9f60-3b1de5a0c842"
LINKS = {"self": f"/v1/documents/{ID}", "result": f"/v1/documents/{ID}/result", "explain": f"/v1/documents/{ID}/explain"}


class StrictBody(BaseModel):
    """A body that holds nothing but what is named."""

    model_config = ConfigDict(extra="forbid")


class ResponseModel(BaseModel):
    """A response; in the OpenAPI document it stands under its title."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__qualname__ = cls.model_config.get("title") or cls.__name__  # pydantic names the schema after it


class ProblemModel(ResponseModel, title="Problem"):
    """Why a request was not carried out; `type` is a stable code to rely on."""

    type: str = Field(examples=["nothing-here"])
    title: str = Field(examples=["There is nothing here for this key"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["there is nothing at this address that this key may see"])
    limit: str | None = Field(default=None, description="The limit that a customer has reached, with its figures.")
    used: int | None = None
    adding: int | None = None
    most: int | None = None


class SubmissionBody(StrictBody):
    """A document whose content is JSON."""

    payload: Any = Field(default=None, examples=[{"order": 17, "lines": ["A4", "A5"]}])
    kind: str = Field(default="default", min_length=1, max_length=100)
    steps: list[str] | None = Field(default=None, min_length=1, max_length=20, description=STEPS, examples=[["read", "index"]])
    cost: float = Field(default=1, ge=0.001, le=10_000, multiple_of=0.001, examples=[1, 2.5], description=COST)
    delay: float = Field(default=0, ge=0, le=31_536_000, description="Seconds before it may be taken.")
    no_better_than: int | None = Field(default=None, ge=1, le=9, description=NO_BETTER_THAN, examples=[7])
    customer: str | None = Field(default=None, min_length=1, max_length=200, description="For operators: whose it is.")


class FormBody(StrictBody):
    """A document with a file, as a form; a bare body has these in its query, without the file."""

    file: bytes = Field(json_schema_extra={"format": "binary"})
    name: str | None = Field(default=None, max_length=255, description="What the sender calls it.", examples=["invoice.pdf"])
    payload: str | None = Field(default=None, description="JSON.", examples=['{"order": 17}'])
    kind: str = Field(default="extract", min_length=1, max_length=100)
    steps: str | None = Field(default=None, description=f"{STEPS} With commas between.", examples=["extract,index"])
    slices: str | None = Field(default=None, description=SLICES, examples=["20"])
    cost: str = Field(default="1", description='A number, or "pages".', examples=["1", "pages"])
    delay: str = Field(default="0", examples=["0"])
    no_better_than: str | None = Field(default=None, description=NO_BETTER_THAN, examples=["7"])
    customer: str | None = Field(default=None, min_length=1, max_length=200, description="For operators: whose it is.")


class BatchMember(StrictBody):
    """One document of a batch."""

    payload: Any = Field(default=None, examples=[{"order": 17}])
    cost: float = Field(default=1, ge=0.001, le=10_000, multiple_of=0.001, examples=[1], description=COST)


class BatchForm(StrictBody):
    """Many documents of one customer, each with a file, as a form: fields first, then the files, under any name."""

    payload: str | None = Field(default=None, description="JSON, the same for all.", examples=['{"order": 17}'])
    kind: str = Field(default="extract", min_length=1, max_length=100)
    steps: str | None = Field(default=None, description=f"{STEPS} With commas between.", examples=["extract,index"])
    slices: str | None = Field(default=None, description=SLICES, examples=["20"])
    cost: str = Field(default="1", description='Of each: a number, or "pages".', examples=["1", "pages"])
    delay: str = Field(default="0", examples=["0"])
    no_better_than: str | None = Field(default=None, description=NO_BETTER_THAN, examples=["7"])
    customer: str | None = Field(default=None, min_length=1, max_length=200, description="For operators: whose they are.")
    file: list[Annotated[bytes, Field(json_schema_extra={"format": "binary"})]] = Field(min_length=1)


class BatchBody(StrictBody):
    """Many documents of one customer: all are taken, or none."""

    documents: list[BatchMember] = Field(min_length=1)
    kind: str = Field(default="default", min_length=1, max_length=100)
    steps: list[str] | None = Field(default=None, min_length=1, max_length=20, description=STEPS, examples=[["read", "index"]])
    delay: float = Field(default=0, ge=0, le=31_536_000)
    no_better_than: int | None = Field(default=None, ge=1, le=9, description=NO_BETTER_THAN, examples=[7])
    customer: str | None = Field(default=None, min_length=1, max_length=200, description="For operators: whose they are.")


class FilterBody(StrictBody):
    """Which documents: those for which everything holds that is given."""

    customer: str | None = Field(default=None, min_length=1, max_length=200, description="For operators.")
    state: State | None = None
    kind: str | None = Field(default=None, min_length=1, max_length=200)
    reason: str | None = Field(default=None, min_length=1, max_length=200, description="A part of why they failed.")
    since: Number | None = Field(default=None, description="Submitted then or later; seconds since the epoch.")
    until: Number | None = Field(default=None, description="Submitted before then; seconds since the epoch.")


class BulkBody(StrictBody):
    """A change of every document that matches."""

    action: Literal["cancel", "retry"]
    filter: FilterBody
    cursor: str | None = Field(default=None, max_length=39, description="`next` or `start` of another step.", examples=[None])
    dry_run: bool = Field(default=False, description="Count, and change nothing.")


class BulkStepModel(ResponseModel, title="BulkStep"):
    """One step of a change of many documents."""

    matched: int = Field(ge=0, description="Documents of this step that it applies to.")
    changed: int = Field(ge=0, description="How many of these were changed; 0 in a dry run.")
    refused: int = Field(ge=0, description="How many were not, because their customer is at a limit.")
    reason: str | None = Field(description="Which limit, of the first of these.")
    start: str = Field(description="Where the walk began: as the cursor it walks over the same documents again.")
    next: str | None = Field(description="The cursor of the next step; null: this was the last.")


class ReceiptModel(ResponseModel, title="Receipt"):
    """A document that was taken."""

    id: str = Field(examples=[ID])
    customer: str = Field(examples=["acme"])
    priority: int = Field(ge=1, le=9, examples=[1])
    counter: float = Field(le=0, examples=[0])
    ahead: int = Field(ge=0, description="About how many documents go first.", examples=[3])
    repeated: bool = Field(description="It was taken before, with the same Idempotency-Key.", examples=[False])
    links: dict[str, str] = Field(examples=[LINKS])


class BatchReceiptModel(ResponseModel, title="BatchReceipt"):
    """A batch that was taken."""

    id: str = Field(examples=["0199a3f2-1c5e-7d31-9f60-3b1de5a0c843"])
    customer: str = Field(examples=["acme"])
    documents: list[ReceiptModel]
    links: dict[str, str]


class BatchModel(ResponseModel, title="Batch"):
    """How far a batch is."""

    id: str
    customer: str = Field(examples=["acme"])
    made_at: float
    documents: list[str]
    counts: dict[State, int] = Field(examples=[{"ready": 3, "done": 7}])
    missing: int = Field(description="Not there any more: purged.")
    progress: float = Field(ge=0, le=1, description="The share that has ended.")
    is_ended: bool
    expected_in: float | None = Field(description="Seconds until the last of it is about to begin; null: cannot be said.")
    links: dict[str, str]


class ProgressModel(ResponseModel, title="Told"):
    """What the handler last reported."""

    attempt: int
    progress: float | str | None
    partial: Any


class DocumentModel(ResponseModel, title="Document"):
    """A document as it is now."""

    id: str = Field(examples=[ID])
    customer: str = Field(examples=["acme"])
    kind: str = Field(examples=["extract"])
    state: State
    priority: int = Field(ge=1, le=9)
    no_better_than: int | None = Field(description="The best priority that its submitter wanted for it.")
    set_by_hand: bool = Field(description="An operator set its priority.")
    counter: float = Field(le=0)
    cost: float
    key: str | None = Field(description="The Idempotency-Key it was submitted with.")
    submitted_at: float
    ready_at: float
    ended_at: float | None
    attempts: int
    attempts_max: int
    reason: str | None = Field(description="Why it failed, or is tried again.")
    worker: str | None = Field(description="The worker that runs it; for operators only.")
    bytes: int = Field(ge=0, description="That its payload, its result and their files take.")
    retries: int = Field(ge=0, description="By its customer.")
    whole: str | None = Field(description="The document that it is a part of.")
    parts: int = Field(ge=0, description="Into which it was split last.")
    parts_done: int = Field(ge=0, description="How many of these are done; it goes on when all are.")
    progress: ProgressModel | None = None
    links: dict[str, str]


class DocumentPageModel(ResponseModel, title="Documents"):
    """A page, newest first."""

    documents: list[DocumentModel]
    next: str | None = Field(description="The address of the next page; null: this was the last.")


class AttemptModel(ResponseModel, title="Attempt"):
    """What is kept of an attempt that failed."""

    attempt: int
    token: int = Field(description="Rises with every claim of the document, also after a retry by a person.")
    at: float = Field(description="By the worker's clock.")
    worker: str
    seconds: float = Field(description="That the handler ran.")
    reason: str
    traceback: str | None = Field(description="Of the exception, or of a crash; of a long one the newest part.")
    output: str | None = Field(description="The end of what the handler printed.")


class AttemptsModel(ResponseModel, title="Attempts"):
    """The last failed attempts of a document, oldest first."""

    attempts: list[AttemptModel]


class HistoryEntryModel(ResponseModel, title="HistoryEntry"):
    """Something that happened to a document."""

    event: str = Field(examples=["retried"])
    at: float
    claim: int | None = Field(description="Which claim it was about, counted from 1; null before the first.")
    worker: str | None = Field(description="The worker that started it; for operators only.")
    reason: str | None
    priority: int | None = Field(description="That it got, when its priority was changed.")
    by: str | None = Field(description="Who set that by hand; for operators only.")


class HistoryModel(ResponseModel, title="History"):
    """What happened to a document, oldest first."""

    history: list[HistoryEntryModel]


class StepModel(ResponseModel, title="Step"):
    """One of the kinds that a document passes through."""

    kind: str = Field(examples=["classify"])
    state: State | Literal["to come"] = Field(description="Of the step at which the document is, its own.")
    result: Any = Field(description="What its handler returned, of a step that is done and not the last; for staff only.")


class StepsModel(ResponseModel, title="Steps"):
    """The steps of a document, in order."""

    steps: list[StepModel]


class PartsModel(ResponseModel, title="Parts"):
    """The parts of a document, in order."""

    parts: list[DocumentModel]


class ExplanationModel(ResponseModel, title="Explanation"):
    """Why a document waits: a sentence for people, and its figures."""

    model_config = ConfigDict(extra="allow")

    sentence: str
    id: str
    state: State
    priority: int
    counter: float
    ahead: int | None
    expected_in: float | None
    held_by: Literal["paused", "cap", "kind running", "kind rate"] | None = Field(description="What keeps it from being taken.")
    set_by_hand: bool
    no_better_than: int | None


class LookModel(ResponseModel, title="Look"):
    """Where a customer stands; looking moved nothing."""

    customer: str = Field(examples=["acme"])
    counter: float = Field(le=0, examples=[-4])
    next_priority: int = Field(ge=1, le=9, examples=[3])
    waiting: int
    running: int
    done: int
    failed: int
    cancelled: int
    resets_in: float
    oldest_wait: float | None
    paused: bool
    documents: int = Field(description="That are kept, in any state.")
    bytes: int = Field(description="That their payloads, results and files take.")
    waiting_max: int | None = Field(description="The most of its documents that may wait; null: no limit.")
    documents_max: int | None = Field(description="The most documents that it may keep; null: no limit.")
    bytes_max: int | None = Field(description="The most bytes that it may keep; null: no limit.")


class PersonModel(ResponseModel, title="Person"):
    """Somebody who signed in to the page, and not with a key."""

    id: str
    name: str


class MeModel(ResponseModel, title="Me"):
    """Who this key belongs to, or who is signed in, and where that customer stands."""

    role: Role
    permissions: list[str] = Field(description="What the caller may do.", examples=[["manage", "read", "self", "submit"]])
    key: str | None = Field(description="The public part of the key; null for a person.")
    key_name: str | None
    key_expires_at: float | None
    person: PersonModel | None
    customer: str | None
    standing: LookModel | None
    kinds: list[str] = Field(description="What this key may submit.")
    links: dict[str, str]


class LimitsModel(ResponseModel, title="Limits"):
    """The most that a customer may have; null: no limit, of one customer as everybody."""

    waiting_max: int | None = Field(description="Documents that wait.")
    descendants_max: int | None = Field(description="Documents that come out of one, archives in archives included.")
    documents_max: int | None = Field(description="Documents that are kept, in any state.")
    bytes_max: int | None = Field(description="Bytes of the payloads, results and files that are kept.")
    retries_max: int | None = Field(description="Retries of one failed document by its customer.")


class TermsModel(LimitsModel, title="Terms"):
    """What a customer has of its own; null: as everybody."""

    weight: float
    cap: int | None
    paused: bool
    reset_interval: float | None
    thresholds: list[float] | None
    reset: Reset | None
    cost_min: float = Field(description="The least that its keys may give as the cost of a document.")


class CustomerModel(LookModel, title="Customer"):
    """Where a customer stands, and what it has of its own."""

    terms: TermsModel
    webhook: str | None = Field(description="Where its endings are sent.")


class CustomerExplanationModel(ResponseModel, title="CustomerExplanation"):
    """Where a customer stands: a sentence for people, and its figures."""

    model_config = ConfigDict(extra="allow")

    sentence: str
    customer: str = Field(examples=["acme"])
    counter: float
    next_priority: int
    resets_in: float


class CustomerPageModel(ResponseModel, title="Customers"):
    """A page, by id."""

    customers: list[LookModel]
    next: str | None


Most = Annotated[StrictInt | None, Field(ge=0, le=10**15, examples=[100_000])]


class LimitsBody(StrictBody):
    """What a customer may have; what is not named stays."""

    waiting_max: Most = None
    descendants_max: Most = None
    documents_max: Most = None
    bytes_max: Most = None
    retries_max: Most = None


class TermsBody(LimitsBody):
    """What is not named stays; null is as everybody."""

    weight: Number = Field(default=1, ge=0.01, le=100, examples=[2])
    cap: StrictInt | None = Field(default=None, ge=1, le=1_000_000, examples=[4])
    paused: StrictBool = False
    reset_interval: Number | None = Field(default=None, gt=0, le=2_592_000, examples=[900])
    thresholds: list[Number] | None = Field(default=None, max_length=8, examples=[[-2, -4, -6]])
    reset: Reset | None = None
    cost_min: Number = Field(default=1, ge=0.001, le=1, examples=[1])


class PolicyModel(LimitsModel, title="Policy"):
    """What holds for everybody."""

    version: int
    reset: Reset
    reset_interval: float
    thresholds: list[float]
    dispatch: Literal["fair", "strict"]
    turns: Turns
    open_turn_every: int
    frozen: str | None = Field(description="Why nothing new may begin in this queue; null: it is in use.")


class PolicyBody(LimitsBody):
    """What is not named stays; a limit of null is none. With `version` only if that is the current one."""

    version: StrictInt | None = Field(default=None, examples=[1])
    reset: Reset | None = None
    reset_interval: Number | None = Field(default=None, gt=0, le=2_592_000, examples=[1500])
    thresholds: list[Number] | None = Field(default=None, max_length=8, examples=[[-2, -4, -6, -8]])
    dispatch: Literal["fair", "strict"] | None = None
    turns: Turns | None = None
    open_turn_every: StrictInt | None = Field(default=None, ge=0, le=1_000_000, examples=[16])


class CheckBody(StrictBody):
    """One check without a document."""

    customer: StrictStr | None = Field(default=None, min_length=1, max_length=200, description="For operators.")
    cost: Number = Field(default=1, ge=0.001, le=10_000, examples=[1], description=COST)


class CheckModel(ResponseModel, title="Check"):
    """What a check decided."""

    customer: str
    priority: int = Field(ge=1, le=9)
    counter: float = Field(le=0)
    checked_at: float


class WebhookBody(StrictBody):
    """Where endings are sent. Without a secret a first webhook gets one, and a later one keeps what it has."""

    url: StrictStr = Field(max_length=2000, examples=["https://customer.example/fairlane"])
    secret: StrictStr | None = Field(default=None, max_length=200, description="`whsec_` and 24 to 64 bytes in base64.")


class RotationBody(StrictBody):
    """Another secret, and how long the one before stays valid."""

    secret: StrictStr | None = Field(default=None, max_length=200, description="Left out: one is made.")
    overlap: Number = Field(default=86_400, ge=0, le=2_592_000, description="Seconds.", examples=[86_400])


class SendBody(StrictBody):
    """The document, or the batch, whose end is to be sent."""

    document: StrictStr | None = Field(default=None, max_length=64, examples=[ID])
    batch: StrictStr | None = Field(default=None, max_length=64)


class SecretModel(ResponseModel, title="WebhookSecret"):
    """A secret that signs calls; its text is shown once, when it is made."""

    made_at: float
    expires_at: float | None = Field(description="null: it is in use until another takes its place.")


class WebhookModel(ResponseModel, title="Webhook"):
    """Where endings are sent, and how the calls go."""

    customer: str
    url: str
    secret: str | None = Field(description="The new secret, this once; null: none was made.")
    secrets: list[SecretModel] = Field(description="The newest first; two during a rotation.")
    made_at: float
    pending: int = Field(description="Deliveries to be tried; at most 1,000 are counted.")
    failed: int = Field(description="Deliveries that were given up; at most 1,000 are counted.")
    failures: int = Field(description="Tries that failed since the last that was accepted.")
    delivered_at: float | None = Field(description="When a call was last accepted.")
    failed_at: float | None = Field(description="When a call last failed.")
    failure: str | None = Field(description="Why it last failed.", examples=["answered 503"])


class DeliveryModel(ResponseModel, title="Delivery"):
    """An event, and how often it was tried."""

    id: str = Field(description="The `webhook-id` of every try.", examples=[f"msg_{ID}_1794800132169"])
    type: Literal["document.done", "document.failed", "document.cancelled", "batch.ended"]
    state: Literal["pending", "failed", "delivered"]
    at: float
    document: str | None
    batch: str | None
    attempts: int
    tried_at: float | None
    outcome: str | None = Field(description="Of the last try.", examples=["answered 200"])
    next_at: float | None = Field(description="When it is tried next.")


class DeliveryPageModel(ResponseModel, title="Deliveries"):
    """A page: pending ones by when they are tried, failed ones by when they happened, delivered ones from the newest."""

    deliveries: list[DeliveryModel]
    next: str | None


class RunningDocumentModel(ResponseModel, title="RunningDocument"):
    """A document that runs on a worker."""

    id: str
    customer: str
    kind: str
    running_for: float | None = Field(description="Null: so recently begun that its worker has not reported it yet.")


class WorkerModel(ResponseModel, title="Worker"):
    """A worker as the registry shows it."""

    name: str = Field(examples=["host-1234"])
    instance: str = Field(description="Tells workers of the same name apart.")
    state: Literal["working", "draining", "drained", "gone"]
    host: str
    pid: int
    version: str = Field(description="Of Fairlane.")
    is_outdated: bool = Field(description="It knows only an older schema than the store has.")
    kinds: list[str] | None = Field(description="That it takes; null: too many to list.")
    slots: int
    started_at: float
    silent_for: float = Field(description="Seconds since its last report.")
    documents: list[RunningDocumentModel]


class UnservedKindModel(ResponseModel, title="UnservedKind"):
    """A kind of which documents wait although no worker takes them."""

    kind: str
    is_draining: bool = Field(description="Workers take it, but all of them are being drained.")
    oldest_wait: float


class WorkersModel(ResponseModel, title="Workers"):
    """Every worker, by name, and the kinds that wait for none of them."""

    workers: list[WorkerModel]
    unserved: list[UnservedKindModel]


class KindCapacityModel(ResponseModel, title="KindCapacity"):
    """The load of one kind, in flat figures."""

    waiting: int
    held_back: int = Field(description="Of those that wait: their customer is paused or at its cap, or the kind at its limit.")
    running: int
    slots: int = Field(description="Of the workers that take this kind.")
    slots_wanted: int = Field(description="That keep up with what comes, and start what waits within the target.")
    unserved: int = Field(description="Waiting documents that no worker takes.")
    oldest_wait: float
    arrivals_a_second: float
    usual_seconds: float = Field(description="That a document of this kind takes.")


class CapacityModel(ResponseModel, title="Capacity"):
    """Of one kind its figures; of all kinds the sums, and each kind under `kinds`."""

    model_config = ConfigDict(extra="allow")

    target_wait: float
    waiting: int
    held_back: int
    running: int
    slots: int
    slots_wanted: int
    unserved: int
    oldest_wait: float
    kinds: dict[str, KindCapacityModel] | None = None


class DrainModel(ResponseModel, title="Drain"):
    """Which workers claim no more, or again."""

    worker: str
    drain: bool
    instances: list[str]


class HealthModel(ResponseModel, title="Health"):
    """Whether it is up, or ready; if not, why."""

    status: Literal["up", "ready", "not ready"]
    reasons: list[str]


class HomeModel(ResponseModel, title="Home"):
    """What runs here."""

    name: str
    version: str
    links: dict[str, str]
