-- Version 6 of a Fairlane schema: limits of customers, and what each of them keeps.

-- The most that a customer may have, see `CustomerLimits`. NULL: as everybody in its terms, no limit in everybody's rules.
CREATE TYPE fairlane.limits AS (
  waiting_max bigint, descendants_max bigint, documents_max bigint, bytes_max bigint, retries_max bigint
);

DROP VIEW fairlane.queue;
ALTER TABLE fairlane.counters ADD COLUMN limits fairlane.limits,
  ADD COLUMN uncounted bigint NOT NULL DEFAULT 0;  -- documents up to this number were stored by an older version, and what they take is not counted yet
UPDATE fairlane.counters SET limits = ROW(100000, 10000, NULL, NULL, 3)::fairlane.limits,
  uncounted = (SELECT CASE WHEN n.is_called THEN n.last_value ELSE 0 END FROM fairlane.numbers AS n);
CREATE VIEW fairlane.queue AS
  SELECT c.*,
    c.arrivals_floor > pg_snapshot_xmax(pg_current_snapshot())
      OR EXISTS (SELECT FROM fairlane.arrivals AS a WHERE a.xid >= c.arrivals_floor)
      OR EXISTS (SELECT FROM fairlane.arrivals AS a WHERE a.xid = ANY (c.awaited)) AS is_behind
  FROM fairlane.counters AS c ORDER BY c.revision DESC LIMIT 1;

DROP VIEW fairlane.customers;
ALTER TABLE fairlane.customer_terms ADD COLUMN limits fairlane.limits;
-- No more documents of the customer wait or run than this: counted up with each that is added, and again over all lanes only
-- when it would reach the customer's limit. NULL: to be counted.
ALTER TABLE fairlane.standings ADD COLUMN busy_most bigint;
ALTER TABLE fairlane.standings ALTER COLUMN busy_most SET DEFAULT 0;
CREATE VIEW fairlane.customers AS
  SELECT c.*, s.revision, s.counter, s.updated_ms, s.reset_ms, s.resets, s.busy_most, s.spot
  FROM fairlane.customer_terms AS c CROSS JOIN LATERAL (
    SELECT *, o.ctid AS spot FROM fairlane.standings AS o WHERE o.customer = c.number ORDER BY o.revision DESC LIMIT 1
  ) AS s;

ALTER TABLE fairlane.documents
  ADD COLUMN bytes bigint,                        -- of its payload and its file; NULL: stored by an older version, see `sizes`
  ADD COLUMN retries int NOT NULL DEFAULT 0,      -- by its customer, each of which replaces the check
  ADD COLUMN rechecked_ms bigint;                 -- the check of the last such retry; NULL: that of its submission
ALTER TABLE fairlane.endings ADD COLUMN bytes bigint;  -- of the result and its files

-- What is kept of a lane's documents.
ALTER TABLE fairlane.lanes ADD COLUMN documents bigint NOT NULL DEFAULT 0, ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
ALTER TYPE fairlane.lane_change ADD ATTRIBUTE documents int, ADD ATTRIBUTE bytes bigint;
ALTER TYPE fairlane.transition ADD ATTRIBUTE bytes bigint;

-- A family is a document, its root, and everything that came out of it. How many have come; senders count with the customer
-- locked. And whose descendants documents are, as long as they exist.
CREATE TABLE fairlane.families (root bigint PRIMARY KEY, descendants bigint NOT NULL);
CREATE TABLE fairlane.descendants (number bigint PRIMARY KEY, root bigint NOT NULL);
CREATE INDEX descendants_of_root ON fairlane.descendants (root);

-- What documents take. Those of an older version are not rewritten: their bytes follow from what is stored of them. (In the
-- patterns, the comma behind a number makes the shortest match end there.)
CREATE VIEW fairlane.sizes AS
  SELECT d.number, d.customer, d.kind, d.priority,
    coalesce(d.bytes, octet_length(d.payload)
      + coalesce(substring(d.payload FROM '^\{"fairlane\.file":\{.*?"size": (\d+),')::bigint, 0))
    + coalesce(e.bytes, octet_length(e.result) + coalesce((
        SELECT sum(m[1]::bigint)::bigint FROM regexp_matches(substring(
          e.result FROM '"fairlane\.results":(\{(?:"\w+":\{"size":\d+,"sha256":"\w+"\},?)+\})'), '"size":(\d+)', 'g') AS m), 0), 0)
    AS bytes
  FROM fairlane.documents AS d LEFT JOIN fairlane.endings AS e ON e.number = d.number;

-- A document as readers get it.
DROP VIEW fairlane.snapshots;
CREATE VIEW fairlane.snapshots AS
  SELECT d.id, d.number, c.id AS customer, d.kind, coalesce(w.state, e.state, a.state) AS state, d.priority, d.counter,
         coalesce(d.rechecked_ms, d.checked_ms) AS checked_ms,
         d.policy_version, d.terms_version, coalesce(w.cost, e.cost, a.cost) AS cost, d.key,
         coalesce(w.ready_ms, e.ready_ms, a.ready_ms) AS ready_ms, coalesce(w.attempts, e.attempts, 0) AS attempts,
         coalesce(w.attempts_max, e.attempts_max, 3) AS attempts_max, coalesce(w.token, e.token, 0) AS token,
         coalesce(w.worker, e.worker) AS worker, w.lease_ms, e.ended_ms, e.reason,
         CASE WHEN d.bytes IS NOT NULL AND (e.bytes IS NOT NULL OR e.result IS NULL) THEN d.bytes + coalesce(e.bytes, 0)
              ELSE (SELECT s.bytes FROM fairlane.sizes AS s WHERE s.number = d.number) END AS bytes,
         d.retries, d.checked_ms AS submitted_ms,
         d.customer AS customer_number
  FROM fairlane.documents AS d
  JOIN fairlane.customer_terms AS c ON c.number = d.customer
  LEFT JOIN fairlane.work AS w ON w.number = d.number
  LEFT JOIN fairlane.endings AS e ON e.number = d.number
  LEFT JOIN fairlane.arrivals AS a ON a.number = d.number;
