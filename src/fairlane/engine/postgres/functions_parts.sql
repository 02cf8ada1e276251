-- Parts of documents that were split: how they begin, what their end does to their whole, and its end to them.

-- Insert the parts of documents that `settle` has split, in order; the queue is locked, and their customers are. Each part is the
-- ordinal of its whole among `numbers`, its id, kind, payload, cost, delay and bytes of files.
CREATE FUNCTION fairlane.add_parts(numbers bigint[], ids text[], settled bigint[], packed_parts jsonb, now_ms bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
  each record;
  added record;
BEGIN
  FOR each IN
    SELECT (p.part ->> 0)::int AS ordinal, array_agg(p.part ->> 1 ORDER BY p.nth) AS ids, array_agg(p.part ->> 2 ORDER BY p.nth) AS kinds,
      array_agg(p.part ->> 3 ORDER BY p.nth) AS payloads, array_agg((p.part ->> 4)::bigint ORDER BY p.nth) AS costs,
      array_agg((p.part ->> 5)::bigint ORDER BY p.nth) AS delays, array_agg((p.part ->> 6)::bigint ORDER BY p.nth) AS files,
      count(*)::int AS size
    FROM jsonb_array_elements(packed_parts) WITH ORDINALITY AS p (part, nth)
    WHERE (p.part ->> 0)::bigint = ANY (settled) GROUP BY 1 ORDER BY 1
  LOOP
    SELECT * INTO q FROM fairlane.queue;
    SELECT i.* INTO added FROM fairlane.insert_documents(q, now_ms, false, each.ids,
      fairlane.fill(ARRAY(SELECT c.id FROM fairlane.documents AS d JOIN fairlane.customer_terms AS c ON c.number = d.customer
        WHERE d.number = numbers[each.ordinal]), each.size),
      each.kinds, each.payloads, each.costs, NULL, NULL, each.delays, NULL, fairlane.fill(ARRAY[ids[each.ordinal]], each.size),
      fairlane.fill(ARRAY[true], each.size), each.files, NULL) AS i;
    INSERT INTO fairlane.parts (number, whole, whole_id) SELECT n.number, numbers[each.ordinal], ids[each.ordinal]
    FROM unnest(added.numbers) AS n (number);
    INSERT INTO fairlane.wholes (number, parts_from, parts, parts_left)
    VALUES (numbers[each.ordinal], (SELECT min(n) FROM unnest(added.numbers) AS n), each.size, each.size)
    ON CONFLICT (number) DO UPDATE SET parts_from = excluded.parts_from, parts = excluded.parts, parts_left = excluded.parts_left;
    q.delayed_floor := least(q.delayed_floor, now_ms);
    PERFORM fairlane.write_queue(fairlane.update_lanes(q, added.lane_changes, now_ms), each.size);
  END LOOP;
END $$;

-- Return the parts of a document that waits for its parts, or did: those that ended and are not done, or have not ended; in order.
CREATE FUNCTION fairlane.parts_in(whole_number bigint, ended boolean) RETURNS bigint[] LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN ARRAY(
    SELECT p.number FROM fairlane.wholes AS o JOIN fairlane.parts AS p ON p.whole = o.number AND p.number >= o.parts_from
    WHERE o.number = whole_number AND o.parts_left > 0 AND CASE WHEN ended
      THEN EXISTS (SELECT FROM fairlane.endings AS e WHERE e.number = p.number AND e.state <> 'done')
      ELSE EXISTS (SELECT FROM fairlane.work AS w WHERE w.number = p.number) END
    ORDER BY p.number);
END $$;

-- Count a part that is done towards its whole, which goes on after the last one; or end the whole as a part of it has ended.
-- Returns the whole if it has ended.
CREATE FUNCTION fairlane.end_part(part bigint, state text, now_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
  w fairlane.work;
  missing int;
BEGIN
  IF end_part.state = 'done' THEN  -- a whole that failed with another part at that moment may wait for its parts again
    UPDATE fairlane.wholes AS h SET parts_left = h.parts_left - 1
    WHERE h.number = (SELECT p.whole FROM fairlane.parts AS p WHERE p.number = part) AND h.parts_left > 0
    RETURNING h.parts_left INTO missing;
  END IF;
  SELECT o.* INTO w FROM fairlane.parts AS p JOIN fairlane.work AS o ON o.number = p.whole
  JOIN fairlane.wholes AS h ON h.number = p.whole
  WHERE p.number = part AND o.state = 'delayed' AND (h.parts_left > 0 OR missing = 0);
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  SELECT * INTO q FROM fairlane.queue;
  IF end_part.state = 'done' THEN
    IF missing = 0 THEN
      PERFORM fairlane.apply_transitions(q, ARRAY[(w.number, 'ready', 'joined', NULL, NULL, now_ms, w.attempts, NULL, NULL, NULL, false,
        NULL, NULL)::fairlane.transition], now_ms);
    END IF;
    RETURN NULL;
  END IF;
  PERFORM fairlane.apply_transitions(q, ARRAY[(w.number, end_part.state, end_part.state, CASE end_part.state WHEN 'failed' THEN (
      SELECT format('its part %s failed: %s', d.id, e.reason) FROM fairlane.documents AS d JOIN fairlane.endings AS e ON e.number = d.number
      WHERE d.number = part) END,
    NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL)::fairlane.transition], now_ms);
  RETURN w.number;
END $$;

-- Do what the end of parts does to their wholes, and the end of wholes to their parts, after documents changed their state.
CREATE FUNCTION fairlane.end_families(numbers bigint[], now_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
  pending bigint[] := ARRAY(
    SELECT n.number FROM unnest(numbers) WITH ORDINALITY AS n (number, ordinal)
    WHERE EXISTS (SELECT FROM fairlane.parts AS p WHERE p.number = n.number)
      OR EXISTS (SELECT FROM fairlane.wholes AS o WHERE o.number = n.number AND o.parts_left > 0)
    ORDER BY n.ordinal);
  nth int := 0;
  ended_as text;
  others bigint[];
BEGIN
  WHILE nth < cardinality(pending) LOOP  -- which grows
    nth := nth + 1;
    ended_as := (SELECT e.state FROM fairlane.endings AS e WHERE e.number = pending[nth]);
    CONTINUE WHEN ended_as IS NULL;  -- it waits again
    pending := pending || ARRAY(SELECT n FROM fairlane.end_part(pending[nth], ended_as, now_ms) AS n WHERE n IS NOT NULL);
    others := fairlane.parts_in(pending[nth], false);
    CONTINUE WHEN cardinality(others) = 0;
    SELECT * INTO q FROM fairlane.queue;
    PERFORM fairlane.apply_transitions(q, ARRAY(
      SELECT (n, 'cancelled', 'cancelled', NULL, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL)::fairlane.transition
      FROM unnest(others) WITH ORDINALITY AS o (n, ordinal) ORDER BY o.ordinal), now_ms);
    pending := pending || others;
  END LOOP;
END $$;

-- Let the parts of a document that are not done wait again, and theirs, after it was revived: those that were split themselves until
-- their parts are done. Returns how many.
CREATE FUNCTION fairlane.revive_parts(whole bigint, now_ms bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
  lane_changes fairlane.lane_change[];
  pending bigint[] := ARRAY[whole];
  nth int := 0;
  others bigint[];
BEGIN
  WHILE nth < cardinality(pending) LOOP  -- which grows
    nth := nth + 1;
    others := fairlane.parts_in(pending[nth], true);
    CONTINUE WHEN cardinality(others) = 0;
    SELECT * INTO q FROM fairlane.queue;
    WITH ended AS (
      DELETE FROM fairlane.endings AS e WHERE e.number = ANY (others) RETURNING e.*
    ), revived AS MATERIALIZED (
      SELECT e.*, d.id, d.customer, d.kind, coalesce(e.priority, d.priority) AS lane_priority,
        EXISTS (SELECT FROM fairlane.wholes AS o WHERE o.number = e.number AND o.parts_left > 0) AS is_whole
      FROM ended AS e JOIN fairlane.documents AS d ON d.number = e.number
    ), queued AS (
      INSERT INTO fairlane.work (number, id, customer, kind, priority, state, ready_ms, cost, token, attempts, attempts_max,
        is_set_by_hand, claimed_ms)
      SELECT r.number, r.id, r.customer, r.kind, r.lane_priority, CASE WHEN r.is_whole THEN 'delayed' ELSE 'ready' END,
        CASE WHEN r.is_whole THEN 253402300799999 ELSE now_ms END, r.cost, r.token, 0, r.attempts_max, r.is_set_by_hand, r.claimed_ms
      FROM revived AS r
    ), logged AS (
      INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token)
      SELECT q.last_change + row_number() OVER (ORDER BY r.number), now_ms, 'revived', r.customer, r.number, r.token FROM revived AS r
    )
    SELECT array_agg((r.number, r.customer, r.kind, r.lane_priority, (NOT r.is_whole)::int, 1, 0, 0, -(r.state = 'failed')::int,
      -(r.state = 'cancelled')::int, 0, 0, NULL)::fairlane.lane_change ORDER BY r.number) INTO lane_changes FROM revived AS r;
    PERFORM fairlane.write_queue(fairlane.update_lanes(q, lane_changes, now_ms), cardinality(others));
    pending := pending || others;
  END LOOP;
  RETURN cardinality(pending) - 1;
END $$;

-- Delete what is kept of documents as parts and wholes, after these were deleted.
CREATE FUNCTION fairlane.delete_parts(numbers bigint[]) RETURNS void LANGUAGE sql AS $$
  DELETE FROM fairlane.parts WHERE number = ANY (numbers);
  DELETE FROM fairlane.wholes WHERE number = ANY (numbers);
$$;
