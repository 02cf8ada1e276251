-- Claiming: the dispatch order, read lazily from the indexes of lane heads.
-- The tables stay as they are while a claim dispatches. Heads come from cursors, one for each kind whose first lane is reached;
-- lanes that this claim has served wait beside them for another turn, and the better of the two is next. So a claim reads in
-- proportion to what it takes. A lane's start tags follow from its own documents alone, whatever other lanes get.

-- Open a cursor of the lanes of a kind ('': of all) that compete in one priority (0: in all, longest ready first), in order.
CREATE FUNCTION fairlane.open_lanes(kind_name text, level int) RETURNS refcursor LANGUAGE plpgsql AS $$
DECLARE
  bound bigint := fairlane.bound_of(kind_name, level);
  lanes refcursor;
BEGIN
  IF kind_name = '' AND level = 0 THEN
    OPEN lanes FOR SELECT * FROM fairlane.competing AS c WHERE c.ready_ms + 0 >= bound ORDER BY c.ready_ms + 0, c.head;
  ELSIF kind_name = '' THEN
    OPEN lanes FOR
      SELECT * FROM fairlane.competing AS c WHERE c.priority = level AND c.start + 0 >= bound ORDER BY c.start + 0, c.head;
  ELSIF level = 0 THEN
    OPEN lanes FOR SELECT * FROM fairlane.competing AS c WHERE c.kind = kind_name AND c.ready_ms >= bound ORDER BY c.ready_ms, c.head;
  ELSE
    OPEN lanes FOR
      SELECT * FROM fairlane.competing AS c WHERE c.kind = kind_name AND c.priority = level AND c.start >= bound
      ORDER BY c.start, c.head;
  END IF;
  RETURN lanes;
END $$;

-- Open a cursor of the first competing lanes of kinds in one priority (0: by age), in order.
CREATE FUNCTION fairlane.open_kinds(kinds text[], level int) RETURNS refcursor LANGUAGE plpgsql AS $$
DECLARE
  firsts refcursor;
BEGIN
  IF level = 0 THEN
    OPEN firsts FOR
      SELECT k.kind, f.ready_ms, f.head FROM unnest(kinds) AS k (kind) CROSS JOIN LATERAL (
        SELECT l.ready_ms, l.head FROM fairlane.lanes AS l WHERE l.kind = k.kind AND l.start IS NOT NULL AND l.ready_ms >= coalesce((
          SELECT o.bounds[0] FROM fairlane.kinds AS o WHERE o.kind = k.kind ORDER BY o.revision DESC LIMIT 1), '-9223372036854775808'::bigint)
        ORDER BY l.ready_ms, l.head LIMIT 1
      ) AS f ORDER BY f.ready_ms, f.head;
  ELSE
    OPEN firsts FOR
      SELECT k.kind, f.start, f.head FROM unnest(kinds) AS k (kind) CROSS JOIN LATERAL (
        SELECT l.start, l.head FROM fairlane.lanes AS l WHERE l.kind = k.kind AND l.priority = level AND l.start >= coalesce((
          SELECT o.bounds[level] FROM fairlane.kinds AS o WHERE o.kind = k.kind ORDER BY o.revision DESC LIMIT 1), '-9223372036854775808'::bigint)
        ORDER BY l.start, l.head LIMIT 1
      ) AS f ORDER BY f.start, f.head;
  END IF;
  RETURN firsts;
END $$;

-- Put a lane among the others in order, with the cursor of those that follow it.
CREATE FUNCTION fairlane.insert_head(h fairlane.heads, lane fairlane.competing, followers refcursor) RETURNS fairlane.heads
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  spot int := cardinality(h.lanes);
BEGIN
  WHILE spot > 0 AND CASE WHEN h.priority = 0
      THEN (lane.ready_ms, lane.head) < (h.lanes[spot].ready_ms, h.lanes[spot].head)
      ELSE (lane.start, lane.head) < (h.lanes[spot].start, h.lanes[spot].head) END LOOP
    spot := spot - 1;
  END LOOP;
  h.lanes := h.lanes[:spot] || lane || h.lanes[spot + 1:];
  h.cursors := h.cursors[:spot] || followers || h.cursors[spot + 1:];
  RETURN h;
