-- Claiming: the dispatch order, read lazily from the indexes of lane heads.
-- The tables stay as they are while a claim dispatches. Heads come from cursors; lanes that this claim has served wait beside
-- them for another turn, and the better of the two is next. So a claim reads in proportion to what it takes. A lane's start
-- tags follow from its own documents alone, whatever other lanes get.

-- Open a cursor of competing lanes in the order of turns; of several kinds at most `width` each.
CREATE FUNCTION fairlane.heads_by_turn(kinds text[], width int) RETURNS refcursor LANGUAGE plpgsql AS $$
DECLARE
  heads refcursor;
BEGIN
  IF cardinality(kinds) = 1 THEN
    OPEN heads FOR SELECT * FROM fairlane.competing WHERE kind = kinds[1] ORDER BY priority, start, head;
  ELSE
    OPEN heads FOR
      SELECT l.* FROM unnest(kinds) AS k (kind) CROSS JOIN LATERAL (
        SELECT * FROM fairlane.competing AS o WHERE o.kind = k.kind ORDER BY o.priority, o.start, o.head LIMIT width
      ) AS l ORDER BY l.priority, l.start, l.head;
  END IF;
  RETURN heads;
END $$;

-- Open a cursor of competing lanes, longest ready first; of several kinds at most `width` each.
CREATE FUNCTION fairlane.heads_by_age(kinds text[], width int) RETURNS refcursor LANGUAGE plpgsql AS $$
DECLARE
  heads refcursor;
BEGIN
  IF cardinality(kinds) = 1 THEN
    OPEN heads FOR SELECT * FROM fairlane.competing WHERE kind = kinds[1] ORDER BY ready_ms, head;
  ELSE
    OPEN heads FOR
      SELECT l.* FROM unnest(kinds) AS k (kind) CROSS JOIN LATERAL (
        SELECT * FROM fairlane.competing AS o WHERE o.kind = k.kind ORDER BY o.ready_ms, o.head LIMIT width
      ) AS l ORDER BY l.ready_ms, l.head;
  END IF;
  RETURN heads;
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
  width int := max_count;    -- of each kind, no more lanes than that can be needed
  by_turn refcursor := fairlane.heads_by_turn(kinds, width);
  by_age refcursor;
  next_by_turn fairlane.competing;  -- the first head of the index whose lane was not served
  next_by_age fairlane.competing;
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
  FETCH by_turn INTO next_by_turn;
  WHILE cardinality(turns) < max_count LOOP
    is_open := fairlane.is_open_turn(q.dispatch, q.open_turn_every, q.dispatches);
    IF is_open THEN
      IF by_age IS NULL THEN
        by_age := fairlane.heads_by_age(kinds, width);
        FETCH by_age INTO next_by_age;
      END IF;
      WHILE next_by_age.head = ANY (heads) OR next_by_age.customer = ANY (capped) LOOP
        FETCH by_age INTO next_by_age;
      END LOOP;
      lane := next_by_age;
      nth := fairlane.oldest_of(served, again);
      IF (lane.ready_ms, lane.head) < (served[nth].ready_ms, served[nth].head) THEN
        nth := NULL;
      END IF;
    ELSE
      WHILE next_by_turn.head = ANY (heads) OR next_by_turn.customer = ANY (capped) LOOP
        FETCH by_turn INTO next_by_turn;
      END LOOP;
      lane := next_by_turn;
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
      IF cardinality(kinds) > 1 AND width = max_count THEN  -- its lanes are skipped, so more of each kind may be needed
        width := 9 * max_count;
        by_turn := fairlane.heads_by_turn(kinds, width);
        FETCH by_turn INTO next_by_turn;
        by_age := NULL;
      END IF;
    ELSIF lane.head IS NOT NULL THEN
      again := fairlane.insert_again(again, nth, served);
    END IF;
  END LOOP;
  PERFORM fairlane.write_dispatched(fairlane.update_pace(q, now_ms, before), served, capped, cardinality(turns));
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

-- Write the lanes that a claim has served, and the queue.
CREATE FUNCTION fairlane.write_dispatched(q fairlane.queue, served fairlane.competing[], capped bigint[], lines int)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE fairlane.lanes AS l SET head = s.head, ready_ms = s.ready_ms, start = s.start, finish = s.finish,
    waiting = l.waiting - s.turns, running = l.running + s.turns
  FROM unnest(served) AS s WHERE l.customer = s.customer AND l.kind = s.kind AND l.priority = s.priority;
  IF cardinality(capped) > 0 THEN
    PERFORM fairlane.update_blocked(capped, q.dispatch, q.clocks);
  END IF;
  IF lines > 0 THEN
    UPDATE fairlane.queue SET dispatches = q.dispatches, last_change = q.last_change + lines, clocks = q.clocks,
      ready = q.ready, lanes = q.lanes, pace_from_ms = q.pace_from_ms, pace_from_dispatches = q.pace_from_dispatches,
      pace_mid_ms = q.pace_mid_ms, pace_mid_dispatches = q.pace_mid_dispatches
    WHERE one;
  END IF;
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
  turns fairlane.turn[];
BEGIN
  PERFORM fairlane.refuse_frozen(q.frozen);
  IF EXISTS (SELECT FROM fairlane.work WHERE state = 'delayed' AND ready_ms <= now_ms) THEN
    PERFORM fairlane.ready_due(now_ms, due_max);
    SELECT * INTO q FROM fairlane.queue WHERE one;
  END IF;
  turns := fairlane.dispatch(q, coalesce(kinds, fairlane.competing_kinds()), max_count, now_ms);
  IF cardinality(turns) = 0 THEN
    RETURN;
  END IF;
  RETURN QUERY
    WITH started AS (
      UPDATE fairlane.work AS w SET state = 'running', token = w.token + 1, attempts = w.attempts + 1,
        attempts_max = coalesce(attempts_by_kind[array_position(kinds, w.kind)], 3), worker = worker_name,
        lease_ms = now_ms + lease_length_ms
      FROM unnest(turns) WITH ORDINALITY AS t (number, name, is_open, ordinal)
      WHERE w.number = t.number AND w.state IS NOT DISTINCT FROM 'ready'  -- in this form the planner keeps to the number's index
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
