-- Lanes: their counts, heads and tags after documents changed their state.

-- Return a tag after a turn cost more than was paid for it, or less: that is returned down to the clock, never below it.
CREATE FUNCTION fairlane.true_up(tag bigint, clock bigint, owed bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT greatest(least(tag, clock + 1), tag + owed)
$$;

-- Return the tags of a lane after its head, or what blocks its customer, has changed. A lane that gains a head or is unblocked
-- starts from the clocks; one whose head was replaced keeps its start tags. A lane of a kind that is blocked has a start tag, but no
-- cross tag that counts: the floor will be above the clock, see functions_kinds.sql.
CREATE FUNCTION fairlane.place_tags(
  t fairlane.tags, competes boolean, is_kind_blocked boolean, is_fair boolean, kind_clock bigint, clock bigint
) RETURNS fairlane.tags LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF NOT competes THEN
    t.start := NULL;
  ELSIF t.start IS NULL AND is_fair THEN
    t.start := greatest(kind_clock, t.finish);
    t.cross_tag := CASE WHEN is_kind_blocked THEN t.cross_finish ELSE greatest(clock, t.cross_finish) END;
  ELSIF t.start IS NULL THEN
    t.start := 0;
    t.cross_tag := 0;
  END IF;
  RETURN t;
END $$;

-- Return the tags of a lane after turns were trued up one after the other; after each, its document may have joined the lane again.
CREATE FUNCTION fairlane.settle_tags(
  t fairlane.tags, owed bigint[], joined int[], is_blocked boolean, is_kind_blocked boolean, is_fair boolean, kind_clock bigint,
  clock bigint, floor bigint
) RETURNS fairlane.tags LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  FOR nth IN 1 .. cardinality(owed) LOOP
    IF owed[nth] IS NOT NULL AND is_fair THEN
      IF t.start IS NOT NULL AND NOT is_kind_blocked THEN
        t.finish := t.start;
        t.cross_finish := greatest(t.cross_tag, floor);
      END IF;
      t.finish := fairlane.true_up(t.finish, kind_clock, owed[nth]);
      t.cross_finish := fairlane.true_up(t.cross_finish, clock, owed[nth]);
      IF t.start IS NOT NULL THEN
        t.start := CASE WHEN is_kind_blocked THEN greatest(kind_clock, t.finish) ELSE t.finish END;
        t.cross_tag := t.cross_finish;
      END IF;
    END IF;
    IF joined[nth] > 0 AND NOT is_blocked THEN
      t := fairlane.place_tags(t, true, is_kind_blocked, is_fair, kind_clock, clock);
    END IF;
  END LOOP;
  RETURN t;
END $$;

-- Return whether the lanes of a customer must not compete, when so many more of its documents run.
CREATE FUNCTION fairlane.is_blocked(owner bigint, more bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT c.paused OR (c.cap IS NOT NULL
      AND more + (SELECT coalesce(sum(l.running), 0) FROM fairlane.lanes AS l WHERE l.customer = owner) >= c.cap)
    FROM fairlane.customer_terms AS c WHERE c.number = owner);
END $$;

-- Let lanes of these customers stop competing, or compete again.
CREATE FUNCTION fairlane.update_blocked(q fairlane.queue, customer_numbers bigint[]) RETURNS fairlane.queue LANGUAGE plpgsql AS $$
DECLARE
  first_ready bigint;
  names text[];
BEGIN
  WITH owners AS MATERIALIZED (
    SELECT c.number, fairlane.is_blocked(c.number, 0) AS is_blocked FROM unnest(customer_numbers) AS c (number)
  ), moving AS MATERIALIZED (
    SELECT o.ctid AS spot, o.start AS start_before, t.start, t.cross_tag
    FROM owners AS b CROSS JOIN LATERAL (SELECT *, ctid FROM fairlane.lanes AS l WHERE l.customer = b.number) AS o
    LEFT JOIN LATERAL (SELECT * FROM fairlane.kinds AS i WHERE i.kind = o.kind ORDER BY i.revision DESC LIMIT 1) AS k ON true
    CROSS JOIN LATERAL fairlane.place_tags((o.start, o.cross_tag, o.finish, o.cross_finish)::fairlane.tags,
      o.head IS NOT NULL AND NOT b.is_blocked, coalesce(k.is_blocked, false), q.dispatch = 'fair', coalesce(k.clocks[o.priority], 0),
      q.clocks[o.priority]) AS t  -- a kind of which no lane has competed yet may have no row
  ), moved AS (
    UPDATE fairlane.lanes AS l SET start = n.start, cross_tag = n.cross_tag, revision = l.revision + 1
    FROM moving AS n WHERE l.ctid = n.spot AND n.start_before IS DISTINCT FROM n.start
    RETURNING l.start, l.ready_ms, l.kind
  )
  SELECT min(m.ready_ms) FILTER (WHERE m.start IS NOT NULL), array_agg(DISTINCT m.kind) INTO first_ready, names FROM moved AS m;
  RETURN fairlane.update_kinds(q, names, first_ready);
END $$;

-- Let customers with a cap, and kinds with a limit, stop competing or compete again after other documents run.
CREATE FUNCTION fairlane.update_limited(q fairlane.queue, lane_changes fairlane.lane_change[], now_ms bigint) RETURNS fairlane.queue
LANGUAGE plpgsql AS $$
DECLARE
  owners bigint[];
BEGIN
  IF q.tunings > 0 THEN
    SELECT array_agg(DISTINCT s.customer) INTO owners
    FROM unnest(lane_changes) AS s JOIN fairlane.customer_terms AS c ON c.number = s.customer WHERE s.running <> 0 AND c.cap IS NOT NULL;
    IF owners IS NOT NULL THEN
      q := fairlane.update_blocked(q, owners);
    END IF;
  END IF;
  IF q.limited > 0 THEN
    q := fairlane.count_running(q, lane_changes, now_ms);
  END IF;
  RETURN q;
END $$;

-- Count lines of the feed.
CREATE FUNCTION fairlane.count_changes(lines bigint) RETURNS void LANGUAGE sql AS $$
  UPDATE fairlane.counters AS c SET revision = c.revision + 1, last_change = c.last_change + lines
  WHERE c.revision = (SELECT max(o.revision) FROM fairlane.counters AS o)
$$;

-- Raise an error if numbers have changed since they were read: a function must read them again then.
CREATE FUNCTION fairlane.refuse_outdated(is_current boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT is_current THEN
    RAISE EXCEPTION 'numbers of the queue were changed without its lock';
  END IF;
END $$;

-- Write what verbs change of the queue, and count lines of the feed.
CREATE FUNCTION fairlane.write_queue(q fairlane.queue, lines bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE fairlane.counters AS o SET revision = o.revision + 1, last_change = q.last_change + lines, clocks = q.clocks, ready = q.ready,
    lanes = q.lanes, taken = q.taken, busy_ms = q.busy_ms, ticked_ms = q.ticked_ms, usual = q.usual, leases_floor = q.leases_floor,
    delayed_floor = q.delayed_floor, ages_floor = q.ages_floor, ages_head = q.ages_head, cross_bounds = q.cross_bounds,
    opens_next = q.opens_next, opened_last = q.opened_last, arrivals_floor = q.arrivals_floor, awaited = q.awaited
  WHERE o.revision = q.revision;
  PERFORM fairlane.refuse_outdated(FOUND);
END $$;

-- Write a kind if a lane that has changed is its first now, or was ready first; or find these again if the lane was one of them.
CREATE FUNCTION fairlane.place_lane(
  q fairlane.queue, k fairlane.kinds, was_placed boolean, priority smallint, start bigint, cross_tag bigint, head bigint, ready_ms bigint
) RETURNS fairlane.queue LANGUAGE plpgsql AS $$
DECLARE
  cross_now bigint := greatest(cross_tag, k.floors[priority]);
  competed boolean := k.first_head IS NOT NULL AND NOT k.is_blocked;
  is_first boolean := k.first_head IS NULL
    OR (priority, start, cross_now, head) < (k.first_priority, k.first_start, k.first_cross, k.first_head);
  is_oldest boolean := k.oldest_head IS NULL OR (ready_ms, head) < (k.oldest_ms, k.oldest_head);
BEGIN
  IF was_placed THEN
    RETURN fairlane.update_kind(q, k, CASE WHEN start IS NOT NULL THEN ready_ms END, competed);
  ELSIF start IS NULL OR NOT (is_first OR is_oldest) THEN
    RETURN q;
  END IF;
  IF is_first THEN
    k.first_priority := priority;
    k.first_start := start;
    k.first_cross := cross_now;
    k.first_head := head;
  END IF;
  IF is_oldest THEN
    k.oldest_ms := ready_ms;
    k.oldest_head := head;
  END IF;
  IF NOT competed AND NOT k.is_blocked THEN
    PERFORM fairlane.wake_workers();
  END IF;
  RETURN fairlane.write_kind(q, k);
END $$;

-- Update the lane of one document that changed its state: what `update_lanes` does with a list, in plain steps.
CREATE FUNCTION fairlane.update_lane(q fairlane.queue, s fairlane.lane_change, now_ms bigint) RETURNS fairlane.queue
LANGUAGE plpgsql AS $$
DECLARE
  k fairlane.kinds;
  l record;
  t fairlane.tags;
  head_now bigint;
  ready_now bigint;
  is_blocked boolean := q.tunings > 0 AND fairlane.is_blocked(s.customer, s.running);
  is_fair boolean := q.dispatch = 'fair';
  kind_clock bigint;
BEGIN
  SELECT * INTO k FROM fairlane.kinds AS o WHERE o.kind = s.kind ORDER BY o.revision DESC LIMIT 1;
  IF NOT FOUND THEN
    INSERT INTO fairlane.kinds (kind) VALUES (s.kind) RETURNING * INTO k;
  END IF;
  kind_clock := k.clocks[s.priority];
  SELECT o.head, o.ready_ms, o.start, o.cross_tag, o.finish, o.cross_finish, o.ctid AS spot INTO l FROM fairlane.lanes AS o
  WHERE o.customer = s.customer AND o.kind = s.kind AND o.priority = s.priority ORDER BY o.revision DESC LIMIT 1;
  head_now := l.head;
  ready_now := l.ready_ms;
  IF s.ready < 0 AND l.head = s.number OR s.ready > 0 AND coalesce(s.number < l.head, true) THEN  -- none before it is ready
    SELECT w.number, w.ready_ms INTO head_now, ready_now FROM fairlane.work AS w
    WHERE w.customer = s.customer AND w.kind = s.kind AND w.priority = s.priority AND w.state = 'ready' AND w.number >= s.number
    ORDER BY w.number LIMIT 1;
  END IF;
  t := (l.start, coalesce(l.cross_tag, 0), coalesce(l.finish, 0), coalesce(l.cross_finish, 0))::fairlane.tags;
  IF s.owed IS NOT NULL THEN
    t := fairlane.settle_tags(t, ARRAY[s.owed], '{0}', is_blocked, k.is_blocked, is_fair, kind_clock, q.clocks[s.priority],
      k.floors[s.priority]);
  END IF;
  t := fairlane.place_tags(t, head_now IS NOT NULL AND NOT is_blocked, k.is_blocked, is_fair, kind_clock, q.clocks[s.priority]);
  IF l.spot IS NULL THEN
    INSERT INTO fairlane.lanes (customer, kind, priority, head, ready_ms, start, cross_tag, waiting, running, done, failed, cancelled,
      documents, bytes)
    VALUES (s.customer, s.kind, s.priority, head_now, ready_now, t.start, t.cross_tag, s.waiting, s.running, s.done, s.failed,
      s.cancelled, s.documents, s.bytes);
  ELSE
    UPDATE fairlane.lanes AS o SET head = head_now, ready_ms = ready_now, start = t.start, cross_tag = t.cross_tag,
      finish = t.finish, cross_finish = t.cross_finish, waiting = o.waiting + s.waiting, running = o.running + s.running,
      done = o.done + s.done, failed = o.failed + s.failed, cancelled = o.cancelled + s.cancelled,
      documents = o.documents + s.documents, bytes = o.bytes + s.bytes,
      revision = o.revision + ((t.start, t.cross_tag, head_now) IS DISTINCT FROM (l.start, l.cross_tag, l.head) OR random() < 0.06)::int
    WHERE o.ctid = l.spot;
  END IF;
  IF (t.start, t.cross_tag, head_now, ready_now) IS DISTINCT FROM (l.start, l.cross_tag, l.head, l.ready_ms) THEN
    q := fairlane.place_lane(q, k, l.start IS NOT NULL AND l.head IN (k.first_head, k.oldest_head), s.priority, t.start, t.cross_tag,
      head_now, ready_now);
  END IF;
  IF s.running <> 0 AND q.tunings + q.limited > 0 THEN
    q := fairlane.update_limited(q, ARRAY[s], now_ms);
  END IF;
  q.ready[s.priority] := q.ready[s.priority] + s.ready;
  q.lanes[s.priority] := q.lanes[s.priority] + (head_now IS NOT NULL)::int - (l.head IS NOT NULL)::int;
  RETURN q;
END $$;

-- Return whether documents that were trued up must be settled one by one: each may unblock lanes of the next one.
CREATE FUNCTION fairlane.must_go_one_by_one(q fairlane.queue, lane_changes fairlane.lane_change[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN q.tunings + q.limited > 0 AND EXISTS (SELECT FROM unnest(lane_changes) AS s WHERE s.owed IS NOT NULL AND (
    EXISTS (SELECT FROM fairlane.customer_terms AS c WHERE c.number = s.customer AND c.cap IS NOT NULL)
    OR (SELECT k.version FROM fairlane.kinds AS k WHERE k.kind = s.kind ORDER BY k.revision DESC LIMIT 1) > 0));
END $$;

-- Return lanes of which documents changed their state, as they were and with their heads and tags now; and their kinds' first lanes.
-- The planner puts this into the statement that calls it.
CREATE FUNCTION fairlane.tag_lanes(q fairlane.queue, lane_changes fairlane.lane_change[]) RETURNS TABLE (
  spot tid, customer bigint, kind text, priority smallint, ready bigint, waiting bigint, running bigint, done bigint, failed bigint,
  cancelled bigint, documents bigint, bytes numeric, tags_before fairlane.tags, head_before bigint, ready_before bigint, tags fairlane.tags,
  head bigint, ready_ms bigint, kind_row fairlane.kinds
) LANGUAGE sql STABLE AS $$
  WITH input AS MATERIALIZED (
    SELECT customer, kind COLLATE "C" AS kind, priority, sum(ready) AS ready, sum(waiting) AS waiting, sum(running) AS running,
      sum(done) AS done, sum(failed) AS failed, sum(cancelled) AS cancelled, sum(documents) AS documents, sum(bytes) AS bytes,
      bool_or(ready <> 0) AS is_moved, min(number) FILTER (WHERE ready > 0) AS lowest, bool_or(owed IS NOT NULL) AS is_owed,
      array_agg(owed ORDER BY ordinal) AS owed, array_agg(ready ORDER BY ordinal) AS joined
    FROM unnest(lane_changes) WITH ORDINALITY AS g (number, customer, kind, priority, ready, waiting, running, done, failed, cancelled,
      documents, bytes, owed, ordinal) GROUP BY 1, 2, 3
  ), state_now AS MATERIALIZED (
    SELECT g.*, l.spot, l.head AS head_before, l.ready_ms AS ready_before,
      (l.start, coalesce(l.cross_tag, 0), coalesce(l.finish, 0), coalesce(l.cross_finish, 0))::fairlane.tags AS tags_before,
      CASE WHEN g.is_moved THEN f.number ELSE l.head END AS head,
      CASE WHEN g.is_moved THEN f.ready_ms ELSE l.ready_ms END AS ready_ms,
      q.tunings > 0 AND fairlane.is_blocked(g.customer,
        (SELECT sum(r.running) FROM input AS r WHERE r.customer = g.customer)::bigint) AS is_blocked
    FROM input AS g
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
  )
  SELECT n.spot, n.customer, n.kind, n.priority, n.ready, n.waiting, n.running, n.done, n.failed, n.cancelled, n.documents, n.bytes,
    n.tags_before, n.head_before, n.ready_before, fairlane.place_tags(
      CASE WHEN n.is_owed THEN fairlane.settle_tags(n.tags_before, n.owed, n.joined, n.is_blocked, coalesce(i.is_blocked, false),
        q.dispatch = 'fair', coalesce(i.clocks[n.priority], 0), q.clocks[n.priority], i.floors[n.priority]) ELSE n.tags_before END,
      n.head IS NOT NULL AND NOT n.is_blocked, coalesce(i.is_blocked, false), q.dispatch = 'fair', coalesce(i.clocks[n.priority], 0),
      q.clocks[n.priority]), n.head, n.ready_ms, i::fairlane.kinds
  FROM state_now AS n
  LEFT JOIN LATERAL (SELECT * FROM fairlane.kinds AS o WHERE o.kind = n.kind ORDER BY o.revision DESC LIMIT 1) AS i ON true
$$;

-- Update lanes after documents changed their state, in order: counts, heads and tags. Returns the queue, for `write_queue`.
CREATE FUNCTION fairlane.update_lanes(q fairlane.queue, lane_changes fairlane.lane_change[], now_ms bigint) RETURNS fairlane.queue
LANGUAGE plpgsql AS $$
DECLARE
  each record;
  s fairlane.lane_change;
  first_ready bigint;
  names text[];
BEGIN
  IF cardinality(lane_changes) = 1 OR fairlane.must_go_one_by_one(q, lane_changes) THEN
    FOREACH s IN ARRAY lane_changes LOOP
      q := fairlane.update_lane(q, s, now_ms);
    END LOOP;
    RETURN q;
  END IF;
  FOR each IN
    WITH tagged AS MATERIALIZED (
      SELECT t.*, greatest((t.tags).cross_tag, (t.kind_row).floors[t.priority]) AS cross_now FROM fairlane.tag_lanes(q, lane_changes) AS t
    ), changed AS (
      UPDATE fairlane.lanes AS l SET head = t.head, ready_ms = t.ready_ms, start = (t.tags).start, cross_tag = (t.tags).cross_tag,
        finish = (t.tags).finish, cross_finish = (t.tags).cross_finish,
        revision = l.revision + ((t.tags, t.head) IS DISTINCT FROM (t.tags_before, t.head_before) OR random() < 0.06)::int,
        waiting = l.waiting + t.waiting, running = l.running + t.running, done = l.done + t.done, failed = l.failed + t.failed,
        cancelled = l.cancelled + t.cancelled, documents = l.documents + t.documents, bytes = l.bytes + t.bytes
      FROM tagged AS t WHERE l.ctid = t.spot
    ), added AS (
      INSERT INTO fairlane.lanes (customer, kind, priority, head, ready_ms, start, cross_tag, waiting, running, done, failed, cancelled,
        documents, bytes)
      SELECT customer, kind, priority, head, ready_ms, (tags).start, (tags).cross_tag, waiting, running, done, failed, cancelled,
        documents, bytes
      FROM tagged WHERE spot IS NULL
    )
    SELECT kind, priority, sum(ready) AS ready, sum((head IS NOT NULL)::int - (head_before IS NOT NULL)::int) AS lanes,
      min(ready_ms) FILTER (WHERE (tags).start IS NOT NULL) AS first_ready,
      bool_or((tags, head, ready_ms) IS DISTINCT FROM (tags_before, head_before, ready_before)
        AND ((tags_before).start IS NOT NULL AND head_before IN ((kind_row).first_head, (kind_row).oldest_head)
          OR (tags).start IS NOT NULL AND ((kind_row).first_head IS NULL OR (ready_ms, head) < ((kind_row).oldest_ms, (kind_row).oldest_head)
            OR (priority, (tags).start, cross_now, head)
              < ((kind_row).first_priority, (kind_row).first_start, (kind_row).first_cross, (kind_row).first_head)))) AS is_placed
    FROM tagged GROUP BY kind, priority
  LOOP
    q.ready[each.priority] := q.ready[each.priority] + each.ready;
    q.lanes[each.priority] := q.lanes[each.priority] + each.lanes;
    IF each.is_placed THEN
      first_ready := least(first_ready, each.first_ready);
      names := names || each.kind;
    END IF;
  END LOOP;
  q := fairlane.update_kinds(q, ARRAY(SELECT DISTINCT n FROM unnest(names) AS n), first_ready);
  RETURN CASE WHEN q.tunings + q.limited > 0 THEN fairlane.update_limited(q, lane_changes, now_ms) ELSE q END;
END $$;

-- Let delayed documents that are due join their lanes, at most `max_count`; returns the queue, and whether more may be due.
CREATE FUNCTION fairlane.ready_due(q fairlane.queue, now_ms bigint, max_count int) RETURNS fairlane.queue LANGUAGE plpgsql AS $$
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
  SELECT array_agg((number, customer, kind, priority, 1, 0, 0, 0, 0, 0, 0, 0, NULL)::fairlane.lane_change) INTO lane_changes FROM readied;
  IF lane_changes IS NOT NULL THEN
    q := fairlane.update_lanes(q, lane_changes, now_ms);
  END IF;
  IF coalesce(cardinality(lane_changes), 0) < max_count THEN  -- what is still delayed is due later
    q.delayed_floor := greatest(q.delayed_floor, now_ms);
  END IF;
  RETURN q;
END $$;
