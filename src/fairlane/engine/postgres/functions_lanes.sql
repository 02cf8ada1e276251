-- Lanes: their counts, heads and start tags after documents changed their state.

-- Let lanes of these customers stop competing, or compete again from their priority's clock.
CREATE FUNCTION fairlane.update_blocked(customer_numbers bigint[], dispatch text, clocks bigint[]) RETURNS void LANGUAGE sql AS $$
  UPDATE fairlane.lanes AS l SET start = n.start
  FROM (
    SELECT o.customer, o.kind, o.priority,
      CASE WHEN o.head IS NULL OR b.is_blocked THEN NULL WHEN o.start IS NOT NULL THEN o.start
           WHEN dispatch = 'strict' THEN 0 ELSE greatest(clocks[o.priority], o.finish) END AS start
    FROM (
      SELECT c.number, c.paused OR (c.cap IS NOT NULL AND
        (SELECT coalesce(sum(r.running), 0) FROM fairlane.lanes AS r WHERE r.customer = c.number) >= c.cap) AS is_blocked
      FROM fairlane.customers AS c WHERE c.number = ANY (customer_numbers)
    ) AS b JOIN fairlane.lanes AS o ON o.customer = b.number
  ) AS n
  WHERE l.customer = n.customer AND l.kind = n.kind AND l.priority = n.priority AND l.start IS DISTINCT FROM n.start
$$;

-- Update lanes and the queue after documents changed their state: counts, heads, start tags, and the number of feed lines.
-- A lane that gains a head or is unblocked starts from its priority's clock; one whose head was replaced keeps its start tag.
-- If a kind without heads gains one, waiting workers are notified, unless the notification queue fills up unread.
CREATE FUNCTION fairlane.update_lanes(lane_changes fairlane.lane_change[], lines bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
  each record;
  must_notify boolean := false;
  owners bigint[];
BEGIN
  SELECT * INTO q FROM fairlane.queue WHERE one;
  FOR each IN
    WITH input AS MATERIALIZED (
      SELECT customer, kind COLLATE "C" AS kind, priority, sum(ready) AS ready, sum(waiting) AS waiting, sum(running) AS running,
        sum(done) AS done, sum(failed) AS failed, sum(cancelled) AS cancelled,
        bool_or(ready <> 0) AS is_moved, min(number) FILTER (WHERE ready > 0) AS lowest
      FROM unnest(lane_changes) GROUP BY 1, 2, 3
    ), state_now AS MATERIALIZED (
      SELECT g.*, l.head AS head_before, l.start AS start_before, coalesce(l.finish, 0) AS finish,
        CASE WHEN g.is_moved THEN f.number ELSE l.head END AS head,
        CASE WHEN g.is_moved THEN f.ready_ms ELSE l.ready_ms END AS ready_ms,
        c.paused OR (c.cap IS NOT NULL AND
          (SELECT coalesce(sum(r.running), 0) FROM fairlane.lanes AS r WHERE r.customer = g.customer)
          + (SELECT sum(r.running) FROM input AS r WHERE r.customer = g.customer) >= c.cap) AS is_blocked
      FROM input AS g
      JOIN fairlane.customers AS c ON c.number = g.customer
      LEFT JOIN fairlane.lanes AS l ON l.customer = g.customer AND l.kind = g.kind AND l.priority = g.priority
      LEFT JOIN LATERAL (
        SELECT w.number, w.ready_ms FROM fairlane.work AS w
        WHERE w.customer = g.customer AND w.kind = g.kind AND w.priority = g.priority AND w.state = 'ready'
          AND g.is_moved AND w.number >= least(l.head, g.lowest)  -- none before it is ready
        ORDER BY w.number LIMIT 1
      ) AS f ON true
    ), put AS (
      INSERT INTO fairlane.lanes AS l
        (customer, kind, priority, head, ready_ms, start, finish, waiting, running, done, failed, cancelled)
      SELECT customer, kind, priority, head, ready_ms,
        CASE WHEN head IS NULL OR is_blocked THEN NULL WHEN start_before IS NOT NULL THEN start_before
             WHEN q.dispatch = 'strict' THEN 0 ELSE greatest(q.clocks[priority], finish) END,
        finish, waiting, running, done, failed, cancelled
      FROM state_now
      ON CONFLICT (customer, kind, priority) DO UPDATE SET head = excluded.head, ready_ms = excluded.ready_ms,
        start = excluded.start, waiting = l.waiting + excluded.waiting, running = l.running + excluded.running,
        done = l.done + excluded.done, failed = l.failed + excluded.failed, cancelled = l.cancelled + excluded.cancelled
    )
    SELECT priority, sum(ready) AS ready,
      count(*) FILTER (WHERE head_before IS NULL AND head IS NOT NULL)
        - count(*) FILTER (WHERE head_before IS NOT NULL AND head IS NULL) AS lanes,
      bool_or(head_before IS NULL AND head IS NOT NULL AND (  -- NOT EXISTS might read the lanes of all kinds at once
        SELECT 1 FROM fairlane.lanes AS o WHERE o.kind = state_now.kind AND o.start IS NOT NULL LIMIT 1) IS NULL) AS must_notify
    FROM state_now GROUP BY priority
  LOOP
    q.ready[each.priority] := q.ready[each.priority] + each.ready;
    q.lanes[each.priority] := q.lanes[each.priority] + each.lanes;
    must_notify := must_notify OR each.must_notify;
  END LOOP;
  UPDATE fairlane.queue SET last_change = last_change + lines, ready = q.ready, lanes = q.lanes WHERE one;
  IF q.tunings > 0 THEN
    SELECT array_agg(DISTINCT s.customer) INTO owners
    FROM unnest(lane_changes) AS s JOIN fairlane.customers AS c ON c.number = s.customer WHERE s.running <> 0 AND c.cap IS NOT NULL;
    PERFORM fairlane.update_blocked(owners, q.dispatch, q.clocks);
  END IF;
  IF must_notify AND pg_notification_queue_usage() < 0.5 THEN
    PERFORM pg_notify('fairlane_wake', '');
  END IF;
END $$;

-- Let delayed documents that are due join their lanes, at most `max_count`.
CREATE FUNCTION fairlane.ready_due(now_ms bigint, max_count int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  lane_changes fairlane.lane_change[];
BEGIN
  WITH due AS (
    SELECT number FROM fairlane.work
    WHERE state = 'delayed' AND ready_ms <= ready_due.now_ms ORDER BY ready_ms, number LIMIT max_count
  ), readied AS (
    UPDATE fairlane.work AS w SET state = 'ready' FROM due WHERE w.number = due.number AND w.state IS NOT DISTINCT FROM 'delayed'
    RETURNING w.number, w.customer, w.kind, w.priority
  )
  SELECT array_agg((number, customer, kind, priority, 1, 0, 0, 0, 0, 0)::fairlane.lane_change) INTO lane_changes FROM readied;
  IF lane_changes IS NOT NULL THEN
    PERFORM fairlane.update_lanes(lane_changes, 0);
  END IF;
END $$;

-- Return the kinds that have a competing lane, by skipping through the index.
CREATE FUNCTION fairlane.competing_kinds() RETURNS text[] LANGUAGE plpgsql STABLE AS $$
DECLARE
  kinds text[] := '{}';
  last text := '';
BEGIN
  LOOP
    SELECT kind INTO last FROM fairlane.lanes WHERE start IS NOT NULL AND kind > last ORDER BY kind LIMIT 1;
    EXIT WHEN last IS NULL;
    kinds := kinds || last;
  END LOOP;
  RETURN kinds;
END $$;
