-- Kinds: their first lanes, which are kept so that a claim of all kinds need not read the lanes of each, and their limits.
-- A limit blocks a kind in its own row: nothing is written for each of its lanes. The kind's clock stands still meanwhile, so start
-- tags stay as they are; cross tags count as no less than the floor, which is the clock of the priority when the kind was unblocked.
-- Functions that may lower a bound of the queue return the queue, for `write_queue`.

-- Return from when on the bucket of a kind has a whole start in it; 0: it always has.
CREATE FUNCTION fairlane.next_start_ms(tokens bigint, tokens_ms bigint, rate bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN rate IS NULL OR tokens IS NULL OR tokens >= 1000 THEN 0
    ELSE tokens_ms + ((1000 - tokens) * 1000 + rate - 1) / rate END
$$;

-- Return a kind after one more document of it has started. The product may exceed 64 bits: numeric.
CREATE FUNCTION fairlane.take_start(k fairlane.kinds, now_ms bigint) RETURNS fairlane.kinds LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  k.running := k.running + 1;
  k.tokens := CASE WHEN k.rate IS NULL OR k.tokens IS NULL THEN k.burst
    ELSE least(k.burst, k.tokens + div(greatest(0, now_ms - k.tokens_ms)::numeric * k.rate, 1000)) END - 1000;
  k.tokens_ms := greatest(k.tokens_ms, now_ms);
  RETURN k;
END $$;

-- Return a kind blocked or unblocked, as its limit demands.
CREATE FUNCTION fairlane.apply_limit(k fairlane.kinds, q fairlane.queue, now_ms bigint) RETURNS fairlane.kinds
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  start_ms bigint := fairlane.next_start_ms(k.tokens, k.tokens_ms, k.rate);
  is_full boolean := coalesce(k.running >= k.running_max, false);
BEGIN
  IF k.is_blocked AND NOT is_full AND now_ms >= start_ms THEN
    k.floors := CASE WHEN q.dispatch = 'fair' THEN q.clocks END;
  END IF;
  k.is_blocked := is_full OR now_ms < start_ms;
  k.opens_ms := CASE WHEN k.is_blocked AND NOT is_full THEN start_ms END;
  RETURN k;
END $$;

-- Find the first lane of a kind in the order of turns. A scan begins at the clock. Lanes that tie in their start tag and whose cross
-- tags are below the floor compare by number: if they are many, another index has that order.
CREATE FUNCTION fairlane.find_first(k fairlane.kinds, is_fair boolean) RETURNS fairlane.kinds LANGUAGE plpgsql AS $$
DECLARE
  floor bigint;
  count_below int;
BEGIN
  SELECT o.priority, o.start, o.cross_tag, o.head INTO k.first_priority, k.first_start, k.first_cross, k.first_head
  FROM unnest(k.clocks) WITH ORDINALITY AS v (clock, level) CROSS JOIN LATERAL (
    SELECT l.priority, l.start, l.cross_tag, l.head FROM fairlane.lanes AS l
    WHERE l.kind = k.kind AND l.priority = v.level AND l.start IS NOT NULL AND l.start >= CASE WHEN is_fair THEN v.clock ELSE 0 END
    ORDER BY l.start, l.cross_tag, l.head LIMIT 1
  ) AS o LIMIT 1;
  floor := k.floors[k.first_priority];
  IF k.first_cross < floor THEN
    k.first_cross := floor;
    SELECT count(*), min(o.head) INTO count_below, k.first_head FROM (
      SELECT l.head FROM fairlane.lanes AS l
      WHERE l.kind = k.kind AND l.priority = k.first_priority AND l.start = k.first_start AND l.cross_tag <= floor
      ORDER BY l.cross_tag, l.head LIMIT 64
    ) AS o;
    IF count_below = 64 THEN
      SELECT l.head INTO k.first_head FROM fairlane.lanes AS l
      WHERE l.kind = k.kind AND l.priority = k.first_priority AND l.start = k.first_start AND l.cross_tag + 0 <= floor
      ORDER BY l.head LIMIT 1;
    END IF;
  END IF;
  RETURN k;
END $$;

-- Return a kind after its first lane had a turn: the next one is behind it.
CREATE FUNCTION fairlane.advance_first(k fairlane.kinds, is_fair boolean) RETURNS fairlane.kinds LANGUAGE plpgsql AS $$
DECLARE
  f record;
BEGIN
  IF k.floors IS NULL THEN
    SELECT l.start, l.cross_tag, l.head INTO f FROM fairlane.lanes AS l
    WHERE l.kind = k.kind AND l.priority = k.first_priority AND l.start IS NOT NULL
      AND (l.start, l.cross_tag, l.head) > (k.first_start, k.first_cross, k.first_head)
    ORDER BY l.start, l.cross_tag, l.head LIMIT 1;
    IF FOUND THEN
      k.first_start := f.start;
      k.first_cross := f.cross_tag;
      k.first_head := f.head;
      RETURN k;
    END IF;
  END IF;
  RETURN fairlane.find_first(k, is_fair);
END $$;

-- Find the head of a kind that was ready first; none was ready before the one that is known, or before this one.
CREATE FUNCTION fairlane.find_oldest(k fairlane.kinds, first_ready bigint) RETURNS fairlane.kinds LANGUAGE plpgsql AS $$
BEGIN
  IF k.first_head IS NULL THEN  -- no lane competes
    k.oldest_ms := NULL;
    k.oldest_head := NULL;
    RETURN k;
  ELSIF k.oldest_head IS NULL OR first_ready <= k.oldest_ms THEN
    k.oldest_ms := coalesce(first_ready, -9223372036854775808);
    k.oldest_head := 0;
  END IF;
  SELECT l.ready_ms, l.head INTO k.oldest_ms, k.oldest_head FROM fairlane.lanes AS l
  WHERE l.kind = k.kind AND l.start IS NOT NULL AND (l.ready_ms, l.head) >= (k.oldest_ms, k.oldest_head)
  ORDER BY l.ready_ms, l.head LIMIT 1;
  RETURN k;
END $$;

-- Notify waiting workers, unless the notification queue fills up unread.
CREATE FUNCTION fairlane.wake_workers() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF pg_notification_queue_usage() < 0.5 THEN
    PERFORM pg_notify('fairlane_wake', '');
  END IF;
END $$;

-- Write a kind, and lower the bounds of scans that its first lanes are before.
CREATE FUNCTION fairlane.write_kind(q fairlane.queue, k fairlane.kinds) RETURNS fairlane.queue LANGUAGE plpgsql AS $$
BEGIN
  UPDATE fairlane.kinds AS o SET revision = o.revision + 1, clocks = k.clocks, first_priority = k.first_priority,
    first_start = k.first_start, first_cross = k.first_cross, first_head = k.first_head, oldest_ms = k.oldest_ms,
    oldest_head = k.oldest_head, is_blocked = k.is_blocked, opens_ms = k.opens_ms, floors = k.floors, version = k.version,
    running_max = k.running_max, rate = k.rate, burst = k.burst, running = k.running, tokens = k.tokens, tokens_ms = k.tokens_ms
  WHERE o.kind = k.kind AND o.revision = k.revision;
  PERFORM fairlane.refuse_outdated(FOUND);
  IF k.is_blocked THEN
    q.opens_next := least(q.opens_next, k.opens_ms);
    RETURN q;
  ELSIF k.first_cross < q.cross_bounds[k.first_priority] THEN
    q.cross_bounds[k.first_priority] := k.first_cross;
  END IF;
  IF (k.oldest_ms, k.oldest_head) < (q.ages_floor, q.ages_head) THEN
    q.ages_floor := k.oldest_ms;
    q.ages_head := k.oldest_head;
  END IF;
  IF k.rate IS NOT NULL THEN
    q.opened_last := greatest(q.opened_last, fairlane.next_start_ms(k.tokens, k.tokens_ms, k.rate));
  END IF;
  RETURN q;
END $$;

-- Find the first lanes of a kind again and write it; `first_ready`: since when heads of lanes that have changed are ready, at most.
-- If it competes and did not before, waiting workers are notified.
CREATE FUNCTION fairlane.update_kind(q fairlane.queue, k fairlane.kinds, first_ready bigint, competed boolean) RETURNS fairlane.queue
LANGUAGE plpgsql AS $$
BEGIN
  k := fairlane.find_oldest(fairlane.find_first(k, q.dispatch = 'fair'), first_ready);
  IF k.first_head IS NOT NULL AND NOT k.is_blocked AND NOT competed THEN
    PERFORM fairlane.wake_workers();
  END IF;
  RETURN fairlane.write_kind(q, k);
END $$;

-- Find the first lanes of kinds again whose lanes have changed; one that was never seen gets a row.
CREATE FUNCTION fairlane.update_kinds(q fairlane.queue, names text[], first_ready bigint) RETURNS fairlane.queue LANGUAGE plpgsql AS $$
DECLARE
  k fairlane.kinds;
  name text;
BEGIN
  FOREACH name IN ARRAY coalesce(names, '{}') LOOP
    SELECT * INTO k FROM fairlane.kinds AS o WHERE o.kind = name ORDER BY o.revision DESC LIMIT 1;
    IF NOT FOUND THEN
      INSERT INTO fairlane.kinds (kind) VALUES (name) RETURNING * INTO k;
    END IF;
    q := fairlane.update_kind(q, k, first_ready, k.first_head IS NOT NULL AND NOT k.is_blocked);
  END LOOP;
  RETURN q;
END $$;

-- Count documents that run no longer, or more, by kind where kinds have limits, and block or unblock those kinds.
CREATE FUNCTION fairlane.count_running(q fairlane.queue, lane_changes fairlane.lane_change[], now_ms bigint) RETURNS fairlane.queue
LANGUAGE plpgsql AS $$
DECLARE
  each record;
  k fairlane.kinds;
  competed boolean;
BEGIN
  FOR each IN
    SELECT s.kind, sum(s.running) AS running FROM unnest(lane_changes) AS s WHERE s.running <> 0 GROUP BY 1 ORDER BY 1
  LOOP
    SELECT * INTO k FROM fairlane.kinds AS o WHERE o.kind = each.kind ORDER BY o.revision DESC LIMIT 1;
    CONTINUE WHEN k.version = 0;
    competed := k.first_head IS NOT NULL AND NOT k.is_blocked;
    k.running := k.running + each.running;
    q := fairlane.update_kind(q, fairlane.apply_limit(k, q, now_ms), NULL, competed);
  END LOOP;
  RETURN q;
END $$;

-- Let kinds compete again whose rate allows another start by now. After the clock was set back, every kind with a limit is looked
-- at: its rate may block it again.
CREATE FUNCTION fairlane.open_by_rate(q fairlane.queue, now_ms bigint) RETURNS fairlane.queue LANGUAGE plpgsql AS $$
DECLARE
  name text;
  names text[];
  k fairlane.kinds;
BEGIN
  IF now_ms < q.opened_last THEN
    names := ARRAY(SELECT DISTINCT o.kind FROM fairlane.kinds AS o WHERE o.version > 0);
  ELSE
    names := ARRAY(SELECT o.kind FROM fairlane.kinds AS o WHERE o.opens_ms >= q.opens_next AND o.opens_ms <= now_ms);
  END IF;
  FOREACH name IN ARRAY names LOOP
    SELECT * INTO k FROM fairlane.kinds AS o WHERE o.kind = name ORDER BY o.revision DESC LIMIT 1;
    q := fairlane.update_kind(q, fairlane.apply_limit(k, q, now_ms), NULL, true);
  END LOOP;
  q.opens_next := coalesce((SELECT o.opens_ms FROM fairlane.kinds AS o WHERE o.opens_ms >= q.opens_next ORDER BY o.opens_ms LIMIT 1),
    9223372036854775807);
  RETURN q;
END $$;

-- Return how many documents of a kind run.
CREATE FUNCTION fairlane.running_of(kind_name text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT count(*) FROM (SELECT o.leases_floor FROM fairlane.counters AS o ORDER BY o.revision DESC LIMIT 1) AS q
    JOIN fairlane.work AS w ON w.lease_ms >= q.leases_floor WHERE w.kind = kind_name AND w.state = 'running');
END $$;

-- Replace a kind's limit, with a full bucket; NULL, and no change, if `expected_version` is not the current version.
CREATE FUNCTION fairlane.limit_kind(
  kind_name text, expected_version int, new_running_max int, new_rate bigint, new_burst bigint, note text, now_override bigint
) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue := fairlane.lock_queue();
  k fairlane.kinds;
  now_ms bigint := fairlane.now_ms(now_override);
BEGIN
  PERFORM fairlane.refuse_frozen(q.frozen);
  SELECT * INTO k FROM fairlane.kinds AS o WHERE o.kind = kind_name ORDER BY o.revision DESC LIMIT 1;
  IF coalesce(k.version, 0) <> expected_version THEN
    RETURN NULL;
  ELSIF k.kind IS NULL THEN
    INSERT INTO fairlane.kinds (kind) VALUES (kind_name) RETURNING * INTO k;
  END IF;
  k.version := expected_version + 1;
  k.running_max := new_running_max;
  k.rate := new_rate;
  k.burst := new_burst;
  k.running := fairlane.running_of(kind_name);
  k.tokens := NULL;
  k.tokens_ms := 0;
  q := fairlane.update_kind(q, fairlane.apply_limit(k, q, now_ms), NULL, true);
  INSERT INTO fairlane.changes (number, at_ms, what, note) VALUES (q.last_change + 1, now_ms, 'limited', limit_kind.note);
  UPDATE fairlane.counters AS o SET limited = o.limited + 1 WHERE o.revision = q.revision;
  PERFORM fairlane.write_queue(q, 1);
  PERFORM fairlane.wake_workers();
  RETURN expected_version + 1;
END $$;