END $$;

-- Return the next priority that has lanes, or NULL.
CREATE FUNCTION fairlane.next_priority(lane_counts bigint[], level int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  LOOP
    level := level + 1;
    EXIT WHEN lane_counts[level] > 0 OR level > 9;
  END LOOP;
  RETURN nullif(level, 10);
END $$;

-- Begin to read the heads of kinds in one priority (0: by age). A single kind is read at once.
CREATE FUNCTION fairlane.open_heads(kinds text[], level int) RETURNS fairlane.heads LANGUAGE plpgsql AS $$
DECLARE
  kinds_to_come refcursor;
  next_kind fairlane.first_lane;
  followers refcursor;
  lane fairlane.competing;
  h fairlane.heads := (kinds, level, NULL, NULL, '{}', '{}');
BEGIN
  IF cardinality(kinds) = 1 THEN
    followers := fairlane.open_lanes(kinds[1], level);
    FETCH followers INTO lane;
    IF lane.head IS NOT NULL THEN
      h.lanes := ARRAY[lane];
      h.cursors := ARRAY[followers];
    END IF;
  ELSE
    kinds_to_come := fairlane.open_kinds(kinds, level);
    FETCH kinds_to_come INTO next_kind;
    h.kinds_to_come := kinds_to_come;
    h.next_kind := next_kind;
  END IF;
  RETURN h;
END $$;

-- Advance to the next head that was not taken and whose customer is not at its cap; by turn through all priorities that have lanes.
CREATE FUNCTION fairlane.next_head(h fairlane.heads, lane_counts bigint[], taken bigint[], capped bigint[]) RETURNS fairlane.heads
LANGUAGE plpgsql AS $$
DECLARE
  kinds_to_come refcursor := h.kinds_to_come;
  followers refcursor;
  next_kind fairlane.first_lane := h.next_kind;
  lane fairlane.competing := h.lanes[1];
  level int;
BEGIN
  LOOP
    IF next_kind.head IS NOT NULL AND (lane.head IS NULL
        OR (next_kind.tag, next_kind.head) < (CASE h.priority WHEN 0 THEN lane.ready_ms ELSE lane.start END, lane.head)) THEN
      followers := fairlane.open_lanes(next_kind.kind, h.priority);
      FETCH kinds_to_come INTO next_kind;
      h.next_kind := next_kind;
    ELSIF lane.head = ANY (taken) OR lane.customer = ANY (capped) THEN
      followers := h.cursors[1];
      h.lanes := h.lanes[2:];
      h.cursors := h.cursors[2:];
    ELSE
      level := CASE WHEN lane.head IS NULL AND h.priority > 0 THEN fairlane.next_priority(lane_counts, h.priority) END;
      IF level IS NULL THEN
        RETURN h;
      END IF;
      h := fairlane.open_heads(h.kinds, level);
      kinds_to_come := h.kinds_to_come;
      next_kind := h.next_kind;
      lane := h.lanes[1];
      CONTINUE;
    END IF;
    FETCH followers INTO lane;
    IF lane.head IS NOT NULL THEN
      h := fairlane.insert_head(h, lane, followers);
    END IF;
    lane := h.lanes[1];
  END LOOP;
END $$;

-- Return whether the next dispatch is an open turn.
CREATE FUNCTION fairlane.is_open_turn(dispatch text, open_turn_every int, dispatches bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT dispatch = 'fair' AND open_turn_every > 0 AND (dispatches + 1) % greatest(open_turn_every, 1) = 0
$$;

-- Return which of the served lanes that wait for another turn has been ready longest.
CREATE FUNCTION fairlane.oldest_of(served fairlane.competing[], again int[]) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  oldest int := again[1];
  nth int;
BEGIN
  FOREACH nth IN ARRAY again LOOP
    IF (served[nth].ready_ms, served[nth].head) < (served[oldest].ready_ms, served[oldest].head) THEN
      oldest := nth;
    END IF;
  END LOOP;
  RETURN oldest;
END $$;

-- Insert a served lane among those that wait for another turn, in the order of turns; mostly it goes to the end.
CREATE FUNCTION fairlane.insert_again(again int[], nth int, served fairlane.competing[]) RETURNS int[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  lane fairlane.competing := served[nth];
  spot int := cardinality(again);
BEGIN
  WHILE spot > 0 AND (lane.priority, lane.start, lane.head)
      < (served[again[spot]].priority, served[again[spot]].start, served[again[spot]].head) LOOP
    spot := spot - 1;
  END LOOP;
  RETURN again[:spot] || nth || again[spot + 1:];
END $$;

-- Return whether a customer has reached its cap with the turns of this claim.
CREATE FUNCTION fairlane.is_at_cap(lane fairlane.competing, served fairlane.competing[]) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT lane.cap <= (SELECT sum(l.running) FROM fairlane.lanes AS l WHERE l.customer = lane.customer)
    + (SELECT sum(s.turns) FROM unnest(served) AS s WHERE s.customer = lane.customer)
$$;

-- Dispatch up to `max_count` documents: returns their turns, and writes the lanes and the queue.
CREATE FUNCTION fairlane.dispatch(q fairlane.queue, kinds text[], max_count int, now_ms bigint) RETURNS fairlane.turn[]
LANGUAGE plpgsql AS $$
DECLARE
  lane_counts bigint[] := q.lanes;
  level int := fairlane.next_priority(lane_counts, 0);
  by_turn fairlane.heads;
  by_age fairlane.heads;
  lane fairlane.competing;
  served fairlane.competing[] := '{}';
  heads bigint[] := '{}';    -- those that were served from an index
  again int[] := '{}';       -- served lanes that wait for another turn, in the order of turns
  capped bigint[] := '{}';   -- customers that reached their cap
  turns fairlane.turn[] := '{}';
  before bigint := q.dispatches;
  is_open boolean;
  nth int;
BEGIN
  IF level IS NULL THEN
    RETURN turns;
  END IF;
  by_turn := fairlane.open_heads(kinds, level);
  WHILE cardinality(turns) < max_count LOOP
    is_open := fairlane.is_open_turn(q.dispatch, q.open_turn_every, q.dispatches);
    IF is_open THEN
      IF by_age IS NULL THEN
        by_age := fairlane.open_heads(kinds, 0);
      END IF;
      by_age := fairlane.next_head(by_age, lane_counts, heads, capped);
      lane := by_age.lanes[1];
      nth := fairlane.oldest_of(served, again);
      IF (lane.ready_ms, lane.head) < (served[nth].ready_ms, served[nth].head) THEN
        nth := NULL;
      END IF;
    ELSE
      by_turn := fairlane.next_head(by_turn, lane_counts, heads, capped);
      lane := by_turn.lanes[1];
      nth := again[1];
      IF (lane.priority, lane.start, lane.head) < (served[nth].priority, served[nth].start, served[nth].head) THEN
        nth := NULL;
      END IF;
    END IF;
    IF nth IS NULL THEN
      EXIT WHEN lane.head IS NULL;
      nth := cardinality(served) + 1;
      heads := heads || lane.head;
    ELSE
      lane := served[nth];
      again := array_remove(again, nth);
    END IF;
    turns := turns || (lane.head, lane.name, is_open)::fairlane.turn;
    q := fairlane.count_turn(q, lane);
    lane := fairlane.pay_turn(lane, q.dispatch);
    IF lane.head IS NULL THEN
      q.lanes[lane.priority] := q.lanes[lane.priority] - 1;
    END IF;
    served[nth] := lane;
    IF lane.cap IS NOT NULL AND fairlane.is_at_cap(lane, served) THEN
      capped := capped || lane.customer;
      again := ARRAY(SELECT o.nth FROM unnest(again) WITH ORDINALITY AS o (nth, spot)
                     WHERE served[o.nth].customer <> lane.customer ORDER BY o.spot);
    ELSIF lane.head IS NOT NULL THEN
      again := fairlane.insert_again(again, nth, served);
    END IF;
  END LOOP;
  IF cardinality(turns) > 0 THEN
    PERFORM fairlane.write_dispatched(fairlane.update_pace(q, now_ms, before), served, capped, cardinality(turns),
      CASE WHEN q.dispatches / 32 > before / 32 THEN kinds END, now_ms);
  END IF;
  RETURN turns;
END $$;

-- Count a turn of a lane in the queue, and move its priority's clock to the lane's start tag.
CREATE FUNCTION fairlane.count_turn(q fairlane.queue, lane fairlane.competing) RETURNS fairlane.queue
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  q.dispatches := q.dispatches + 1;
  q.ready[lane.priority] := q.ready[lane.priority] - 1;
  IF q.dispatch = 'fair' THEN
    q.clocks[lane.priority] := greatest(q.clocks[lane.priority], lane.start);
  END IF;
  RETURN q;
END $$;

-- Let a lane pay for its turn; the document behind its head becomes its head.
CREATE FUNCTION fairlane.pay_turn(lane fairlane.competing, dispatch text) RETURNS fairlane.competing LANGUAGE plpgsql AS $$
BEGIN
  lane.turns := lane.turns + 1;
  IF dispatch = 'fair' THEN
    lane.finish := lane.start + fairlane.step_of(lane.cost, lane.weight);
    lane.start := lane.finish;
  END IF;
  SELECT w.number, w.ready_ms, w.cost INTO lane.head, lane.ready_ms, lane.cost FROM fairlane.work AS w
  WHERE w.customer = lane.customer AND w.kind = lane.kind AND w.priority = lane.priority AND w.state = 'ready'
    AND w.number > lane.head
  ORDER BY w.number LIMIT 1;
  IF lane.head IS NULL THEN
    lane.start := NULL;
  END IF;
  RETURN lane;
END $$;

-- Write the lanes that a claim of these kinds has served, and the queue. `raised`: the kinds whose bounds to raise.
CREATE FUNCTION fairlane.write_dispatched(
  q fairlane.queue, served fairlane.competing[], capped bigint[], lines int, raised text[], now_ms bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  first_ready bigint := (SELECT min(s.ready_ms) FROM unnest(served) AS s WHERE s.start IS NOT NULL);
  kind_name text;
BEGIN
  UPDATE fairlane.lanes AS l SET head = s.head, ready_ms = s.ready_ms, start = s.start, finish = s.finish,
    waiting = l.waiting - s.turns, running = l.running + s.turns, revision = l.revision + 1
  FROM unnest(served) AS s WHERE l.ctid = s.spot;
  PERFORM fairlane.lower_ages(q, first_ready);
  IF cardinality(capped) > 0 THEN
    PERFORM fairlane.update_blocked(q, capped);
  END IF;
  IF raised IS NOT NULL THEN
    FOR kind_name IN
      SELECT DISTINCT s.kind FROM unnest(served) AS s WHERE s.kind = ANY (raised) UNION SELECT '' WHERE raised = '{""}'
    LOOP
      q.ages_floor := greatest(q.ages_floor, fairlane.raise_bounds(q, kind_name, now_ms));
    END LOOP;
  END IF;
  UPDATE fairlane.counters AS o SET revision = o.revision + 1, dispatches = q.dispatches, last_change = q.last_change + lines,
    clocks = q.clocks, ready = q.ready, lanes = q.lanes, pace_from_ms = q.pace_from_ms,
    pace_from_dispatches = q.pace_from_dispatches, pace_mid_ms = q.pace_mid_ms, pace_mid_dispatches = q.pace_mid_dispatches,
    leases_floor = q.leases_floor, delayed_floor = q.delayed_floor, ages_floor = q.ages_floor
  WHERE o.revision = q.revision;
  PERFORM fairlane.refuse_outdated(FOUND);
END $$;

-- Claim up to `max_count` documents in dispatch order, each with a lease, a fresh token and one more attempt counted.
CREATE FUNCTION fairlane.claim(
  worker_name text, max_count int, lease_length_ms bigint, kinds text[], attempts_by_kind int[], due_max int, now_override bigint
) RETURNS TABLE (
  id text, token bigint, number bigint, customer text, kind text, priority smallint, payload text, attempts int,
  attempts_max int, lease_ms bigint, turn bigint, is_open boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  q fairlane.queue := fairlane.lock_queue();
  now_ms bigint := fairlane.now_ms(now_override);
  ready_count bigint := 0;
  turns fairlane.turn[];
BEGIN
  PERFORM fairlane.refuse_frozen(q.frozen);
  IF EXISTS (SELECT FROM fairlane.work WHERE state = 'delayed' AND ready_ms >= q.delayed_floor AND ready_ms <= now_ms) THEN
    ready_count := fairlane.ready_due(q, now_ms, due_max);
    SELECT * INTO q FROM fairlane.queue;
  END IF;
  IF ready_count < due_max THEN  -- what is still delayed is due later
    q.delayed_floor := greatest(q.delayed_floor, now_ms);
  END IF;
  q.leases_floor := least(q.leases_floor, now_ms + lease_length_ms);
  turns := fairlane.dispatch(q, coalesce(kinds, '{""}'), max_count, now_ms);
  IF cardinality(turns) = 0 THEN
    RETURN;
  END IF;
  RETURN QUERY
    WITH started AS (
      UPDATE fairlane.work AS w SET state = 'running', token = w.token + 1, attempts = w.attempts + 1,
        attempts_max = coalesce(attempts_by_kind[array_position(kinds, w.kind)], 3), worker = worker_name,
        lease_ms = now_ms + lease_length_ms
      FROM (
        SELECT g.*, o.spot FROM unnest(turns) WITH ORDINALITY AS g (number, name, is_open, ordinal)
        CROSS JOIN LATERAL (SELECT ctid AS spot FROM fairlane.work AS i WHERE i.number = g.number OFFSET 0) AS o
      ) AS t
      WHERE w.ctid = t.spot AND w.state = 'ready'
      RETURNING w.*, t.ordinal, t.name, t.is_open
    ), logged AS (
      INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token, note)
      SELECT q.last_change + s.ordinal, now_ms, 'claimed', s.customer, s.number, s.token, worker_name FROM started AS s
    )
    SELECT s.id, s.token, s.number, s.name, s.kind, s.priority, d.payload, s.attempts, s.attempts_max, s.lease_ms,
      q.dispatches + s.ordinal, s.is_open
    FROM started AS s
    JOIN fairlane.documents AS d ON d.number = s.number
    ORDER BY s.ordinal;
END $$;

-- Move the marks from which readers see how fast documents were claimed lately.
CREATE FUNCTION fairlane.update_pace(q fairlane.queue, now_ms bigint, dispatches_before bigint) RETURNS fairlane.queue
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  age_ms bigint := now_ms - q.pace_mid_ms;
BEGIN
  IF NOT age_ms BETWEEN 0 AND 120000 THEN
    q.pace_from_ms := now_ms; q.pace_from_dispatches := dispatches_before;
    q.pace_mid_ms := now_ms; q.pace_mid_dispatches := dispatches_before;
  ELSIF age_ms > 60000 THEN
    q.pace_from_ms := q.pace_mid_ms; q.pace_from_dispatches := q.pace_mid_dispatches;
    q.pace_mid_ms := now_ms; q.pace_mid_dispatches := dispatches_before;
  END IF;
  RETURN q;
END $$;
