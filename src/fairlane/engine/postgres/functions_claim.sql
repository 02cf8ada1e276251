-- Claiming: who is served next, read lazily from the index of lane heads.
-- Nothing is written while a round picks. Heads come from cursors; lanes that were already served in this round wait beside
-- them in order, and the better of the two is taken. So a claim reads in proportion to what it takes. Within a round a lane's
-- start tags follow from its own documents alone, whoever else is served.

-- The heads that compete, in the order of turns; of several kinds at most `width` each.
CREATE FUNCTION fairlane.heads_by_turn(wanted text[], width int) RETURNS refcursor LANGUAGE plpgsql AS $$
DECLARE
  turns refcursor;
BEGIN
  IF cardinality(wanted) = 1 THEN
    OPEN turns FOR
      SELECT l.priority, l.start, l.head, l.ready_ms, l.finish, l.customer, l.kind, w.cost, c.weight, c.cap, c.id AS name
      FROM fairlane.lanes AS l
      JOIN fairlane.customers AS c ON c.number = l.customer JOIN fairlane.work AS w ON w.number = l.head
      WHERE l.kind = wanted[1] AND l.start IS NOT NULL ORDER BY l.priority, l.start, l.head;
  ELSE
    OPEN turns FOR
      SELECT l.priority, l.start, l.head, l.ready_ms, l.finish, l.customer, l.kind, w.cost, c.weight, c.cap, c.id AS name
      FROM unnest(wanted) AS k (kind) CROSS JOIN LATERAL (
        SELECT * FROM fairlane.lanes AS l WHERE l.kind = k.kind AND l.start IS NOT NULL
        ORDER BY l.priority, l.start, l.head LIMIT width
      ) AS l JOIN fairlane.customers AS c ON c.number = l.customer JOIN fairlane.work AS w ON w.number = l.head
      ORDER BY l.priority, l.start, l.head;
  END IF;
  RETURN turns;
END $$;

-- The heads that compete, longest ready first; of several kinds at most `width` each.
CREATE FUNCTION fairlane.heads_by_age(wanted text[], width int) RETURNS refcursor LANGUAGE plpgsql AS $$
DECLARE
  ages refcursor;
BEGIN
  IF cardinality(wanted) = 1 THEN
    OPEN ages FOR
      SELECT l.priority, l.start, l.head, l.ready_ms, l.finish, l.customer, l.kind, w.cost, c.weight, c.cap, c.id AS name
      FROM fairlane.lanes AS l
      JOIN fairlane.customers AS c ON c.number = l.customer JOIN fairlane.work AS w ON w.number = l.head
      WHERE l.kind = wanted[1] AND l.start IS NOT NULL ORDER BY l.ready_ms, l.head;
  ELSE
    OPEN ages FOR
      SELECT l.priority, l.start, l.head, l.ready_ms, l.finish, l.customer, l.kind, w.cost, c.weight, c.cap, c.id AS name
      FROM unnest(wanted) AS k (kind) CROSS JOIN LATERAL (
        SELECT * FROM fairlane.lanes AS l WHERE l.kind = k.kind AND l.start IS NOT NULL
        ORDER BY l.ready_ms, l.head LIMIT width
      ) AS l JOIN fairlane.customers AS c ON c.number = l.customer JOIN fairlane.work AS w ON w.number = l.head
      ORDER BY l.ready_ms, l.head;
  END IF;
  RETURN ages;
END $$;

