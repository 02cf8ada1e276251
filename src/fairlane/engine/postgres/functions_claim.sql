-- Claiming: of each kind its first lane is known, so the next document is that of the best kind.
-- Lanes are written turn by turn. Kinds that had a turn are kept in arrays, and written at the end: what the tables say of them is
-- outdated until then. A claim of `max_count` documents needs no more kinds than that.

-- Return the kinds that may compete, the first `max_count` of them in the order of turns; `kinds` is NULL for all.
CREATE FUNCTION fairlane.first_kinds(q fairlane.queue, kinds text[], max_count int) RETURNS fairlane.kind_entry[] LANGUAGE plpgsql AS $$
BEGIN
  IF kinds IS NULL THEN
    RETURN ARRAY(
      SELECT (o.first_priority, o.first_cross, o.first_head, o.kind)::fairlane.kind_entry
      FROM unnest(q.cross_bounds) WITH ORDINALITY AS b (bound, level) CROSS JOIN LATERAL (
        SELECT * FROM fairlane.kinds AS k
        WHERE k.first_head IS NOT NULL AND NOT k.is_blocked AND k.first_priority = b.level AND k.first_cross >= b.bound
        ORDER BY k.first_cross, k.first_head LIMIT max_count
      ) AS o LIMIT max_count);
  END IF;
  RETURN ARRAY(
    SELECT (o.first_priority, o.first_cross, o.first_head, o.kind)::fairlane.kind_entry
    FROM unnest(kinds) AS n (kind) CROSS JOIN LATERAL (
      SELECT * FROM fairlane.kinds AS k WHERE k.kind = n.kind ORDER BY k.revision DESC LIMIT 1
    ) AS o WHERE o.first_head IS NOT NULL AND NOT o.is_blocked
    ORDER BY o.first_priority, o.first_cross, o.first_head LIMIT max_count);
END $$;

-- Read a head, with its lane.
CREATE FUNCTION fairlane.read_head(number bigint) RETURNS fairlane.lane_heads LANGUAGE plpgsql AS $$
DECLARE
  lane fairlane.lane_heads;
BEGIN
  SELECT * INTO STRICT lane FROM fairlane.lane_heads AS o WHERE o.head = number;
  RETURN lane;
END $$;

-- Read the heads of a kind that come next in the order of turns, all at once: one by one, each would cost three times as much.
CREATE FUNCTION fairlane.read_ahead(k fairlane.kinds, max_count int) RETURNS SETOF fairlane.lane_heads LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY
    SELECT h.* FROM (
      SELECT l.head FROM fairlane.lanes AS l
      WHERE l.kind = k.kind AND l.priority = k.first_priority AND l.start IS NOT NULL
        AND (l.start, l.cross_tag, l.head) >= (k.first_start, k.first_cross, k.first_head)
      ORDER BY l.start, l.cross_tag, l.head LIMIT max_count
    ) AS f CROSS JOIN LATERAL (SELECT * FROM fairlane.lane_heads AS o WHERE o.head = f.head OFFSET 0) AS h;
END $$;

-- Find the oldest heads of kinds that had turns, where they are outdated.
CREATE FUNCTION fairlane.find_oldest_heads(served fairlane.kinds[], outdated boolean[]) RETURNS fairlane.kinds[] LANGUAGE plpgsql AS $$
BEGIN
  FOR nth IN 1 .. cardinality(served) LOOP
    IF outdated[nth] THEN
      served[nth] := fairlane.find_oldest(served[nth], NULL);
    END IF;
  END LOOP;
  RETURN served;
END $$;

-- Return the kind whose head was ready first, of those that had turns in this claim and of the others; NULL: there is none.
CREATE FUNCTION fairlane.oldest_kind(q fairlane.queue, kinds text[], names text[], served fairlane.kinds[]) RETURNS fairlane.kinds
LANGUAGE plpgsql AS $$
DECLARE
  k fairlane.kinds;
  other fairlane.kinds;
