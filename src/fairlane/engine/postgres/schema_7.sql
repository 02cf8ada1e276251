-- Version 7 of a Fairlane schema: clocks and first lanes of kinds, turns paid in time, limits of kinds, priorities set by hand,
-- counters over a sliding interval. Lanes are not rewritten: their cross tags begin at 0, as does the clock of each priority.

DROP TYPE fairlane.heads, fairlane.first_lane, fairlane.turn, fairlane.lane_change, fairlane.transition;
DROP VIEW fairlane.competing, fairlane.queue, fairlane.customers, fairlane.snapshots, fairlane.sizes;

-- How many documents were taken, by set of kinds that workers ask for. Of each set one row, the one with the highest revision.
CREATE TABLE fairlane.dispatches (
  digest text COLLATE "C" NOT NULL,   -- of the set's names, which may be too long for an index; '' for all kinds
  revision bigint NOT NULL DEFAULT 1,
  kinds text[],                       -- sorted; NULL: all kinds
  number bigint NOT NULL,             -- of the last dispatch
  PRIMARY KEY (digest, revision)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
INSERT INTO fairlane.dispatches (digest, kinds, number) SELECT '', NULL, dispatches FROM fairlane.counters WHERE dispatches > 0;

-- Of the lanes of a kind the lowest start tag is first, then the lowest cross tag, then the lowest number. Where cross tags count
-- as the floor of their kind, see below, an index without them has the order.
ALTER TABLE fairlane.lanes ADD COLUMN cross_tag bigint NOT NULL DEFAULT 0, ADD COLUMN cross_finish bigint NOT NULL DEFAULT 0;
DROP INDEX fairlane.lanes_by_turn, fairlane.lanes_by_turn_of_all, fairlane.lanes_by_age_of_all;
CREATE INDEX lanes_by_tags ON fairlane.lanes (kind, priority, start, cross_tag, head) WHERE start IS NOT NULL;
CREATE INDEX lanes_by_start ON fairlane.lanes (kind, priority, start, head) WHERE start IS NOT NULL;

-- A kind: its clocks, its first lanes, its limit. Of each kind one row, the one with the highest revision. Only holders of the
-- queue's lock change it.
DELETE FROM fairlane.kinds;
ALTER TABLE fairlane.kinds DROP COLUMN bounds,
  ADD COLUMN clocks bigint[] NOT NULL DEFAULT '{0,0,0,0,0,0,0,0,0}',   -- V by priority: no lane that competes there starts lower
  -- the first lane in the order of turns, and the head that was ready first; NULL: no lane competes
  ADD COLUMN first_priority smallint, ADD COLUMN first_start bigint, ADD COLUMN first_cross bigint, ADD COLUMN first_head bigint,
  ADD COLUMN oldest_ms bigint, ADD COLUMN oldest_head bigint,
  ADD COLUMN is_blocked boolean NOT NULL DEFAULT false,   -- at its limit: its lanes do not compete, but keep their start tags
  ADD COLUMN opens_ms bigint,                             -- it is blocked by its rate alone, until then
  ADD COLUMN floors bigint[],   -- by priority the clock when it was last unblocked: cross tags count as no less; NULL: it never was
  ADD COLUMN version int NOT NULL DEFAULT 0,              -- of its limit; 0: it never had one
  ADD COLUMN running_max int, ADD COLUMN rate bigint, ADD COLUMN burst bigint NOT NULL DEFAULT 1000,
  ADD COLUMN running bigint NOT NULL DEFAULT 0,           -- counted once it has a limit, as is its bucket
  ADD COLUMN tokens bigint, ADD COLUMN tokens_ms bigint NOT NULL DEFAULT 0;
CREATE INDEX kinds_by_turn ON fairlane.kinds (first_priority, first_cross, first_head)
  WHERE first_head IS NOT NULL AND NOT is_blocked;
CREATE INDEX kinds_by_age ON fairlane.kinds (oldest_ms, oldest_head) WHERE oldest_head IS NOT NULL AND NOT is_blocked;
CREATE INDEX kinds_by_rate ON fairlane.kinds (opens_ms) WHERE opens_ms IS NOT NULL;
CREATE INDEX kinds_with_limit ON fairlane.kinds (kind, revision) WHERE version > 0;

-- A clock is at most the lowest start tag: with the one clock of a priority, lanes could be behind it.
INSERT INTO fairlane.kinds (kind, clocks, first_priority, first_start, first_cross, first_head, oldest_ms, oldest_head)
SELECT n.kind, ARRAY(
    SELECT least(q.clocks[level], (SELECT l.start FROM fairlane.lanes AS l
      WHERE l.kind = n.kind AND l.priority = level AND l.start IS NOT NULL ORDER BY l.start LIMIT 1))
    FROM generate_series(1, 9) AS level ORDER BY level),
  f.priority, f.start, CASE WHEN f.head IS NOT NULL THEN 0 END, f.head, a.ready_ms, a.head
FROM (SELECT DISTINCT kind FROM fairlane.lanes WHERE kind <> '') AS n
CROSS JOIN fairlane.counters AS q
LEFT JOIN LATERAL (SELECT * FROM fairlane.lanes AS l WHERE l.kind = n.kind AND l.start IS NOT NULL
  ORDER BY l.priority, l.start, l.cross_tag, l.head LIMIT 1) AS f ON true
LEFT JOIN LATERAL (SELECT * FROM fairlane.lanes AS l WHERE l.kind = n.kind AND l.start IS NOT NULL
  ORDER BY l.ready_ms, l.head LIMIT 1) AS a ON true;

-- What attempts of a customer usually take, in thousandths of a millisecond. Of each customer one row, the one with the highest
-- revision. Only holders of the queue's lock change it.
CREATE TABLE fairlane.usuals (
  customer bigint NOT NULL, revision bigint NOT NULL DEFAULT 1, usual bigint NOT NULL, PRIMARY KEY (customer, revision)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

ALTER TABLE fairlane.counters DROP COLUMN dispatches, DROP COLUMN pace_from_ms, DROP COLUMN pace_from_dispatches,
  DROP COLUMN pace_mid_ms, DROP COLUMN pace_mid_dispatches,
  ADD COLUMN turns text NOT NULL DEFAULT 'time',
  ADD COLUMN usual bigint,                                 -- what attempts of everybody usually take
  ADD COLUMN busy_ms bigint NOT NULL DEFAULT 0,            -- for so long something could have been taken ...
  ADD COLUMN ticked_ms bigint NOT NULL DEFAULT 0,          -- ... counted until then
  ADD COLUMN taken bigint[] NOT NULL DEFAULT '{0,0,0,0,0,0,0,0,0}',   -- by priority: documents that had waited
  ADD COLUMN limited bigint NOT NULL DEFAULT 0,            -- how often a kind was limited; 0: none has a limit
  -- bounds: the head that was ready first in any kind (with `ages_floor`), the lowest cross tag of a kind's first lane by
  -- priority, when the first kind opens that its rate blocks, and until when the rate of a kind that is open was spent
  ADD COLUMN ages_head bigint NOT NULL DEFAULT 0,
  ADD COLUMN cross_bounds bigint[] NOT NULL DEFAULT '{0,0,0,0,0,0,0,0,0}',
  ADD COLUMN opens_next bigint NOT NULL DEFAULT 9223372036854775807,
  ADD COLUMN opened_last bigint NOT NULL DEFAULT 0;
-- `clocks` are W from here on. The rules `window` and `gradual` are gone: nothing new begins until an operator has chosen another.
UPDATE fairlane.counters SET clocks = '{0,0,0,0,0,0,0,0,0}', ages_floor = -9223372036854775808,
  frozen = coalesce(frozen, CASE WHEN reset NOT IN ('idle', 'sliding') THEN
    format('has rules with reset = %s, which is gone: `fairlane policy --reset sliding` sets its successor', reset) END);
CREATE VIEW fairlane.queue AS
  SELECT c.*,
    c.arrivals_floor > pg_snapshot_xmax(pg_current_snapshot())
      OR EXISTS (SELECT FROM fairlane.arrivals AS a WHERE a.xid >= c.arrivals_floor)
      OR EXISTS (SELECT FROM fairlane.arrivals AS a WHERE a.xid = ANY (c.awaited)) AS is_behind
  FROM fairlane.counters AS c ORDER BY c.revision DESC LIMIT 1;

-- What a customer has sent lately, under a sliding interval: start of a part, thousandths sent in it, start of the next, …
ALTER TABLE fairlane.standings DROP COLUMN reset_ms, ADD COLUMN parts bigint[];
CREATE TYPE fairlane.standing AS (counter bigint, updated_ms bigint, resets bigint, parts bigint[]);
CREATE VIEW fairlane.customers AS
  SELECT c.*, s.revision, s.counter, s.updated_ms, s.resets, s.parts, s.busy_most, s.spot
  FROM fairlane.customer_terms AS c CROSS JOIN LATERAL (
    SELECT *, o.ctid AS spot FROM fairlane.standings AS o WHERE o.customer = c.number ORDER BY o.revision DESC LIMIT 1
  ) AS s;

-- The priority of a document's lane is in `work` while it waits or runs, in `endings` after that (NULL: that of its check), and in
-- `arrivals` if it inherited one.
ALTER TABLE fairlane.documents ADD COLUMN no_better_than smallint;
ALTER TABLE fairlane.work ADD COLUMN is_set_by_hand boolean NOT NULL DEFAULT false,
  ADD COLUMN claimed_ms bigint,   -- its newest claim; NULL: none, or by an older version
  ADD COLUMN paid bigint;         -- for the turn that took it, in milliseconds; NULL: it is not trued up
ALTER TABLE fairlane.endings ADD COLUMN priority smallint, ADD COLUMN is_set_by_hand boolean NOT NULL DEFAULT false,
  ADD COLUMN claimed_ms bigint;
ALTER TABLE fairlane.arrivals ADD COLUMN priority smallint, ADD COLUMN is_set_by_hand boolean NOT NULL DEFAULT false;
CREATE INDEX work_delayed_of_customer ON fairlane.work (customer, number) WHERE state = 'delayed';

-- What documents take, and in which lane they are or were. Those of an older version are not rewritten: their bytes follow from
-- what is stored of them. (In the patterns, the comma behind a number makes the shortest match end there.)
CREATE VIEW fairlane.sizes AS
  SELECT d.number, d.customer, d.kind, coalesce(w.priority, e.priority, d.priority) AS priority,
    coalesce(d.bytes, octet_length(d.payload)
      + coalesce(substring(d.payload FROM '^\{"fairlane\.file":\{.*?"size": (\d+),')::bigint, 0))
    + coalesce(e.bytes, octet_length(e.result) + coalesce((
        SELECT sum(m[1]::bigint)::bigint FROM regexp_matches(substring(
          e.result FROM '"fairlane\.results":(\{(?:"\w+":\{"size":\d+,"sha256":"\w+"\},?)+\})'), '"size":(\d+)', 'g') AS m), 0), 0)
    AS bytes
  FROM fairlane.documents AS d
  LEFT JOIN fairlane.work AS w ON w.number = d.number LEFT JOIN fairlane.endings AS e ON e.number = d.number;

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
         d.retries, d.checked_ms AS submitted_ms,
         d.customer AS customer_number
  FROM fairlane.documents AS d
  JOIN fairlane.customer_terms AS c ON c.number = d.customer
  LEFT JOIN fairlane.work AS w ON w.number = d.number
  LEFT JOIN fairlane.endings AS e ON e.number = d.number
  LEFT JOIN fairlane.arrivals AS a ON a.number = d.number;

-- A head with its lane, what its turn costs, and the document behind it. `OFFSET 0` keeps the planner from reading a whole index
-- where statistics say that there is one row.
CREATE VIEW fairlane.lane_heads AS
  SELECT w.customer, w.priority, w.number AS head, w.ready_ms, w.cost, l.start, l.cross_tag, l.finish,
    l.cross_finish, l.spot, c.id AS name, c.weight, c.cap, u.usual, n.number AS next_head, n.ready_ms AS next_ready
  FROM fairlane.work AS w
  CROSS JOIN LATERAL (
    SELECT *, o.ctid AS spot FROM fairlane.lanes AS o
    WHERE o.customer = w.customer AND o.kind = w.kind AND o.priority = w.priority ORDER BY o.revision DESC LIMIT 1
  ) AS l
  CROSS JOIN LATERAL (SELECT * FROM fairlane.customer_terms AS o WHERE o.number = w.customer OFFSET 0) AS c
  LEFT JOIN LATERAL (
    SELECT o.usual FROM fairlane.usuals AS o WHERE o.customer = w.customer ORDER BY o.revision DESC LIMIT 1
  ) AS u ON true
  LEFT JOIN LATERAL (
    SELECT o.number, o.ready_ms FROM fairlane.work AS o
    WHERE o.customer = w.customer AND o.kind = w.kind AND o.priority = w.priority AND o.state = 'ready' AND o.number > w.number
    ORDER BY o.number LIMIT 1
  ) AS n ON true;

-- A turn that a claim has dispatched: the document, what its lane paid (NULL: it will not be trued up), and who sent it.
CREATE TYPE fairlane.turn AS (number bigint, paid bigint, customer text, is_open boolean);

-- A kind among others, by its first lane.
CREATE TYPE fairlane.kind_entry AS (priority smallint, cross_tag bigint, head bigint, kind text);

-- What one document's change of state does to its lane's counts; ready: it joins (1) or leaves (-1) those that may be claimed;
-- owed: what its turn cost more than was paid, NULL if it is not trued up.
CREATE TYPE fairlane.lane_change AS (
  number bigint, customer bigint, kind text, priority smallint, ready int, waiting int, running int, done int, failed int,
  cancelled int, documents int, bytes bigint, owed bigint
);

-- The new state of a document that leaves its worker, or ends; is_attempt: it says what attempts usually take.
CREATE TYPE fairlane.transition AS (
  number bigint, state text, what text, note text, result text, ready_ms bigint, attempts int, cost bigint, correction text,
  bytes bigint, is_attempt boolean
);

-- The tags of a lane.
CREATE TYPE fairlane.tags AS (start bigint, cross_tag bigint, finish bigint, cross_finish bigint);
