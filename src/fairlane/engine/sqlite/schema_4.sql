-- Version 4 of a Fairlane file: clocks a kind, cross tags, turns paid with time, a sliding count, limits of kinds, and steering.

-- Tags between kinds. `competing` is 1 while a lane has a start tag: an index by age need not be rewritten when only tags move.
ALTER TABLE lanes ADD COLUMN cross_tag INTEGER;
ALTER TABLE lanes ADD COLUMN cross_finish INTEGER;
ALTER TABLE lanes ADD COLUMN competing INTEGER;
UPDATE lanes SET competing = CASE WHEN start IS NOT NULL THEN 1 END,
       cross_tag = CASE (SELECT json_extract(body, '$.dispatch') FROM rules ORDER BY version DESC LIMIT 1)
         WHEN 'strict' THEN 0 ELSE (SELECT clock FROM priorities AS p WHERE p.priority = lanes.priority) END,
       cross_finish = (SELECT clock FROM priorities AS p WHERE p.priority = lanes.priority)
WHERE part = 0;
DROP INDEX lanes_by_turn;
DROP INDEX lanes_by_age;
DROP INDEX lanes_by_turn_of_all;
DROP INDEX lanes_by_age_of_all;
CREATE INDEX lanes_by_turn ON lanes (kind, priority, start, cross_tag, head) WHERE start IS NOT NULL;
CREATE INDEX lanes_by_number ON lanes (kind, priority, start, head) WHERE start IS NOT NULL;
CREATE INDEX lanes_by_age ON lanes (kind, ready_ms, head, priority) WHERE competing = 1;

-- A kind: its clocks by priority as JSON, its limit, its first lane in the order of turns, and its head that was ready first.
CREATE TABLE kinds (
  kind TEXT PRIMARY KEY,
  clocks TEXT NOT NULL,             -- of priorities 1 to 9
  limits TEXT,                      -- running, rate and burst as JSON; NULL: it never had a limit
  version INTEGER NOT NULL,         -- of its limit
  running INTEGER NOT NULL,         -- counted while it has a limit
  tokens INTEGER, tokens_ms INTEGER NOT NULL,  -- its bucket; NULL: full
  blocked INTEGER NOT NULL,         -- 1: at its limit
  floors TEXT,                      -- the clocks of priorities when it was last unblocked: cross tags count as no less
  priority INTEGER, start INTEGER, cross_tag INTEGER, head INTEGER,  -- of its first lane; NULL: none competes
  ready_ms INTEGER, oldest INTEGER  -- of the head that was ready first
) WITHOUT ROWID;
CREATE INDEX kinds_by_turn ON kinds (priority, cross_tag, head) WHERE head IS NOT NULL AND blocked = 0;
CREATE INDEX kinds_by_age ON kinds (ready_ms, oldest) WHERE oldest IS NOT NULL AND blocked = 0;
CREATE INDEX kinds_limited ON kinds (kind) WHERE limits IS NOT NULL;
INSERT INTO kinds (kind, clocks, version, running, tokens_ms, blocked, priority, start, cross_tag, head, ready_ms, oldest)
SELECT k.kind, (SELECT json_group_array(clock) FROM (SELECT clock FROM priorities ORDER BY priority)), 0, 0, 0, 0,
       f.priority, f.start, f.cross_tag, f.head, o.ready_ms, o.head
FROM (SELECT DISTINCT kind FROM lanes WHERE part = 0) AS k
LEFT JOIN lanes AS f ON (f.customer, f.part, f.kind, f.priority, f.number) = (
  SELECT customer, part, kind, priority, number FROM lanes WHERE kind = k.kind AND start IS NOT NULL
  ORDER BY priority, start, cross_tag, head LIMIT 1)
LEFT JOIN lanes AS o ON (o.customer, o.part, o.kind, o.priority, o.number) = (
  SELECT customer, part, kind, priority, number FROM lanes WHERE kind = k.kind AND competing = 1 ORDER BY ready_ms, head LIMIT 1);

-- Dispatches are counted once for each set of kinds that workers ask for: a JSON list, or null for all kinds.
CREATE TABLE dispatches (kinds TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO dispatches SELECT 'null', dispatches FROM queue;

-- For estimates: documents that were taken after they had waited, and for how long anything has waited, up to a moment.
ALTER TABLE priorities ADD COLUMN taken INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queue ADD COLUMN busy_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queue ADD COLUMN ticked_ms INTEGER NOT NULL DEFAULT 0;
-- What attempts usually take, in thousandths of a millisecond; that of one customer is in part 2 of its lanes, as their finish.
ALTER TABLE queue ADD COLUMN usual INTEGER;
ALTER TABLE queue DROP COLUMN dispatches;
ALTER TABLE queue DROP COLUMN pace_from_ms;
ALTER TABLE queue DROP COLUMN pace_from_dispatches;
ALTER TABLE queue DROP COLUMN pace_mid_ms;
ALTER TABLE queue DROP COLUMN pace_mid_dispatches;

ALTER TABLE customers DROP COLUMN reset_ms;
ALTER TABLE customers ADD COLUMN parts TEXT;  -- what was sent in which part of a sliding interval, as JSON; NULL: nothing

ALTER TABLE documents ADD COLUMN checked_priority INTEGER;  -- what its check gave; NULL: the same as its priority
ALTER TABLE documents ADD COLUMN no_better_than INTEGER;
ALTER TABLE documents ADD COLUMN by_hand INTEGER NOT NULL DEFAULT 0;  -- 1: an operator set its priority
ALTER TABLE documents ADD COLUMN claimed_ms INTEGER;        -- its newest claim; NULL: none, or by an older version
ALTER TABLE documents ADD COLUMN paid INTEGER;              -- for that turn; NULL: it is not trued up

DROP VIEW moving;
CREATE VIEW moving AS
  SELECT number, id, customer, kind, state, priority, token, attempts, attempts_max, cost, weight, resets, key,
         lease_ms, bytes, root, customer_id, coalesce(rechecked_ms, checked_ms) AS checked_ms, claimed_ms, paid
  FROM documents;
DROP VIEW snapshots;
CREATE VIEW snapshots AS
  SELECT id, number, customer_id, kind, state, coalesce(checked_priority, priority) AS checked_priority, counter,
         coalesce(rechecked_ms, checked_ms) AS checked_ms, policy_version, terms_version, cost, key, ready_ms, attempts,
         attempts_max, token, worker, lease_ms, ended_ms, reason, priority, no_better_than, by_hand, claimed_ms,
         coalesce(bytes, 0) AS bytes, retries, checked_ms AS submitted_ms, customer
  FROM documents;
