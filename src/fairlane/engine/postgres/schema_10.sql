-- Version 10 of a Fairlane schema: documents that go on as another kind, or are split into parts and wait for them.

DROP TYPE fairlane.transition;
DROP VIEW fairlane.snapshots;

-- Parts of documents; the whole may be gone.
CREATE TABLE fairlane.parts (number bigint PRIMARY KEY, whole bigint NOT NULL, whole_id text COLLATE "C" NOT NULL)
WITH (autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE INDEX parts_of_whole ON fairlane.parts (whole, number);

-- Documents that were split: since when (the number of the first part), into how many parts, and how many of these are not done.
CREATE TABLE fairlane.wholes (number bigint PRIMARY KEY, parts_from bigint NOT NULL, parts int NOT NULL, parts_left int NOT NULL)
WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- A document as readers get it.
CREATE VIEW fairlane.snapshots AS
  SELECT d.id, d.number, c.id AS customer, d.kind, coalesce(w.state, e.state, a.state) AS state,
         d.priority AS checked_priority, d.counter, coalesce(d.rechecked_ms, d.checked_ms) AS checked_ms,
         d.policy_version, d.terms_version, coalesce(w.cost, e.cost, a.cost) AS cost, d.key,
         coalesce(w.ready_ms, e.ready_ms, a.ready_ms) AS ready_ms, coalesce(w.attempts, e.attempts, 0) AS attempts,
         coalesce(w.attempts_max, e.attempts_max, 3) AS attempts_max, coalesce(w.token, e.token, 0) AS token,
         coalesce(w.worker, e.worker) AS worker, w.lease_ms, e.ended_ms, e.reason,
         coalesce(w.priority, e.priority, a.priority, d.priority) AS priority, d.no_better_than,
         coalesce(w.is_set_by_hand, e.is_set_by_hand, a.is_set_by_hand) AS is_set_by_hand,
         coalesce(w.claimed_ms, e.claimed_ms) AS claimed_ms,
         CASE WHEN d.bytes IS NOT NULL AND (e.bytes IS NOT NULL OR e.result IS NULL) THEN d.bytes + coalesce(e.bytes, 0)
              ELSE (SELECT s.bytes FROM fairlane.sizes AS s WHERE s.number = d.number) END AS bytes,
         d.retries, d.checked_ms AS submitted_ms, p.whole_id AS whole, coalesce(o.parts, 0) AS parts, coalesce(o.parts_left, 0) AS parts_left,
         d.customer AS customer_number
  FROM fairlane.documents AS d
  JOIN fairlane.customer_terms AS c ON c.number = d.customer
  LEFT JOIN fairlane.work AS w ON w.number = d.number
  LEFT JOIN fairlane.endings AS e ON e.number = d.number
  LEFT JOIN fairlane.arrivals AS a ON a.number = d.number
  LEFT JOIN fairlane.parts AS p ON p.number = d.number
  LEFT JOIN fairlane.wholes AS o ON o.number = d.number;

-- The new state of a document that leaves its worker, or ends; is_attempt: it says what attempts usually take. One that goes on has
-- another kind and payload: `bytes` are those of files, then.
CREATE TYPE fairlane.transition AS (
  number bigint, state text, what text, note text, result text, ready_ms bigint, attempts int, cost bigint, correction text,
  bytes bigint, is_attempt boolean, kind text, payload text
);
