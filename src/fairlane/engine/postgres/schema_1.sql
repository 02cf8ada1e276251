-- Version 1 of a Fairlane schema. Times are milliseconds; counters, costs, weights and tags are thousandths.
-- All names carry the schema fairlane, which is replaced by another schema's name when that one is created.

-- Which version this schema has.
CREATE TABLE fairlane.version (version int NOT NULL);

-- One row: the queue's own counters and the current rules. A session that changes documents, lanes or the feed locks it.
CREATE TABLE fairlane.queue (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
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
  frozen text   -- why nothing new may begin; NULL: it may
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Every version of the rules there ever was; the highest is current.
CREATE TABLE fairlane.rules (version int PRIMARY KEY, since_ms bigint NOT NULL, body text NOT NULL);

-- A customer: its standing, and its terms as the arithmetic needs them. A session that moves its counter locks its row.
CREATE TABLE fairlane.customers (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id text COLLATE "C" NOT NULL UNIQUE,
  counter bigint NOT NULL DEFAULT 0, updated_ms bigint, reset_ms bigint, resets bigint NOT NULL DEFAULT 0,
  terms_version int NOT NULL DEFAULT 0, weight int NOT NULL DEFAULT 1000, cap int, paused boolean NOT NULL DEFAULT false,
  interval_ms bigint, depths bigint[], reset text   -- NULL: as in the rules
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- Every version of a customer's terms there ever was; the highest is current.
CREATE TABLE fairlane.terms (
  customer bigint NOT NULL, version int NOT NULL, since_ms bigint NOT NULL, body text NOT NULL,
  PRIMARY KEY (customer, version)
);

-- What never changes of a document: its payload and its check. Rows are added and purged, never rewritten.
CREATE SEQUENCE fairlane.numbers;
CREATE TABLE fairlane.documents (
  number bigint PRIMARY KEY,
  customer bigint NOT NULL,
  counter bigint NOT NULL, checked_ms bigint NOT NULL, resets bigint NOT NULL,
  policy_version int NOT NULL, terms_version int NOT NULL, weight int NOT NULL,
  priority smallint NOT NULL,
  id text COLLATE "C" NOT NULL UNIQUE,
  kind text COLLATE "C" NOT NULL,
  key text COLLATE "C", digest text COLLATE "C",
  payload text NOT NULL
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE INDEX documents_by_customer ON fairlane.documents (customer, number);
CREATE UNIQUE INDEX documents_by_key ON fairlane.documents (customer, key) WHERE key IS NOT NULL;

-- The hot table: documents that wait or run; only those that run have a lease. Documents that ended are in `endings`.
CREATE TABLE fairlane.work (
  number bigint PRIMARY KEY,
  customer bigint NOT NULL,
  ready_ms bigint NOT NULL, lease_ms bigint,
  cost bigint NOT NULL, token bigint NOT NULL DEFAULT 0, attempts int NOT NULL DEFAULT 0, attempts_max int NOT NULL DEFAULT 3,
  priority smallint NOT NULL,
  state text NOT NULL,
  id text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  worker text
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2);
CREATE INDEX work_in_lane ON fairlane.work (customer, kind, priority, number) WHERE state = 'ready';
CREATE INDEX work_delayed ON fairlane.work (ready_ms, number) WHERE state = 'delayed';
CREATE INDEX work_running ON fairlane.work (lease_ms, number) WHERE lease_ms IS NOT NULL;

-- How documents ended. Rows are added and purged; only an operator's retry takes one back.
CREATE TABLE fairlane.endings (
  number bigint PRIMARY KEY,
  ended_ms bigint NOT NULL, ready_ms bigint NOT NULL,
  cost bigint NOT NULL, token bigint NOT NULL, attempts int NOT NULL, attempts_max int NOT NULL,
  state text NOT NULL, worker text, reason text, result text
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE INDEX endings_by_age ON fairlane.endings (ended_ms, number);
CREATE INDEX endings_unhappy ON fairlane.endings (state, number) WHERE state IN ('failed', 'cancelled');

-- Documents submitted inside callers' transactions: the next session that locks the queue puts them into their lanes.
CREATE TABLE fairlane.arrivals (
  number bigint PRIMARY KEY, ready_ms bigint NOT NULL, cost bigint NOT NULL, state text NOT NULL, note text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- A lane competes while it has a start tag, and keeps its finish tag without a head. A customer's counts are the sums over its
-- lanes.
CREATE TABLE fairlane.lanes (
  customer bigint NOT NULL,
  head bigint, ready_ms bigint, start bigint, finish bigint NOT NULL DEFAULT 0,
  waiting bigint NOT NULL, running bigint NOT NULL, done bigint NOT NULL, failed bigint NOT NULL, cancelled bigint NOT NULL,
  priority smallint NOT NULL,
  kind text COLLATE "C" NOT NULL,
  PRIMARY KEY (customer, kind, priority)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX lanes_by_turn ON fairlane.lanes (kind, priority, start, head) WHERE start IS NOT NULL;
CREATE INDEX lanes_by_age ON fairlane.lanes (kind, ready_ms, head) WHERE start IS NOT NULL;

-- The feed.
CREATE TABLE fairlane.changes (
  number bigint PRIMARY KEY,
  at_ms bigint NOT NULL, customer bigint, document bigint, token bigint, what text NOT NULL, note text
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

CREATE TABLE fairlane.records (
  group_name text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, value text NOT NULL, version bigint NOT NULL,
  PRIMARY KEY (group_name, key)
);

-- A document as readers get it.
CREATE VIEW fairlane.snapshots AS
  SELECT d.id, d.number, c.id AS customer, d.kind, coalesce(w.state, e.state, a.state) AS state, d.priority, d.counter, d.checked_ms,
         d.policy_version, d.terms_version, coalesce(w.cost, e.cost, a.cost) AS cost, d.key,
         coalesce(w.ready_ms, e.ready_ms, a.ready_ms) AS ready_ms, coalesce(w.attempts, e.attempts, 0) AS attempts,
         coalesce(w.attempts_max, e.attempts_max, 3) AS attempts_max, coalesce(w.token, e.token, 0) AS token,
         coalesce(w.worker, e.worker) AS worker, w.lease_ms, e.ended_ms, e.reason,
         d.customer AS customer_number
  FROM fairlane.documents AS d
  JOIN fairlane.customers AS c ON c.number = d.customer
  LEFT JOIN fairlane.work AS w ON w.number = d.number
  LEFT JOIN fairlane.endings AS e ON e.number = d.number
  LEFT JOIN fairlane.arrivals AS a ON a.number = d.number;

-- What one document's change of state does to its lane's counts; ready: it joins (1) or leaves (-1) those that may be claimed.
CREATE TYPE fairlane.shift AS (
  number bigint, customer bigint, kind text, priority smallint,
  ready int, waiting int, running int, done int, failed int, cancelled int
);

-- The new state of a document that leaves its worker, or ends.
CREATE TYPE fairlane.move AS (
  number bigint, state text, what text, note text, result text, ready_ms bigint, attempts int, cost bigint, correction text
);

