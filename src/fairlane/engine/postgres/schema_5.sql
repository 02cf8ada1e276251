-- Version 5 of a Fairlane schema: old versions of rows that change often cost nothing.
-- A transaction that stays open anywhere in the database keeps the server from removing old row versions, and a lookup by a key
-- that stays the same walks past all of them. So rows that change with every verb have a revision at the end of their key, which
-- rises with its changes: read backwards, the index has the newest first. And scans of an index begin at a bound that is known.
-- Where a change touches no other indexed column, the revision rises with one in sixteen only: the others are in place (HOT).

-- The queue's own numbers and the current rules: one row, the one with the highest revision. Only holders of the lock change it.
CREATE TABLE fairlane.counters (
  revision bigint PRIMARY KEY,
  dispatches bigint NOT NULL DEFAULT 0,      -- documents taken so far
  last_change bigint NOT NULL DEFAULT 0,
  changes_floor bigint NOT NULL DEFAULT 0,   -- changes up to this one were purged
  last_record bigint NOT NULL DEFAULT 0,     -- the last version of a record
  tunings bigint NOT NULL DEFAULT 0,         -- how often a customer was tuned; 0: no customer has a cap, so caps are not read
  pace_from_ms bigint NOT NULL DEFAULT 0, pace_from_dispatches bigint NOT NULL DEFAULT 0,
  pace_mid_ms bigint NOT NULL DEFAULT 0, pace_mid_dispatches bigint NOT NULL DEFAULT 0,
  -- by priority: its clock V, how many documents are ready in it, and in how many lanes
  clocks bigint[] NOT NULL DEFAULT '{0,0,0,0,0,0,0,0,0}',
  ready bigint[] NOT NULL DEFAULT '{0,0,0,0,0,0,0,0,0}',
  lanes bigint[] NOT NULL DEFAULT '{0,0,0,0,0,0,0,0,0}',
  rules_version int NOT NULL, interval_ms bigint NOT NULL, depths bigint[] NOT NULL, reset text NOT NULL,
  dispatch text NOT NULL, open_turn_every int NOT NULL,
  frozen text,   -- why nothing new may begin; NULL: it may
  -- bounds: no lease ends before, no delayed document is due before, no bound by age in `kinds` is higher
  leases_floor bigint NOT NULL DEFAULT -9223372036854775808,
  delayed_floor bigint NOT NULL DEFAULT -9223372036854775808,
  ages_floor bigint NOT NULL DEFAULT -9223372036854775808,
  -- which transactions may have arrivals that were not absorbed: those from this one on, and these before it
  arrivals_floor xid8 NOT NULL DEFAULT '0', awaited xid8[] NOT NULL DEFAULT '{}'
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
INSERT INTO fairlane.counters (revision, dispatches, last_change, changes_floor, last_record, tunings, pace_from_ms,
  pace_from_dispatches, pace_mid_ms, pace_mid_dispatches, clocks, ready, lanes, rules_version, interval_ms, depths, reset, dispatch,
  open_turn_every, frozen)
SELECT 1, dispatches, last_change, changes_floor, last_record, tunings, pace_from_ms, pace_from_dispatches, pace_mid_ms,
  pace_mid_dispatches, clocks, ready, lanes, rules_version, interval_ms, depths, reset, dispatch, open_turn_every, frozen
FROM fairlane.queue;

-- One row that never changes: a session that changes documents, lanes or the feed locks it.
CREATE TABLE fairlane.queue_lock (one boolean PRIMARY KEY DEFAULT true CHECK (one));
INSERT INTO fairlane.queue_lock DEFAULT VALUES;
DROP TABLE fairlane.queue;

-- Arrivals carry the transaction that added them: those of transactions that were over at the last look were absorbed then.
ALTER TABLE fairlane.arrivals ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id();
CREATE INDEX arrivals_by_transaction ON fairlane.arrivals (xid);

-- The queue, and whether documents have arrived that are not in their lanes yet. A transaction of the future is one of another
-- server, where this database was before it was restored here.
CREATE VIEW fairlane.queue AS
  SELECT c.*,
    c.arrivals_floor > pg_snapshot_xmax(pg_current_snapshot())
      OR EXISTS (SELECT FROM fairlane.arrivals AS a WHERE a.xid >= c.arrivals_floor)
      OR EXISTS (SELECT FROM fairlane.arrivals AS a WHERE a.xid = ANY (c.awaited)) AS is_behind
  FROM fairlane.counters AS c ORDER BY c.revision DESC LIMIT 1;

-- A customer: its id, and its terms as the arithmetic needs them. A session that moves its counter locks its row; only new terms
-- change it.
ALTER TABLE fairlane.customers RENAME TO customer_terms;

-- The counters of customers: of each one row, the one with the highest revision. Only holders of the customer's lock change it.
CREATE TABLE fairlane.standings (
  customer bigint NOT NULL, revision bigint NOT NULL DEFAULT 1,
  counter bigint NOT NULL DEFAULT 0, updated_ms bigint, reset_ms bigint, resets bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (customer, revision)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
INSERT INTO fairlane.standings (customer, counter, updated_ms, reset_ms, resets)
SELECT number, counter, updated_ms, reset_ms, resets FROM fairlane.customer_terms;
ALTER TABLE fairlane.customer_terms DROP COLUMN counter, DROP COLUMN updated_ms, DROP COLUMN reset_ms, DROP COLUMN resets;

CREATE VIEW fairlane.customers AS
  SELECT c.*, s.revision, s.counter, s.updated_ms, s.reset_ms, s.resets, s.spot
  FROM fairlane.customer_terms AS c CROSS JOIN LATERAL (
    SELECT *, o.ctid AS spot FROM fairlane.standings AS o WHERE o.customer = c.number ORDER BY o.revision DESC LIMIT 1
  ) AS s;

-- Of each lane one row, the one with the highest revision. Only holders of the queue's lock change it.
ALTER TABLE fairlane.lanes ADD COLUMN revision bigint NOT NULL DEFAULT 1, DROP CONSTRAINT lanes_pkey,
  ADD PRIMARY KEY (customer, kind, priority, revision);

-- A lane that competes, with its head; `turns` counts those it got in a claim.
-- `OFFSET 0` keeps the planner from reading a whole index where statistics say that there is one row.
CREATE OR REPLACE VIEW fairlane.competing AS
  SELECT l.customer, c.id AS name, l.kind, l.priority, l.head, l.ready_ms, w.cost, l.start, l.finish, c.weight, c.cap, 0 AS turns, l.ctid AS spot
  FROM fairlane.lanes AS l
  JOIN fairlane.customer_terms AS c ON c.number = l.customer
  CROSS JOIN LATERAL (SELECT o.cost FROM fairlane.work AS o WHERE o.number = l.head OFFSET 0) AS w
  WHERE l.start IS NOT NULL;

-- For claims of all kinds: the order of turns, and by age. `+ 0` keeps the planner from taking them for the lanes of one kind while
-- statistics say that there is hardly a lane: it would read the lanes of all.
CREATE INDEX lanes_by_turn_of_all ON fairlane.lanes (priority, (start + 0), head) WHERE start IS NOT NULL;
CREATE INDEX lanes_by_age_of_all ON fairlane.lanes ((ready_ms + 0), head) WHERE start IS NOT NULL;

-- Where scans of a kind's competing lanes begin: by priority the lowest start tag, at 0 the longest time since when a head is
-- ready. The kind '' stands for all. Of each kind one row, the one with the highest revision; a kind without one has no bounds.
CREATE TABLE fairlane.kinds (
  kind text COLLATE "C" NOT NULL, revision bigint NOT NULL DEFAULT 1,
  bounds bigint[] NOT NULL DEFAULT array_fill('-9223372036854775808'::bigint, ARRAY[10], ARRAY[0]),
  PRIMARY KEY (kind, revision)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- The first competing lane of a kind that a claim has not read yet.
CREATE TYPE fairlane.first_lane AS (kind text, tag bigint, head bigint);

-- Heads that a claim reads in order, of some kinds in one priority (0: by age). A kind is read when its first lane is reached.
CREATE TYPE fairlane.heads AS (
  kinds text[],
  priority int,
  kinds_to_come refcursor, next_kind fairlane.first_lane,
  lanes fairlane.competing[],  -- of each kind that is read the next one, in order
  cursors refcursor[]          -- and those that follow it
);
