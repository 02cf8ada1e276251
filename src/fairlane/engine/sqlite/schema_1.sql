-- Version 1 of a Fairlane file. Times are milliseconds; counters, costs, weights and tags are thousandths.

-- One row: the queue's own counters.
CREATE TABLE queue (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  dispatches INTEGER NOT NULL,      -- documents taken so far
  last_number INTEGER NOT NULL,     -- the last submission number used
  last_change INTEGER NOT NULL,
  changes_floor INTEGER NOT NULL,   -- changes up to this one were purged
  last_record INTEGER NOT NULL,     -- the last version of a record
  tunings INTEGER NOT NULL,         -- how often a customer was tuned; 0: no customer has terms, so none are read
  pace_from_ms INTEGER NOT NULL, pace_from_dispatches INTEGER NOT NULL,
  pace_mid_ms INTEGER NOT NULL, pace_mid_dispatches INTEGER NOT NULL
);
INSERT INTO queue VALUES (1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);

-- One row for each priority: its clock, its ready documents and their lanes.
CREATE TABLE priorities (
  priority INTEGER PRIMARY KEY, clock INTEGER NOT NULL, ready INTEGER NOT NULL, lanes INTEGER NOT NULL
);
INSERT INTO priorities VALUES (1,0,0,0), (2,0,0,0), (3,0,0,0), (4,0,0,0), (5,0,0,0), (6,0,0,0), (7,0,0,0), (8,0,0,0), (9,0,0,0);

-- Every version of the rules; the highest holds now.
CREATE TABLE rules (version INTEGER PRIMARY KEY, since_ms INTEGER NOT NULL, body TEXT NOT NULL);

CREATE TABLE customers (
  number INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  counter INTEGER NOT NULL DEFAULT 0, updated_ms INTEGER, reset_ms INTEGER, resets INTEGER NOT NULL DEFAULT 0
);

-- Every version of a customer's terms; the highest holds now.
CREATE TABLE terms (
  customer INTEGER NOT NULL, version INTEGER NOT NULL, since_ms INTEGER NOT NULL, body TEXT NOT NULL,
  PRIMARY KEY (customer, version)
) WITHOUT ROWID;

CREATE TABLE documents (
  number INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  customer INTEGER NOT NULL, customer_id TEXT NOT NULL, kind TEXT NOT NULL, state TEXT NOT NULL,
  -- its check
  priority INTEGER NOT NULL, counter INTEGER NOT NULL, checked_ms INTEGER NOT NULL,
  policy_version INTEGER NOT NULL, terms_version INTEGER NOT NULL, weight INTEGER NOT NULL, resets INTEGER NOT NULL,
  cost INTEGER NOT NULL, key TEXT, ready_ms INTEGER NOT NULL,
  attempts INTEGER NOT NULL, attempts_max INTEGER NOT NULL, token INTEGER NOT NULL,
  worker TEXT, lease_ms INTEGER, ended_ms INTEGER, reason TEXT
);
CREATE INDEX documents_by_customer ON documents (customer, number);
CREATE INDEX documents_delayed ON documents (ready_ms, number) WHERE state = 'delayed';
CREATE INDEX documents_running ON documents (lease_ms, number) WHERE state = 'running';
CREATE INDEX documents_ended ON documents (ended_ms, number) WHERE ended_ms IS NOT NULL;
CREATE INDEX documents_unhappy ON documents (state, number) WHERE state IN ('failed', 'cancelled');

-- Payloads and results have tables of their own, so that a change of state rewrites a small row only.
CREATE TABLE payloads (number INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE results (number INTEGER PRIMARY KEY, body TEXT NOT NULL);

CREATE TABLE keys (
  customer INTEGER NOT NULL, key TEXT NOT NULL, number INTEGER NOT NULL, digest TEXT,
  PRIMARY KEY (customer, key)
) WITHOUT ROWID;

-- Part 0 is a lane: it competes while it has a start tag, and keeps its finish tag without a head. A customer's counts are the
-- sums over its lanes. Part 1 is a ready document in a lane. They share one tree, so that the rows of a customer that a claim
-- touches are neighbours.
CREATE TABLE lanes (
  customer INTEGER NOT NULL, part INTEGER NOT NULL, kind TEXT NOT NULL, priority INTEGER NOT NULL, number INTEGER NOT NULL,
  ready_ms INTEGER,   -- of the document, or of the lane's head
  head INTEGER, start INTEGER, finish INTEGER,
  waiting INTEGER, running INTEGER, done INTEGER, failed INTEGER, cancelled INTEGER,
  PRIMARY KEY (customer, part, kind, priority, number)
) WITHOUT ROWID;
CREATE INDEX lanes_by_turn ON lanes (kind, priority, start, head) WHERE start IS NOT NULL;
CREATE INDEX lanes_by_age ON lanes (kind, ready_ms, head, priority) WHERE start IS NOT NULL;

CREATE TABLE changes (
  number INTEGER PRIMARY KEY,
  at_ms INTEGER NOT NULL, what TEXT NOT NULL, customer INTEGER, document INTEGER, token INTEGER, note TEXT
);

CREATE TABLE records (
  group_name TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, version INTEGER NOT NULL,
  PRIMARY KEY (group_name, key)
) WITHOUT ROWID;

-- The columns of a document that a change of its state needs, and those that readers need.
CREATE VIEW moving AS
  SELECT number, id, customer, kind, state, priority, token, attempts, attempts_max, cost, weight, resets, key,
         lease_ms
  FROM documents;
CREATE VIEW snapshots AS
  SELECT id, number, customer_id, kind, state, priority, counter, checked_ms, policy_version, terms_version, cost, key,
         ready_ms, attempts, attempts_max, token, worker, lease_ms, ended_ms, reason, customer
  FROM documents;
