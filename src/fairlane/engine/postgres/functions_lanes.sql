-- Lanes: their counts, heads and start tags after documents changed their state.

-- Let lanes of these customers stop competing, or compete again from their priority's clock.
CREATE FUNCTION fairlane.update_blocked(q fairlane.queue, customer_numbers bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  first_ready bigint;
BEGIN
  WITH owners AS MATERIALIZED (
    SELECT c.number, c.paused OR (c.cap IS NOT NULL AND
      (SELECT coalesce(sum(r.running), 0) FROM fairlane.lanes AS r WHERE r.customer = c.number) >= c.cap) AS is_blocked
    FROM fairlane.customer_terms AS c WHERE c.number = ANY (customer_numbers)
  ), moving AS MATERIALIZED (
    SELECT o.ctid AS spot, o.start AS start_before,
      CASE WHEN o.head IS NULL OR b.is_blocked THEN NULL WHEN o.start IS NOT NULL THEN o.start
           WHEN q.dispatch = 'strict' THEN 0 ELSE greatest(q.clocks[o.priority], o.finish) END AS start
    FROM owners AS b CROSS JOIN LATERAL (SELECT *, ctid FROM fairlane.lanes AS l WHERE l.customer = b.number) AS o
  ), moved AS (
    UPDATE fairlane.lanes AS l SET start = n.start, revision = l.revision + 1
    FROM moving AS n WHERE l.ctid = n.spot AND n.start_before IS DISTINCT FROM n.start
    RETURNING l.start, l.ready_ms
  )
  SELECT min(m.ready_ms) FILTER (WHERE m.start IS NOT NULL) INTO first_ready FROM moved AS m;
  PERFORM fairlane.lower_ages(q, first_ready);
END $$;

-- Return the bound of a kind ('': of all) in a priority (0: by age): no competing lane has a lower tag.
CREATE FUNCTION fairlane.bound_of(kind_name text, level int) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN coalesce((SELECT k.bounds[level] FROM fairlane.kinds AS k WHERE k.kind = kind_name ORDER BY k.revision DESC LIMIT 1),
    -9223372036854775808);
END $$;

-- Raise the bounds of a kind ('': of all) to its first lanes. A lane that begins to compete starts from its priority's clock, which
-- never falls, so a bound up to the clock holds for those that come later too; that by age must be lowered for them, see `lower_ages`.
-- Returns the bound by age. Under `strict` all tags are 0, and there is nothing to raise.
CREATE FUNCTION fairlane.raise_bounds(q fairlane.queue, kind_name text, now_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  k fairlane.kinds;
  first_tag bigint;
BEGIN
  IF q.dispatch = 'strict' THEN
    RETURN NULL;
  END IF;
  SELECT * INTO k FROM fairlane.kinds AS o WHERE o.kind = kind_name ORDER BY o.revision DESC LIMIT 1;
  IF NOT FOUND THEN
    INSERT INTO fairlane.kinds (kind) VALUES (kind_name) RETURNING * INTO k;
  END IF;
  FOR level IN 1 .. 9 LOOP
    IF q.lanes[level] = 0 THEN
      first_tag := NULL;
    ELSIF kind_name = '' THEN
      SELECT l.start INTO first_tag FROM fairlane.lanes AS l
      WHERE l.start IS NOT NULL AND l.priority = level AND l.start + 0 >= k.bounds[level] ORDER BY l.start + 0, l.head LIMIT 1;
    ELSE
      SELECT l.start INTO first_tag FROM fairlane.lanes AS l
      WHERE l.kind = kind_name AND l.priority = level AND l.start >= k.bounds[level] ORDER BY l.start, l.head LIMIT 1;
    END IF;
    k.bounds[level] := least(first_tag, q.clocks[level]);
  END LOOP;
  IF kind_name = '' THEN
    SELECT l.ready_ms INTO first_tag FROM fairlane.lanes AS l WHERE l.start IS NOT NULL AND l.ready_ms + 0 >= k.bounds[0]
    ORDER BY l.ready_ms + 0, l.head LIMIT 1;
  ELSE
    SELECT l.ready_ms INTO first_tag FROM fairlane.lanes AS l
    WHERE l.kind = kind_name AND l.start IS NOT NULL AND l.ready_ms >= k.bounds[0] ORDER BY l.ready_ms, l.head LIMIT 1;
  END IF;
  k.bounds[0] := greatest(k.bounds[0], coalesce(first_tag, now_ms));
  UPDATE fairlane.kinds AS o SET revision = o.revision + 1, bounds = k.bounds WHERE o.kind = kind_name AND o.revision = k.revision;
  RETURN k.bounds[0];
END $$;

-- Lower the bounds by age for a lane that begins to compete with a head that has been ready for longer.
CREATE FUNCTION fairlane.lower_ages(q fairlane.queue, first_ready bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF first_ready < q.ages_floor THEN
    UPDATE fairlane.kinds SET revision = revision + 1, bounds[0] = first_ready WHERE bounds[0] > first_ready;
  END IF;
END $$;

-- Count lines of the feed.
CREATE FUNCTION fairlane.count_changes(lines bigint) RETURNS void LANGUAGE sql AS $$
  UPDATE fairlane.counters AS c SET revision = c.revision + 1, last_change = c.last_change + lines
  WHERE c.revision = (SELECT max(o.revision) FROM fairlane.counters AS o)
$$;

-- Raise an error if the queue's numbers have changed since they were read: a function must read them again then.
CREATE FUNCTION fairlane.refuse_outdated(is_current boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT is_current THEN
    RAISE EXCEPTION 'the numbers of the queue were changed without its lock';
  END IF;
END $$;

-- Update lanes and the queue after documents changed their state: counts, heads, start tags, and the number of feed lines.
-- A lane that gains a head or is unblocked starts from its priority's clock; one whose head was replaced keeps its start tag.
-- If a kind without heads gains one, waiting workers are notified, unless the notification queue fills up unread.
-- `due_first`: from when on documents among them may be due that were delayed.
CREATE FUNCTION fairlane.update_lanes(q fairlane.queue, lane_changes fairlane.lane_change[], lines bigint, due_first bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  each record;
  first_ready bigint;
  must_notify boolean := false;
  owners bigint[];
BEGIN
  FOR each IN
    WITH input AS MATERIALIZED (
      SELECT customer, kind COLLATE "C" AS kind, priority, sum(ready) AS ready, sum(waiting) AS waiting, sum(running) AS running,
        sum(done) AS done, sum(failed) AS failed, sum(cancelled) AS cancelled, sum(documents) AS documents, sum(bytes) AS bytes,
        bool_or(ready <> 0) AS is_moved, min(number) FILTER (WHERE ready > 0) AS lowest
      FROM unnest(lane_changes) GROUP BY 1, 2, 3
    ), state_now AS MATERIALIZED (
      SELECT g.*, l.spot, l.head AS head_before, l.start AS start_before, coalesce(l.finish, 0) AS finish,
        CASE WHEN g.is_moved THEN f.number ELSE l.head END AS head,
        CASE WHEN g.is_moved THEN f.ready_ms ELSE l.ready_ms END AS ready_ms,
        c.paused OR (c.cap IS NOT NULL AND
          (SELECT coalesce(sum(r.running), 0) FROM fairlane.lanes AS r WHERE r.customer = g.customer)
          + (SELECT sum(r.running) FROM input AS r WHERE r.customer = g.customer) >= c.cap) AS is_blocked
      FROM input AS g
      JOIN fairlane.customer_terms AS c ON c.number = g.customer
      LEFT JOIN LATERAL (
        SELECT *, ctid AS spot FROM fairlane.lanes AS o WHERE o.customer = g.customer AND o.kind = g.kind AND o.priority = g.priority
        ORDER BY o.revision DESC LIMIT 1
      ) AS l ON true
      LEFT JOIN LATERAL (
        SELECT w.number, w.ready_ms FROM fairlane.work AS w
        WHERE w.customer = g.customer AND w.kind = g.kind AND w.priority = g.priority AND w.state = 'ready'
          AND g.is_moved AND w.number >= least(l.head, g.lowest)  -- none before it is ready
        ORDER BY w.number LIMIT 1
      ) AS f ON true
    ), tagged AS MATERIALIZED (
      SELECT *, CASE WHEN head IS NULL OR is_blocked THEN NULL WHEN start_before IS NOT NULL THEN start_before
                     WHEN q.dispatch = 'strict' THEN 0 ELSE greatest(q.clocks[priority], finish) END AS start
      FROM state_now
    ), changed AS (
      UPDATE fairlane.lanes AS l SET head = t.head, ready_ms = t.ready_ms, start = t.start,
        revision = l.revision + ((t.start, t.head) IS DISTINCT FROM (t.start_before, t.head_before) OR random() < 0.06)::int,
        waiting = l.waiting + t.waiting, running = l.running + t.running, done = l.done + t.done, failed = l.failed + t.failed,
        cancelled = l.cancelled + t.cancelled, documents = l.documents + t.documents, bytes = l.bytes + t.bytes
      FROM tagged AS t WHERE l.ctid = t.spot
    ), added AS (
      INSERT INTO fairlane.lanes (customer, kind, priority, head, ready_ms, start, waiting, running, done, failed, cancelled, documents, bytes)
      SELECT customer, kind, priority, head, ready_ms, start, waiting, running, done, failed, cancelled, documents, bytes
      FROM tagged WHERE spot IS NULL
    )
    SELECT priority, sum(ready) AS ready,
      count(*) FILTER (WHERE head_before IS NULL AND head IS NOT NULL)
        - count(*) FILTER (WHERE head_before IS NOT NULL AND head IS NULL) AS lanes,
      min(ready_ms) FILTER (WHERE start IS NOT NULL) AS first_ready,
      bool_or(head_before IS NULL AND head IS NOT NULL AND (  -- NOT EXISTS might read the lanes of all kinds at once
        SELECT 1 FROM fairlane.lanes AS o
        WHERE o.kind = tagged.kind AND o.start IS NOT NULL AND o.ready_ms >= fairlane.bound_of(tagged.kind, 0)
        ORDER BY o.ready_ms, o.head LIMIT 1
      ) IS NULL) AS must_notify
    FROM tagged GROUP BY priority
  LOOP
    q.ready[each.priority] := q.ready[each.priority] + each.ready;
    q.lanes[each.priority] := q.lanes[each.priority] + each.lanes;
    first_ready := least(first_ready, each.first_ready);
    must_notify := must_notify OR each.must_notify;
  END LOOP;
  PERFORM fairlane.lower_ages(q, first_ready);
  IF q.tunings > 0 THEN
    SELECT array_agg(DISTINCT s.customer) INTO owners
    FROM unnest(lane_changes) AS s JOIN fairlane.customer_terms AS c ON c.number = s.customer WHERE s.running <> 0 AND c.cap IS NOT NULL;
    PERFORM fairlane.update_blocked(q, owners);
  END IF;
  UPDATE fairlane.counters AS o SET revision = o.revision + 1, last_change = o.last_change + lines, ready = q.ready,
    lanes = q.lanes, delayed_floor = least(o.delayed_floor, due_first), arrivals_floor = q.arrivals_floor,
    awaited = q.awaited
  WHERE o.revision = q.revision;
  PERFORM fairlane.refuse_outdated(FOUND);
  IF must_notify AND pg_notification_queue_usage() < 0.5 THEN
    PERFORM pg_notify('fairlane_wake', '');
  END IF;
END $$;

-- Let delayed documents that are due join their lanes, at most `max_count`; returns how many.
CREATE FUNCTION fairlane.ready_due(q fairlane.queue, now_ms bigint, max_count int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  lane_changes fairlane.lane_change[];
BEGIN
  WITH due AS (
    SELECT ctid AS spot FROM fairlane.work
    WHERE state = 'delayed' AND ready_ms >= q.delayed_floor AND ready_ms <= ready_due.now_ms ORDER BY ready_ms, number
    LIMIT max_count
  ), readied AS (
    UPDATE fairlane.work AS w SET state = 'ready' FROM due WHERE w.ctid = due.spot AND w.state = 'delayed'
    RETURNING w.number, w.customer, w.kind, w.priority
  )
  SELECT array_agg((number, customer, kind, priority, 1, 0, 0, 0, 0, 0, 0, 0)::fairlane.lane_change) INTO lane_changes FROM readied;
  IF lane_changes IS NULL THEN
    RETURN 0;
  END IF;
  PERFORM fairlane.update_lanes(q, lane_changes, 0, NULL);
  RETURN cardinality(lane_changes);
END $$;