BEGIN
  IF kinds IS NULL THEN
    SELECT * INTO k FROM fairlane.kinds AS o
    WHERE o.oldest_head IS NOT NULL AND NOT o.is_blocked AND (o.oldest_ms, o.oldest_head) >= (q.ages_floor, q.ages_head)
      AND o.kind <> ALL (names)
    ORDER BY o.oldest_ms, o.oldest_head LIMIT 1;
  ELSE
    SELECT o.* INTO k FROM unnest(kinds) AS n (kind) CROSS JOIN LATERAL (
      SELECT * FROM fairlane.kinds AS i WHERE i.kind = n.kind ORDER BY i.revision DESC LIMIT 1
    ) AS o WHERE o.oldest_head IS NOT NULL AND NOT o.is_blocked AND o.kind <> ALL (names)
    ORDER BY o.oldest_ms, o.oldest_head LIMIT 1;
  END IF;
  FOREACH other IN ARRAY served LOOP
    IF NOT other.is_blocked AND other.oldest_head IS NOT NULL
      AND (k.kind IS NULL OR (other.oldest_ms, other.oldest_head) < (k.oldest_ms, k.oldest_head))
    THEN
      k := other;
    END IF;
  END LOOP;
  RETURN k;
END $$;

-- Insert a kind among others, in the order of turns, in place of its entry before.
CREATE FUNCTION fairlane.insert_kind(entries fairlane.kind_entry[], k fairlane.kinds) RETURNS fairlane.kind_entry[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  entry fairlane.kind_entry := (k.first_priority, k.first_cross, k.first_head, k.kind);
  spot int;
BEGIN
  FOR nth IN 1 .. cardinality(entries) LOOP
    IF entries[nth].kind = k.kind THEN
      entries := entries[:nth - 1] || entries[nth + 1:];
      EXIT;
    END IF;
  END LOOP;
  IF k.first_head IS NULL OR k.is_blocked THEN
    RETURN entries;
  END IF;
  spot := cardinality(entries);
  WHILE spot > 0 AND (entry.priority, entry.cross_tag, entry.head)
      < (entries[spot].priority, entries[spot].cross_tag, entries[spot].head) LOOP
    spot := spot - 1;
  END LOOP;
  RETURN entries[:spot] || entry || entries[spot + 1:];
END $$;

-- Write kinds that had turns.
CREATE FUNCTION fairlane.write_served(q fairlane.queue, served fairlane.kinds[], outdated boolean[]) RETURNS fairlane.queue
LANGUAGE plpgsql AS $$
DECLARE
  k fairlane.kinds;
BEGIN
  FOREACH k IN ARRAY fairlane.find_oldest_heads(served, outdated) LOOP
    q := fairlane.write_kind(q, k);
  END LOOP;
  RETURN q;
END $$;

-- Dispatch up to `max_count` documents of these kinds (NULL: of all), in order of turns `entries`; the next is number `number` of its
-- set. Returns their turns, and the queue for `write_queue`.
CREATE FUNCTION fairlane.dispatch(
  INOUT q fairlane.queue, kinds text[], entries fairlane.kind_entry[], max_count int, number bigint, now_ms bigint, OUT turns fairlane.turn[]
) LANGUAGE plpgsql AS $$
DECLARE
  is_fair boolean := q.dispatch = 'fair';
  served fairlane.kinds[] := '{}';   -- kinds that had a turn ...
  names text[] := '{}';              -- ... their names ...
  outdated boolean[] := '{}';        -- ... and whether their oldest heads are known as bounds only
  ahead fairlane.lane_heads[];       -- lanes that were read before their turns; those that had one have another head now
  heads bigint[];
  head bigint;
  k fairlane.kinds;
  lane fairlane.lane_heads;
  is_open boolean;
  price bigint;
  charge bigint;
  level int;
  nth int;
BEGIN
  turns := '{}';
  WHILE cardinality(turns) < max_count AND cardinality(entries) > 0 LOOP
    is_open := is_fair AND q.open_turn_every > 0 AND (number + cardinality(turns)) % nullif(q.open_turn_every, 0) = 0;
    nth := array_position(names, entries[1].kind);
    IF is_open THEN
      served := fairlane.find_oldest_heads(served, outdated); outdated := '{}';
      k := fairlane.oldest_kind(q, kinds, names, served);
    ELSIF nth IS NULL THEN
      SELECT * INTO k FROM fairlane.kinds AS o WHERE o.kind = entries[1].kind ORDER BY o.revision DESC LIMIT 1;
      IF max_count > cardinality(entries) THEN
        SELECT ahead || array_agg(o), heads || array_agg(o.head) INTO ahead, heads
        FROM fairlane.read_ahead(k, (max_count - cardinality(turns)) / cardinality(entries)) AS o;
      END IF;
    ELSE
      k := served[nth];
    END IF;
    EXIT WHEN k.first_head IS NULL OR k.is_blocked;
    nth := coalesce(array_position(names, k.kind), cardinality(names) + 1);
    head := CASE WHEN is_open THEN k.oldest_head ELSE k.first_head END;
    lane := coalesce(ahead[array_position(heads, head)], fairlane.read_head(head));
    level := lane.priority;
    price := CASE WHEN NOT is_fair THEN NULL WHEN q.turns = 'documents' THEN fairlane.step_of(lane.cost, lane.weight)
      ELSE greatest(1, coalesce(lane.usual, q.usual, 1000000) / lane.weight) END;
    IF is_fair THEN
      lane.cross_tag := greatest(lane.cross_tag, k.floors[level]);
      IF NOT is_open THEN
        k.clocks[level] := lane.start;
        q.clocks[level] := greatest(q.clocks[level], lane.cross_tag);
      END IF;
      charge := CASE WHEN is_open AND lane.start > k.clocks[level] + price THEN 0 ELSE price END;
      lane.finish := lane.start + charge;
      lane.cross_finish := greatest(lane.cross_tag, q.clocks[level]) + charge;
      lane.start := lane.finish; lane.cross_tag := lane.cross_finish;
    END IF;
    UPDATE fairlane.lanes AS l SET head = lane.next_head, ready_ms = lane.next_ready,
      start = CASE WHEN lane.next_head IS NOT NULL THEN lane.start END, cross_tag = lane.cross_tag, finish = lane.finish,
      cross_finish = lane.cross_finish, waiting = l.waiting - 1, running = l.running + 1, revision = l.revision + 1
    WHERE l.ctid = lane.spot;
    turns := turns || (lane.head, CASE WHEN charge = price AND q.turns = 'time' THEN price END, lane.name, is_open)::fairlane.turn;
    q.ready[level] := q.ready[level] - 1; q.lanes[level] := q.lanes[level] - (lane.next_head IS NULL)::int;
    q.taken[level] := q.taken[level] + (now_ms > lane.ready_ms)::int;
    outdated[nth] := coalesce(outdated[nth], false) OR lane.head = k.oldest_head;
    IF (lane.next_ready, lane.next_head) < (k.oldest_ms, k.oldest_head) THEN
      k.oldest_ms := lane.next_ready; k.oldest_head := lane.next_head; outdated[nth] := false;
    END IF;
    IF lane.head = k.first_head THEN
      k := fairlane.advance_first(k, is_fair);
    END IF;
    IF k.version > 0 THEN
      k := fairlane.apply_limit(fairlane.take_start(k, now_ms), q, now_ms);
    END IF;
    names[nth] := k.kind; served[nth] := k;
    entries := fairlane.insert_kind(entries, k);
    IF lane.cap IS NOT NULL AND fairlane.is_blocked(lane.customer, 0) THEN
      q := fairlane.update_blocked(fairlane.write_served(q, served, outdated), ARRAY[lane.customer]);
      names := '{}'; served := '{}'; outdated := '{}'; ahead := '{}'; heads := '{}';
      entries := fairlane.first_kinds(q, kinds, max_count - cardinality(turns));
    END IF;
  END LOOP;
  q := fairlane.write_served(q, served, outdated);
END $$;

-- Count the time since the last claim during which something could have been taken, and raise the bounds of scans: by age to the
-- first, and where there is no kind to the clock.
CREATE FUNCTION fairlane.count_busy_time(q fairlane.queue, now_ms bigint) RETURNS fairlane.queue LANGUAGE plpgsql AS $$
DECLARE
  oldest record;
BEGIN
  SELECT o.oldest_ms, o.oldest_head INTO oldest FROM fairlane.kinds AS o
  WHERE o.oldest_head IS NOT NULL AND NOT o.is_blocked AND (o.oldest_ms, o.oldest_head) >= (q.ages_floor, q.ages_head)
  ORDER BY o.oldest_ms, o.oldest_head LIMIT 1;
  IF FOUND THEN
    q.busy_ms := q.busy_ms + greatest(0, now_ms - greatest(q.ticked_ms, oldest.oldest_ms));
    q.ticked_ms := greatest(q.ticked_ms, now_ms);
    q.ages_floor := oldest.oldest_ms;
    q.ages_head := oldest.oldest_head;
  END IF;
  RETURN q;
END $$;

-- Raise the bounds of cross tags to those of the first kind: none is before it.
CREATE FUNCTION fairlane.raise_bounds(q fairlane.queue, first fairlane.kind_entry) RETURNS fairlane.queue LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  FOR level IN 1 .. coalesce(first.priority - 1, 9) LOOP
    q.cross_bounds[level] := greatest(q.cross_bounds[level], q.clocks[level]);
  END LOOP;
  IF first.priority IS NOT NULL THEN
    q.cross_bounds[first.priority] := first.cross_tag;
  END IF;
  RETURN q;
END $$;

-- Claim up to `max_count` documents in dispatch order, each with a lease, a fresh token and one more attempt counted. `kinds` are
-- sorted, and each is named once.
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
  set_digest text := fairlane.digest_of(kinds);
  d fairlane.dispatches;
  entries fairlane.kind_entry[];
  dispatched record;
  ticked_before bigint;
BEGIN
  PERFORM fairlane.refuse_frozen(q.frozen);
  ticked_before := q.ticked_ms;
  IF EXISTS (SELECT FROM fairlane.work WHERE state = 'delayed' AND ready_ms >= q.delayed_floor AND ready_ms <= now_ms) THEN
    q := fairlane.ready_due(q, now_ms, due_max);
    ticked_before := NULL;  -- so that the queue is written
  ELSE
    q.delayed_floor := greatest(q.delayed_floor, now_ms);
  END IF;
  IF q.limited > 0 AND (q.opens_next <= now_ms OR now_ms < q.opened_last) THEN
    q := fairlane.open_by_rate(q, now_ms);
    ticked_before := NULL;
  END IF;
  q := fairlane.count_busy_time(q, now_ms);
  SELECT * INTO d FROM fairlane.dispatches AS o WHERE o.digest = set_digest ORDER BY o.revision DESC LIMIT 1;
  d.number := coalesce(d.number, 0);
  entries := fairlane.first_kinds(q, kinds, max_count);
  IF kinds IS NULL THEN
    q := fairlane.raise_bounds(q, entries[1]);
  END IF;
  SELECT * INTO dispatched FROM fairlane.dispatch(q, kinds, entries, max_count, d.number + 1, now_ms);
  q := dispatched.q;
  IF cardinality(dispatched.turns) = 0 THEN
    PERFORM fairlane.write_queue(q, 0) WHERE q.ticked_ms IS DISTINCT FROM ticked_before;
    RETURN;
  END IF;
  q.leases_floor := least(q.leases_floor, now_ms + lease_length_ms);
  PERFORM fairlane.count_dispatches(d, set_digest, kinds, cardinality(dispatched.turns));
  PERFORM fairlane.write_queue(q, cardinality(dispatched.turns));
  RETURN QUERY
    WITH started AS (
      UPDATE fairlane.work AS w SET state = 'running', token = w.token + 1, attempts = w.attempts + 1,
        attempts_max = coalesce(attempts_by_kind[array_position(kinds, w.kind)], 3), worker = worker_name,
        lease_ms = now_ms + lease_length_ms, claimed_ms = now_ms, paid = t.paid
      FROM (
        SELECT g.*, o.spot FROM unnest(dispatched.turns) WITH ORDINALITY AS g (number, paid, name, is_open, ordinal)
        CROSS JOIN LATERAL (SELECT ctid AS spot FROM fairlane.work AS i WHERE i.number = g.number OFFSET 0) AS o
      ) AS t
      WHERE w.ctid = t.spot AND w.state = 'ready'
      RETURNING w.*, t.ordinal, t.name, t.is_open
    ), logged AS (
      INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token, note)
      SELECT q.last_change + s.ordinal, now_ms, 'claimed', s.customer, s.number, s.token, worker_name FROM started AS s
    )
    SELECT s.id, s.token, s.number, s.name, s.kind, s.priority, p.payload, s.attempts, s.attempts_max, s.lease_ms,
      d.number + s.ordinal, s.is_open
    FROM started AS s JOIN fairlane.documents AS p ON p.number = s.number
    ORDER BY s.ordinal;
END $$;

-- Return the key under which the dispatches of a set of kinds are counted. (The planner puts only what is STABLE into its caller: a
-- call of its own would cost more than all the rest.)
CREATE FUNCTION fairlane.digest_of(kind_set text[]) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN kind_set IS NULL THEN '' ELSE encode(sha256(convert_to(kind_set::text, 'UTF8')), 'hex') END
$$;

-- Count dispatches of a set of kinds.
CREATE FUNCTION fairlane.count_dispatches(d fairlane.dispatches, set_digest text, kind_set text[], more int) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF d.digest IS NULL THEN
    INSERT INTO fairlane.dispatches (digest, kinds, number) VALUES (set_digest, kind_set, more);
  ELSE
    UPDATE fairlane.dispatches AS o SET number = o.number + more, revision = o.revision + (random() < 0.06)::int
    WHERE o.digest = d.digest AND o.revision = d.revision;
  END IF;
END $$;
