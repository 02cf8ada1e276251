"""Every engine does what the memory engine does: all are driven in lock-step by random programs and must agree."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fairlane.core.document import Claim, Continued, DocumentRow, Done, Failed, Outcome, Released, Retried, Submission
from fairlane.core.errors import Mistake, StoreFrozen
from fairlane.core.policy import CustomerLimits, KindLimit, Policy, Rules, Terms
from fairlane.engine import Engine, open_engine
from fairlane.engine.protocol import ATTEMPTS, DocumentFilter, Rewrite, TextPart
from fairlane.engine.walk import walk_documents
from tests.servers import redis

from .conftest import ENGINES, url_of

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a sync takes no time there, and there are thousands
CUSTOMERS = ("ada", "bob", "żółw", "d")
KINDS = ("extract", "scan", "fax")
COSTS = st.sampled_from((1000, 1000, 1000, 1, 2500, 10_000_000))

customers = st.sampled_from(CUSTOMERS)
outcomes = st.one_of(
    st.builds(Done, st.sampled_from((None, '{"pages":3}', '"żółć"')), st.none() | COSTS, st.sampled_from((0, 0, 700))),
    st.builds(
        Retried,
        st.sampled_from((0, 0, 700, 60_000)),
        st.just("try later"),
        st.none() | COSTS,
        counted=st.sampled_from((True, True, False)),
        details=st.none() | st.just('{"traceback":"…"}'),
    ),
    st.builds(Failed, st.just("corrupt"), st.none() | COSTS, st.none() | st.just('{"traceback":null}')),
    st.builds(
        Continued,
        st.sampled_from(KINDS),
        st.sampled_from(('"x"', '"żółw"')),
        st.just(()),
        st.none() | COSTS,
        st.sampled_from((0, 30)),
    ),
    st.builds(Released),
)
limits = st.builds(
    CustomerLimits,
    waiting_max=st.sampled_from((None, None, 0, 3, 12)),
    descendants_max=st.sampled_from((None, None, 0, 2, 7)),
    documents_max=st.sampled_from((None, None, None, 2, 15)),
    bytes_max=st.sampled_from((None, None, None, 0, 50, 2_000)),
    retries_max=st.sampled_from((None, 0, 1, 2)),
)
terms = st.builds(
    Terms,
    weight=st.sampled_from((1, 2, 0.01, 100, 0.333)),
    cap=st.sampled_from((None, None, 1, 2)),
    paused=st.booleans(),
    reset_interval=st.sampled_from((None, 10, 0.001)),
    thresholds=st.sampled_from((None, (), (-1, -2.5))),
    reset=st.sampled_from((None, "idle", "sliding")),
    limits=st.just(CustomerLimits()) | limits,
    cost_min=st.sampled_from((1, 0.5)),
)
policies = st.builds(
    Policy,
    reset_interval=st.sampled_from((1500, 1, 0.001, 2_592_000)),
    thresholds=st.sampled_from(((-2, -4, -6, -8, -10, -12, -14, -20), (-1,), (), (0, -1, -2))),
    reset=st.sampled_from(("idle", "sliding")),
)

kind_limits = st.builds(
    KindLimit,
    running=st.sampled_from((None, 1, 2, 5)),
    rate=st.sampled_from((None, None, 0.001, 0.7, 10, 333.333)),
    burst=st.sampled_from((1, 1, 1.5, 4)),
)

filters = st.builds(
    DocumentFilter,
    customer=st.none() | customers | st.just("nobody"),
    state=st.sampled_from((None, "ready", "delayed", "running", "done", "failed", "cancelled")),
    kind=st.sampled_from((None, None, "extract", "scan", "fax")),
    reason=st.sampled_from((None, None, None, "corrupt", "of 2 failed: try", "Corrupt", "%", "c.r")),
    since_ms=st.sampled_from((None, None, 1_000_040, 2_500_000)),
    until_ms=st.sampled_from((None, None, 1_000_999, 2_500_001)),
)


def pages(engine: Engine, filter: DocumentFilter, limit: int, scan_max: int) -> list[DocumentRow]:
    """Read page after page; each is as short as it may be, and further down."""
    found: list[DocumentRow] = []
    before: int | None = None
    while True:
        page = engine.documents(filter, before, limit, scan_max)
        assert len(page.documents) <= limit
        found += page.documents
        if page.next is None:
            return found
        assert before is None or page.next < before
        assert all(document.number >= page.next for document in page.documents)
        before = page.next


class Agreement(RuleBasedStateMachine):
    """One random program on all engines at once; the memory engine is the first and the judge."""

    @initialize()
    def open_all(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="agreement", dir=MEMORY))
        self.urls = [url_of(name, self.folder) for name in ENGINES]
        self.engines: list[Engine] = [open_engine(url) for url in self.urls]
        self.now_ms, self.queue_index = 1_000_000, 0
        self.ids: list[str] = []
        self.claims: list[Claim] = []

    def teardown(self) -> None:
        for engine in getattr(self, "engines", ()):
            engine.close()
        for url in getattr(self, "urls", ()):
            redis.drop_url(url)
        shutil.rmtree(getattr(self, "folder", "/nowhere"), ignore_errors=True)

    def all(self, verb: Callable[[Engine], Any]) -> Any:
        """Return the result that all engines agree on, errors included."""
        results = []
        for engine in self.engines:
            try:
                results.append(verb(engine))
            except (Mistake, StoreFrozen) as mistake:
                results.append((type(mistake), str(mistake)))
        for name, result in zip(ENGINES, results, strict=True):
            assert result == results[0], f"{name} differs from {ENGINES[0]}"
        return results[0]

    @rule(by_ms=st.sampled_from((1, 1, 40, 100, 999, 5_000, 10_000, 93_750, 1_500_000, 1_500_001, 61_000, -3_000)))
    def time_passes(self, by_ms: int) -> None:
        self.now_ms = max(0, self.now_ms + by_ms)

    @rule(
        batch=st.lists(
            st.tuples(
                customers,
                st.sampled_from(KINDS),
                COSTS,
                st.sampled_from((None, None, None, "k1", "k2")),
                st.sampled_from(("x", "x", "y")),
                st.sampled_from((0, 0, 0, 500, 5_000)),
                st.sampled_from((None, None, None, None, 1, 2, 9)),
                st.sampled_from((0, 0, 0, 40, 1_000)),
                st.booleans(),
                st.sampled_from((None, None, None, 1, 4, 9)),
            ),
            min_size=1,
            max_size=8,
        )
    )
    def submit(self, batch: list[tuple[str, str, int, str | None, str, int, int | None, int, bool, int | None]]) -> None:
        submissions = []
        for customer, kind, cost, key, digest, delay_ms, back, file_bytes, is_inside, no_better_than in batch:
            source_id = None if back is None or back > len(self.ids) else self.ids[-back]
            source = self.engines[0].document(source_id) if source_id else None
            customer = source.customer if source and back != 9 else customer
            made_from, parent = (None, source and source.id) if is_inside else (source and source.id, None)
            self.ids.append(f"document-{len(self.ids)}")
            submission = Submission(self.ids[-1], customer, kind, f'"{digest}"', cost, key, key and digest, delay_ms, made_from)
            submission = submission._replace(parent=parent, file_bytes=file_bytes, no_better_than=no_better_than)
            submissions.append(submission)
        self.all(lambda engine: engine.submit(submissions, now_ms=self.now_ms))

    @rule(customer=customers, kind=st.sampled_from(KINDS), count=st.integers(5, 30))
    def flood(self, customer: str, kind: str, count: int) -> None:
        self.submit([(customer, kind, 1000, None, "x", 0, None, 0, False, None)] * count)

    @rule(back=st.integers(1, 12), count=st.integers(1, 6))
    def unpack_archive(self, back: int, count: int) -> None:
        """Documents come out of an older one, which may have come out of another one, and may be gone."""
        if len(self.ids) >= back:
            self.submit([("ada", "scan", 1000, None, "x", 0, back + index, 5, True, None) for index in range(count)])

    @rule(customer=customers, cost=COSTS)
    def check(self, customer: str, cost: int) -> None:
        self.all(lambda engine: engine.check(customer, cost, now_ms=self.now_ms))

    @rule(
        limit=st.integers(1, 20),
        kinds=st.sampled_from(
            (None, None, {"extract": 2}, {"scan": 1}, {"scan": 3, "extract": 1}, {"fax": 1, "scan": 2}, {"telex": 1}, {})
        ),
        worker=st.sampled_from(("w1", "w2")),
        lease_ms=st.sampled_from((1_000, 30_000)),
    )
    def claim(self, limit: int, kinds: dict[str, int] | None, worker: str, lease_ms: int) -> None:
        self.claims += self.all(lambda engine: engine.claim(worker, limit, lease_ms, kinds, now_ms=self.now_ms))

    def some_claims(self, picks: list[int]) -> list[Claim]:
        """Return some recent claims, stale ones among them."""
        recent = self.claims[-15:]
        return [recent[pick % len(recent)] for pick in picks] if recent else []

    @rule(picks=st.lists(st.integers(0, 100), max_size=4), lease_ms=st.sampled_from((0, 20_000)))
    def extend(self, picks: list[int], lease_ms: int) -> None:
        claims = self.some_claims(picks)
        self.all(lambda engine: engine.extend(claims, lease_ms, now_ms=self.now_ms))

    @rule(
        picks=st.lists(st.integers(0, 100), max_size=4),
        worker=st.sampled_from(("w2", "w3")),
        lease_ms=st.sampled_from((0, 500, 60_000)),
    )
    def take_over(self, picks: list[int], worker: str, lease_ms: int) -> None:
        handed = [(claim.id, claim.token) for claim in self.some_claims(picks)]
        taken = self.all(lambda engine: engine.take_over(handed, worker, lease_ms, now_ms=self.now_ms))
        self.claims += [claim for claim in taken if claim is not None]

    @rule(picks=st.lists(st.tuples(st.integers(0, 100), outcomes, st.sampled_from((0, 0, 1, 3))), max_size=8))
    def settle(self, picks: list[tuple[int, Outcome, int]]) -> None:
        claims = self.some_claims([pick for pick, _, _ in picks])
        settlements = [
            (claim, self.with_parts(claim, outcome, count)) for claim, (_, outcome, count) in zip(claims, picks, strict=False)
        ]
        self.all(lambda engine: engine.settle(settlements, now_ms=self.now_ms))

    def with_parts(self, claim: Claim, outcome: Outcome, count: int) -> Outcome:
        """Return the outcome; if the document goes on, with so many parts."""
        if not isinstance(outcome, Continued):
            return outcome
        parts = []
        for index in range(count):
            self.ids.append(f"document-{len(self.ids)}")
            kind, cost, delay_ms = KINDS[index % len(KINDS)], 1000 * (index + 1), 500 * (index == 2)
            part = Submission(self.ids[-1], claim.customer, kind, f'"part {index}"', cost, delay_ms=delay_ms)
            parts.append(part._replace(made_from=claim.id, file_bytes=index))
        return outcome._replace(parts=tuple(parts))

    @rule(
        limit=st.integers(1, 3),
        count=st.integers(1, 4),
        ends=st.lists(outcomes, min_size=1, max_size=6),
        at_once=st.booleans(),
        way_on=st.sampled_from(("retry", "cancel", None)),
    )
    def split(self, limit: int, count: int, ends: list[Outcome], at_once: bool, way_on: str | None) -> None:
        """Documents are split and their parts end; nothing else makes them go on often enough."""
        claims = self.all(lambda engine: engine.claim("w1", limit, 30_000, now_ms=self.now_ms))
        splits = [(claim, self.with_parts(claim, Continued("scan", '"joins"'), count)) for claim in claims]
        self.all(lambda engine: engine.settle(splits, now_ms=self.now_ms))
        parts = self.all(lambda engine: engine.claim("w2", limit * count, 30_000, now_ms=self.now_ms))
        self.claims += parts
        settlements = [(part, ends[index % len(ends)]) for index, part in enumerate(parts)]
        for batch in [settlements] if at_once else [[settlement] for settlement in settlements]:
            self.all(lambda engine: engine.settle(batch, now_ms=self.now_ms))  # noqa: B023
        for claim in claims:
            self.all(lambda engine: engine.parts(claim.id))  # noqa: B023
            if way_on == "retry":
                self.all(lambda engine: engine.retry(claim.id, now_ms=self.now_ms))  # noqa: B023
            elif way_on == "cancel":
                self.all(lambda engine: engine.cancel([claim.id], now_ms=self.now_ms))  # noqa: B023

    @rule(limit=st.integers(1, 5))
    def reclaim(self, limit: int) -> None:
        self.all(lambda engine: engine.reclaim(limit, now_ms=self.now_ms))

    @rule(picks=st.lists(st.integers(0, 1000), max_size=6))
    def cancel(self, picks: list[int]) -> None:
        ids = [self.ids[pick % len(self.ids)] for pick in picks] if self.ids else ["unknown"]
        self.all(lambda engine: engine.cancel(ids, now_ms=self.now_ms))

    @rule(pick=st.integers(0, 1000), as_customer=st.booleans())
    def retry(self, pick: int, as_customer: bool) -> None:
        failed = [document.id for document in walk_documents(self.engines[0], DocumentFilter(state="failed"))] or ["unknown"]
        id = failed[pick % len(failed)]
        self.all(lambda engine: engine.retry(id, as_customer=as_customer, now_ms=self.now_ms))

    @rule(limit=st.integers(1, 5), as_customer=st.booleans())
    def fail_and_retry(self, limit: int, as_customer: bool) -> None:
        """Nothing else makes documents fail, and wait again, often enough."""
        claims = self.all(lambda engine: engine.claim("w1", limit, 30_000, now_ms=self.now_ms))
        self.all(lambda engine: engine.settle([(claim, Failed("corrupt")) for claim in claims], now_ms=self.now_ms))
        for claim in claims:
            self.all(lambda engine: engine.retry(claim.id, as_customer=as_customer, now_ms=self.now_ms))  # noqa: B023

    @rule(age_ms=st.sampled_from((0, 1_000, 60_000)), limit=st.sampled_from((3, 1000)))
    def purge(self, age_ms: int, limit: int) -> None:
        self.all(lambda engine: engine.purge(age_ms, limit, now_ms=self.now_ms))

    @rule(
        policy=policies,
        dispatch=st.sampled_from(("fair", "fair", "strict")),
        every=st.sampled_from((0, 1, 3, 16)),
        turns=st.sampled_from(("time", "time", "documents")),
        new_limits=st.just(CustomerLimits()) | limits,
    )
    def configure(self, policy: Policy, dispatch: Any, every: int, turns: Any, new_limits: CustomerLimits) -> None:
        rules = Rules(policy, dispatch, every, self.engines[0].rules().version, limits=new_limits, turns=turns)
        self.all(lambda engine: engine.configure(rules, now_ms=self.now_ms))
        self.all(lambda engine: engine.configure(rules, now_ms=self.now_ms))

    @rule(customer=customers, new_terms=terms, stale=st.sampled_from((0, 0, 0, 1)))
    def tune(self, customer: str, new_terms: Terms, stale: int) -> None:
        version = self.engines[0].customer(customer).terms_version + stale
        self.all(lambda engine: engine.tune(customer, new_terms, version, now_ms=self.now_ms))

    @rule(customer=customers)
    def resume(self, customer: str) -> None:
        version = self.engines[0].customer(customer).terms_version
        self.all(lambda engine: engine.tune(customer, Terms(), version, now_ms=self.now_ms))

    @rule(kind=st.sampled_from(KINDS), limit=kind_limits, stale=st.sampled_from((0, 0, 0, 1)))
    def limit_kind(self, kind: str, limit: KindLimit, stale: int) -> None:
        version = self.engines[0].kind(kind).version + stale
        self.all(lambda engine: engine.limit_kind(kind, limit, version, now_ms=self.now_ms))

    @rule(kind=st.sampled_from(KINDS))
    def lift_limit(self, kind: str) -> None:
        version = self.engines[0].kind(kind).version
        self.all(lambda engine: engine.limit_kind(kind, KindLimit(), version, now_ms=self.now_ms))

    @rule(picks=st.lists(st.integers(0, 1000), max_size=6), priority=st.sampled_from((1, 1, 5, 9)))
    def prioritize(self, picks: list[int], priority: int) -> None:
        ids = [self.ids[pick % len(self.ids)] for pick in picks] if self.ids else ["unknown"]
        self.all(lambda engine: engine.prioritize(ids, priority, "ola", now_ms=self.now_ms))

    @rule(customer=customers, limit=st.sampled_from((1, 3, 1000)), recheck=st.booleans())
    def reprioritize(self, customer: str, limit: int, recheck: bool) -> None:
        after: int | None = 0
        while after is not None:
            now_ms, number = self.now_ms, after
            step = self.all(
                lambda engine: engine.reprioritize(customer, number, limit, recheck=recheck, now_ms=now_ms)  # noqa: B023
            )
            after = step.next

    @rule(customer=customers)
    def reset(self, customer: str) -> None:
        self.all(lambda engine: engine.reset(customer, now_ms=self.now_ms))

    @rule(customer=customers, limit=st.sampled_from((2, 1000)))
    def forget(self, customer: str, limit: int) -> None:
        self.all(lambda engine: engine.forget(customer, limit, now_ms=self.now_ms))

    @rule(key=st.sampled_from("ab"), value=st.sampled_from((None, "1", "2")), version=st.sampled_from((None, None, 0, 1, 2)))
    def put_record(self, key: str, value: str | None, version: int | None) -> None:
        self.all(lambda engine: engine.put_record("settings", key, value, version))
        self.all(lambda engine: engine.record("settings", key))
        self.all(lambda engine: engine.records("settings", "", 10))
        self.all(lambda engine: engine.records(ATTEMPTS, "", 100))

    @rule(part=st.sampled_from(get_args(TextPart)), is_stale=st.booleans())
    def rewrite(self, part: TextPart, is_stale: bool) -> None:
        """Replace what there is of every document, or of the feed; the texts that are compared afterwards show it."""
        engine = self.engines[0]
        packed = engine.pack(json.dumps(["documents", None]), 1000).documents
        texts = [(change.number, change.note) for change in engine.changes(None, 1000)] if part == "note" else [
            (each.snapshot.number, each.snapshot.reason if part == "reason" else getattr(each, part)) for each in packed
        ]  # fmt: skip
        rewrites = [Rewrite(number, text + "!" * is_stale, text + " ") for number, text in texts if text]
        self.all(lambda engine: engine.rewrite(part, rewrites))
        self.all(lambda engine: engine.pack(json.dumps(["documents", None]), 1000).documents)

    @rule(limit=st.sampled_from((1, 7, 1000)))
    def move(self, limit: int) -> None:
        """Move every queue into a fresh store; it must go on as if nothing had happened."""
        self.all(lambda engine: engine.reclaim(10_000, now_ms=self.now_ms + 10**9))
        self.freeze("is being moved")
        self.queue_index = 1 - self.queue_index
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        urls = [url_of(name, folder, self.queue_index) for name in ENGINES]
        self.urls += urls
        fresh = [open_engine(url) for url in urls]
        packed = self.all(lambda engine: engine.pack(None, limit))
        while True:
            for target in fresh:
                target.unpack(packed)
                target.unpack(packed)  # the same rows again change nothing
            if packed.cursor is None:
                break
            packed = self.all(lambda engine: engine.pack(packed.cursor, limit))  # noqa: B023
        for engine in self.engines:
            engine.close()
        self.engines = fresh
        self.all(lambda engine: engine.submit([Submission("late", "ada", "scan", "1")], now_ms=self.now_ms))
        self.all(lambda engine: engine.claim("w1", 1, 1000, now_ms=self.now_ms))
        self.freeze(None)

    def freeze(self, why: str | None) -> None:
        rules = replace(self.engines[0].rules(), frozen=why)
        self.all(lambda engine: engine.configure(rules, now_ms=self.now_ms))

    @rule(pick=st.integers(0, 1000))
    def read_document(self, pick: int) -> None:
        id = self.ids[pick % len(self.ids)] if self.ids else "unknown"
        self.all(lambda engine: engine.document(id))
        self.all(lambda engine: engine.body(id))
        self.all(lambda engine: engine.parts(id))
        self.all(lambda engine: engine.outlook(id, now_ms=self.now_ms))

    @rule(filter=filters, limit=st.sampled_from((1, 3, 100)), scan_max=st.sampled_from((1, 2, 7, 5000)))
    def list_some(self, filter: DocumentFilter, limit: int, scan_max: int) -> None:
        found = self.all(lambda engine: pages(engine, filter, limit, scan_max))
        assert [document for document in walk_documents(self.engines[0]) if filter.matches(document)] == found
        self.all(lambda engine: list(walk_documents(engine, filter, page_size=limit)))  # which goes by the dates

    @invariant()
    def all_read_the_same(self) -> None:
        if not hasattr(self, "engines"):
            return
        self.all(lambda engine: engine.customers("", 100, now_ms=self.now_ms))
        self.all(lambda engine: list(walk_documents(engine)))
        self.all(lambda engine: engine.changes(None, 100_000))
        self.all(lambda engine: engine.rules())
        self.all(lambda engine: engine.totals())
        self.all(lambda engine: engine.kinds("", 10))
        self.all(lambda engine: [engine.kind(kind) for kind in KINDS])
        kinds = self.all(lambda engine: engine.ready_kinds("", 10))
        if kinds:
            self.all(lambda engine: engine.ready_kinds("", 1))
            self.all(lambda engine: engine.ready_kinds(kinds[0].kind, 10))


TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