-- Up to `most` documents in dispatch order, each with a lease, a fresh token and one more attempt counted.
CREATE FUNCTION fairlane.claim(
  worker_name text, most int, lease_length_ms bigint, kinds text[], attempts_by_kind int[], due_most int, now_given bigint
) RETURNS TABLE (
  id text, token bigint, number bigint, customer text, kind text, priority smallint, payload text, attempts int,
  attempts_max int, lease_ms bigint, turn bigint, is_open boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  q fairlane.queue := fairlane.hold();
  now_ms bigint := fairlane.now_ms(now_given);
  wanted text[];
  width int;                 -- of each kind, no more lanes than that can be needed
  turns refcursor;
  ages refcursor;
  by_turn record;            -- the first head of the index that was not served in this round, in the order of turns
  by_age record;             -- the same, longest ready first
  is_aged boolean := false;  -- whether by_age was read
  -- the lanes served in this round, side by side
  first_heads bigint[] := '{}'; senders bigint[] := '{}'; lane_kinds text[] := '{}'; levels int[] := '{}';
  heads bigint[] := '{}'; readies bigint[] := '{}'; costs bigint[] := '{}'; starts bigint[] := '{}'; finishes bigint[] := '{}';
  weights int[] := '{}'; counts int[] := '{}'; names text[] := '{}';
  again int[] := '{}';       -- those that have a head left, in the order of turns, from again_at on
  again_at int := 1;
  capped bigint[] := '{}';   -- customers that reached their cap in this round
  limited bigint[] := '{}'; left_to_run int[] := '{}';  -- customers with a cap, and how many more they may run
  -- what was taken
  taken bigint[] := '{}'; takers text[] := '{}'; opens boolean[] := '{}';
  open_now boolean; lane int; spot int; low int; high int; step bigint; size int := 0; following record; best record; level int;
BEGIN
  PERFORM fairlane.refuse_frozen(q.frozen);
  IF EXISTS (SELECT FROM fairlane.work WHERE state = 'delayed' AND ready_ms <= now_ms) THEN
    PERFORM fairlane.ready_what_is_due(now_ms, due_most);
    SELECT * INTO q FROM fairlane.queue WHERE one;
  END IF;
  wanted := coalesce(kinds, fairlane.competing_kinds());
  IF cardinality(wanted) = 0 THEN
    RETURN;
  END IF;
  width := most;
  turns := fairlane.heads_by_turn(wanted, width);
  FETCH turns INTO by_turn;
  WHILE size < most LOOP
    open_now := q.dispatch = 'fair' AND q.open_turn_every > 0 AND (q.dispatches + 1) % greatest(q.open_turn_every, 1) = 0;
    lane := NULL;
    IF open_now THEN
      IF NOT is_aged THEN
        is_aged := true;
        ages := fairlane.heads_by_age(wanted, width);
        FETCH ages INTO by_age;
      END IF;
      WHILE by_age.head = ANY (first_heads) OR by_age.customer = ANY (capped) LOOP
        FETCH ages INTO by_age;
      END LOOP;
      SELECT s.place, s.ready_ms, s.head INTO following
      FROM unnest(heads, readies, senders) WITH ORDINALITY AS s (head, ready_ms, sender, place)
      WHERE s.head IS NOT NULL AND NOT s.sender = ANY (capped) ORDER BY s.ready_ms, s.head LIMIT 1;
      IF following.head IS NOT NULL AND
          (by_age.head IS NULL OR (following.ready_ms, following.head) < (by_age.ready_ms, by_age.head)) THEN
        lane := following.place;
      ELSE
        best := by_age;
      END IF;
    ELSE
      WHILE by_turn.head = ANY (first_heads) OR by_turn.customer = ANY (capped) LOOP
        FETCH turns INTO by_turn;
      END LOOP;
      WHILE again_at <= cardinality(again) AND senders[again[again_at]] = ANY (capped) LOOP
        again_at := again_at + 1;
      END LOOP;
      lane := again[again_at];
      IF lane IS NULL OR (by_turn.head IS NOT NULL AND
          (by_turn.priority, by_turn.start, by_turn.head) < (levels[lane], starts[lane], heads[lane])) THEN
        lane := NULL;
        best := by_turn;
      END IF;
    END IF;
    IF lane IS NULL THEN
      EXIT WHEN best.head IS NULL;
      lane := cardinality(first_heads) + 1;
      first_heads[lane] := best.head; senders[lane] := best.customer; lane_kinds[lane] := best.kind;
      levels[lane] := best.priority; heads[lane] := best.head; readies[lane] := best.ready_ms; costs[lane] := best.cost;
      starts[lane] := best.start; finishes[lane] := best.finish; weights[lane] := best.weight; counts[lane] := 0;
      names[lane] := best.name;
      IF best.cap IS NOT NULL AND NOT best.customer = ANY (limited) THEN
        spot := cardinality(limited) + 1;
        limited[spot] := best.customer;
        left_to_run[spot] := best.cap - (SELECT sum(r.running) FROM fairlane.lanes AS r WHERE r.customer = best.customer);
      END IF;
    ELSE  -- it leaves its place among those that wait for another turn
      spot := array_position(again, lane, again_at);
      IF spot = again_at THEN
        again_at := again_at + 1;
      ELSE
        again := again[:spot - 1] || again[spot + 1:];
      END IF;
    END IF;
    -- the turn is taken and paid for
    size := size + 1;
    q.dispatches := q.dispatches + 1;
    taken[size] := heads[lane]; takers[size] := names[lane]; opens[size] := open_now;
    counts[lane] := counts[lane] + 1;
    level := levels[lane];
    q.ready[level] := q.ready[level] - 1;
    IF q.dispatch = 'fair' THEN
      step := fairlane.step_of(costs[lane], weights[lane]);
      q.clocks[level] := greatest(q.clocks[level], starts[lane]);
      finishes[lane] := starts[lane] + step;
      starts[lane] := finishes[lane];
    END IF;
    SELECT w.number, w.ready_ms, w.cost INTO following FROM fairlane.work AS w
    WHERE w.customer = senders[lane] AND w.kind = lane_kinds[lane] AND w.priority = level AND w.state = 'ready'
      AND w.number > heads[lane]
    ORDER BY w.number LIMIT 1;
    heads[lane] := following.number; readies[lane] := following.ready_ms; costs[lane] := following.cost;
    IF following.number IS NULL THEN
      starts[lane] := NULL;
      q.lanes[level] := q.lanes[level] - 1;
    ELSE  -- the lane's next head waits for its turn: mostly behind all others
      low := again_at;
      high := cardinality(again) + 1;
      spot := again[high - 1];
      IF high > low AND (level, starts[lane], following.number) > (levels[spot], starts[spot], heads[spot]) THEN
        low := high;
      END IF;
      WHILE low < high LOOP
        spot := (low + high) / 2;
        IF (levels[again[spot]], starts[again[spot]], heads[again[spot]]) < (level, starts[lane], following.number) THEN
          low := spot + 1;
        ELSE
          high := spot;
        END IF;
      END LOOP;
      again := again[:low - 1] || lane || again[low:];
    END IF;
    spot := array_position(limited, senders[lane]);
    IF spot IS NOT NULL THEN
      left_to_run[spot] := left_to_run[spot] - 1;
      IF left_to_run[spot] <= 0 THEN
        capped := capped || senders[lane];
        IF cardinality(wanted) > 1 AND width = most THEN  -- its lanes are passed over, so more of each kind may be needed
          width := 9 * most;
          turns := fairlane.heads_by_turn(wanted, width);
          FETCH turns INTO by_turn;
          is_aged := false;
        END IF;
      END IF;
    END IF;
  END LOOP;
  IF size = 0 THEN
    RETURN;
  END IF;
  UPDATE fairlane.lanes AS l SET head = s.head, ready_ms = s.ready_ms, start = s.start, finish = s.finish,
    waiting = l.waiting - s.count, running = l.running + s.count
  FROM unnest(senders, lane_kinds, levels, heads, readies, starts, finishes, counts)
    AS s (sender, kind, priority, head, ready_ms, start, finish, count)
  WHERE l.customer = s.sender AND l.kind = s.kind AND l.priority = s.priority;
  IF cardinality(capped) > 0 THEN
    PERFORM fairlane.gate(capped, q.dispatch, q.clocks);
  END IF;
  q := fairlane.paced(q, now_ms, q.dispatches - size);
  UPDATE fairlane.queue SET dispatches = q.dispatches, last_change = q.last_change + size, clocks = q.clocks,
    ready = q.ready, lanes = q.lanes, pace_from_ms = q.pace_from_ms, pace_from_dispatches = q.pace_from_dispatches,
    pace_mid_ms = q.pace_mid_ms, pace_mid_dispatches = q.pace_mid_dispatches
  WHERE one;
  RETURN QUERY
    WITH started AS (
      UPDATE fairlane.work AS w SET state = 'running', token = w.token + 1, attempts = w.attempts + 1,
        attempts_max = coalesce(attempts_by_kind[array_position(kinds, w.kind)], 3), worker = worker_name,
        lease_ms = now_ms + lease_length_ms
      FROM unnest(taken, takers, opens) WITH ORDINALITY AS t (number, name, is_open, place)
      WHERE w.number = t.number AND w.state IS NOT DISTINCT FROM 'ready'  -- said so, the planner keeps to the number's index
      RETURNING w.*, t.place, t.name, t.is_open
    ), logged AS (
      INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token, note)
      SELECT q.last_change + s.place, now_ms, 'claimed', s.customer, s.number, s.token, worker_name FROM started AS s
    )
    SELECT s.id, s.token, s.number, s.name, s.kind, s.priority, d.payload, s.attempts, s.attempts_max, s.lease_ms,
      q.dispatches - size + s.place, s.is_open
    FROM started AS s
    JOIN fairlane.documents AS d ON d.number = s.number
    ORDER BY s.place;
END $$;

-- The marks that tell how fast documents were taken lately, as a claim at this moment leaves them.
CREATE FUNCTION fairlane.paced(q fairlane.queue, now_ms bigint, before bigint) RETURNS fairlane.queue
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  age_ms bigint := now_ms - q.pace_mid_ms;
BEGIN
  IF NOT age_ms BETWEEN 0 AND 120000 THEN
    q.pace_from_ms := now_ms; q.pace_from_dispatches := before;
    q.pace_mid_ms := now_ms; q.pace_mid_dispatches := before;
  ELSIF age_ms > 60000 THEN
    q.pace_from_ms := q.pace_mid_ms; q.pace_from_dispatches := q.pace_mid_dispatches;
    q.pace_mid_ms := now_ms; q.pace_mid_dispatches := before;
  END IF;
  RETURN q;
END $$;
