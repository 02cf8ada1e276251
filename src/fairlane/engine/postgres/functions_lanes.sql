-- Lanes: what a change of state leaves behind, and whose turn it is.

-- Lanes of these customers stop competing, or compete again from where their priority's clock stands.
CREATE FUNCTION fairlane.gate(wanted bigint[], dispatch text, clocks bigint[]) RETURNS void LANGUAGE sql AS $$
  UPDATE fairlane.lanes AS l SET start = n.start
  FROM (
    SELECT o.customer, o.kind, o.priority,
      CASE WHEN o.head IS NULL OR b.is_blocked THEN NULL WHEN o.start IS NOT NULL THEN o.start
           WHEN dispatch = 'strict' THEN 0 ELSE greatest(clocks[o.priority], o.finish) END AS start
    FROM (
      SELECT c.number, c.paused OR (c.cap IS NOT NULL AND
        (SELECT coalesce(sum(r.running), 0) FROM fairlane.lanes AS r WHERE r.customer = c.number) >= c.cap) AS is_blocked
      FROM fairlane.customers AS c WHERE c.number = ANY (wanted)
    ) AS b JOIN fairlane.lanes AS o ON o.customer = b.number
  ) AS n
  WHERE l.customer = n.customer AND l.kind = n.kind AND l.priority = n.priority AND l.start IS DISTINCT FROM n.start
$$;

-- After documents changed their state: the counts, heads and start tags of their lanes, the queue's counts, and that many lines
-- more in the feed. A lane that gains a head or is unblocked starts from its priority's clock; one whose head was replaced
-- keeps its start tag. Whoever sleeps for want of a kind is woken; a hint only, so it is left out when nobody fetches hints.
CREATE FUNCTION fairlane.tidy(shifts fairlane.shift[], lines bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
  each record;
  is_wanted boolean := false;
  capped bigint[];
BEGIN
  SELECT * INTO q FROM fairlane.queue WHERE one;
  FOR each IN
    WITH given AS MATERIALIZED (
      SELECT customer, kind COLLATE "C" AS kind, priority, sum(ready) AS ready, sum(waiting) AS waiting, sum(running) AS running,
        sum(done) AS done, sum(failed) AS failed, sum(cancelled) AS cancelled,
        bool_or(ready <> 0) AS is_moved, min(number) FILTER (WHERE ready > 0) AS lowest
      FROM unnest(shifts) GROUP BY 1, 2, 3
    ), seen AS MATERIALIZED (
      SELECT g.*, l.head AS head_before, l.start AS start_before, coalesce(l.finish, 0) AS finish,
        CASE WHEN g.is_moved THEN f.number ELSE l.head END AS head,
        CASE WHEN g.is_moved THEN f.ready_ms ELSE l.ready_ms END AS ready_ms,
        c.paused OR (c.cap IS NOT NULL AND
          (SELECT coalesce(sum(r.running), 0) FROM fairlane.lanes AS r WHERE r.customer = g.customer)
          + (SELECT sum(r.running) FROM given AS r WHERE r.customer = g.customer) >= c.cap) AS is_blocked
      FROM given AS g
      JOIN fairlane.customers AS c ON c.number = g.customer
      LEFT JOIN fairlane.lanes AS l ON l.customer = g.customer AND l.kind = g.kind AND l.priority = g.priority
      LEFT JOIN LATERAL (
        SELECT w.number, w.ready_ms FROM fairlane.work AS w
        WHERE w.customer = g.customer AND w.kind = g.kind AND w.priority = g.priority AND w.state = 'ready'
          AND g.is_moved AND w.number >= least(l.head, g.lowest)  -- none before it is ready; the served may still be there
        ORDER BY w.number LIMIT 1
      ) AS f ON true
    ), put AS (
      INSERT INTO fairlane.lanes AS l
        (customer, kind, priority, head, ready_ms, start, finish, waiting, running, done, failed, cancelled)
      SELECT customer, kind, priority, head, ready_ms,
        CASE WHEN head IS NULL OR is_blocked THEN NULL WHEN start_before IS NOT NULL THEN start_before
             WHEN q.dispatch = 'strict' THEN 0 ELSE greatest(q.clocks[priority], finish) END,
        finish, waiting, running, done, failed, cancelled
      FROM seen
      ON CONFLICT (customer, kind, priority) DO UPDATE SET head = excluded.head, ready_ms = excluded.ready_ms,
        start = excluded.start, waiting = l.waiting + excluded.waiting, running = l.running + excluded.running,
        done = l.done + excluded.done, failed = l.failed + excluded.failed, cancelled = l.cancelled + excluded.cancelled
    )
    SELECT priority, sum(ready) AS ready,
      count(*) FILTER (WHERE head_before IS NULL AND head IS NOT NULL)
        - count(*) FILTER (WHERE head_before IS NOT NULL AND head IS NULL) AS lanes,
      bool_or(head_before IS NULL AND head IS NOT NULL AND (  -- NOT EXISTS might read the lanes of all kinds at once
        SELECT 1 FROM fairlane.lanes AS o WHERE o.kind = seen.kind AND o.start IS NOT NULL LIMIT 1) IS NULL) AS is_wanted
    FROM seen GROUP BY priority
  LOOP
    q.ready[each.priority] := q.ready[each.priority] + each.ready;
    q.lanes[each.priority] := q.lanes[each.priority] + each.lanes;
    is_wanted := is_wanted OR each.is_wanted;
  END LOOP;
  UPDATE fairlane.queue SET last_change = last_change + lines, ready = q.ready, lanes = q.lanes WHERE one;
  IF q.tunings > 0 THEN
    SELECT array_agg(DISTINCT s.customer) INTO capped
    FROM unnest(shifts) AS s JOIN fairlane.customers AS c ON c.number = s.customer WHERE s.running <> 0 AND c.cap IS NOT NULL;
    PERFORM fairlane.gate(capped, q.dispatch, q.clocks);
  END IF;
  IF is_wanted AND pg_notification_queue_usage() < 0.5 THEN
    PERFORM pg_notify('fairlane_wake', '');
  END IF;
END $$;

-- Delayed documents whose time has come take their place in their lanes, at most a thousand.
CREATE FUNCTION fairlane.ready_what_is_due(now_ms bigint, most int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  shifts fairlane.shift[];
BEGIN
  WITH due AS (
    SELECT number FROM fairlane.work
    WHERE state = 'delayed' AND ready_ms <= ready_what_is_due.now_ms ORDER BY ready_ms, number LIMIT most
  ), readied AS (
    UPDATE fairlane.work AS w SET state = 'ready' FROM due WHERE w.number = due.number AND w.state IS NOT DISTINCT FROM 'delayed'
    RETURNING w.number, w.customer, w.kind, w.priority
  )
  SELECT array_agg((number, customer, kind, priority, 1, 0, 0, 0, 0, 0)::fairlane.shift) INTO shifts FROM readied;
  IF shifts IS NOT NULL THEN
    PERFORM fairlane.tidy(shifts, 0);
  END IF;
END $$;

-- The kinds that have a lane which competes, by hopping through the index.
CREATE FUNCTION fairlane.competing_kinds() RETURNS text[] LANGUAGE plpgsql STABLE AS $$
DECLARE
  found text[] := '{}';
  last text := '';
BEGIN
  LOOP
    SELECT kind INTO last FROM fairlane.lanes WHERE start IS NOT NULL AND kind > last ORDER BY kind LIMIT 1;
    EXIT WHEN last IS NULL;
    found := found || last;
  END LOOP;
  RETURN found;
END $$;
