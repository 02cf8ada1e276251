-- Steering: operators give waiting documents other priorities.

-- Move a waiting document to the lane of another priority, or out of its lane and back. Returns the queue.
CREATE FUNCTION fairlane.move_document(
  q fairlane.queue, w fairlane.work, new_priority smallint, by_hand boolean, now_ms bigint
) RETURNS fairlane.queue LANGUAGE plpgsql AS $$
DECLARE
  is_ready int := (w.state = 'ready')::int;
  is_counted int := (w.number > q.uncounted)::int;
  size bigint := CASE WHEN w.number > q.uncounted THEN (SELECT s.bytes FROM fairlane.sizes AS s WHERE s.number = w.number) ELSE 0 END;
BEGIN
  UPDATE fairlane.work AS o SET state = 'moving' WHERE o.number = w.number AND o.state = w.state AND o.token = w.token;
  q := fairlane.update_lane(q, (w.number, w.customer, w.kind, w.priority, -is_ready, -1, 0, 0, 0, 0, -is_counted, -size, NULL)
    ::fairlane.lane_change, now_ms);
  UPDATE fairlane.work AS o SET state = w.state, priority = new_priority, is_set_by_hand = by_hand
  WHERE o.number = w.number AND o.state = 'moving' AND o.token = w.token;
  RETURN fairlane.update_lane(q, (w.number, w.customer, w.kind, new_priority, is_ready, 1, 0, 0, 0, 0, is_counted, size, NULL)
    ::fairlane.lane_change, now_ms);
END $$;

-- Append a line to the feed about a document that waits; returns the queue.
CREATE FUNCTION fairlane.log_steered(q fairlane.queue, w fairlane.work, what text, note text, now_ms bigint) RETURNS fairlane.queue
LANGUAGE plpgsql AS $$
BEGIN
  q.last_change := q.last_change + 1;
  INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token, note)
  VALUES (q.last_change, now_ms, log_steered.what, w.customer, w.number, w.token, log_steered.note);
  RETURN q;
END $$;

-- Set the priority of waiting documents by hand; `by` is who did it, as JSON. Returns the ids of those that wait.
CREATE FUNCTION fairlane.prioritize(ids text[], new_priority smallint, by text, now_override bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue := fairlane.lock_queue();
  now_ms bigint := fairlane.now_ms(now_override);
  w fairlane.work;
  document_id text;
  waiting text[] := '{}';
BEGIN
  PERFORM fairlane.refuse_frozen(q.frozen);
  FOREACH document_id IN ARRAY ids LOOP
    SELECT o.* INTO w FROM fairlane.documents AS d JOIN fairlane.work AS o ON o.number = d.number
    WHERE d.id = document_id AND o.state IN ('ready', 'delayed');
    CONTINUE WHEN NOT FOUND;
    waiting := waiting || document_id;
    IF (w.priority, w.is_set_by_hand) <> (new_priority, true) THEN
      q := fairlane.move_document(q, w, new_priority, true, now_ms);
      q := fairlane.log_steered(q, w, 'prioritized', format('{"from": %s, "to": %s, "by": %s}', w.priority, new_priority, by), now_ms);
    END IF;
  END LOOP;
  PERFORM fairlane.write_queue(q, 0);
  RETURN waiting;
END $$;

-- Return the numbers of waiting documents of a customer above one, in order; lane by lane, as no index has them all in order.
CREATE FUNCTION fairlane.waiting_after(owner bigint, after bigint, max_count int) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY(
    SELECT o.number FROM (
      SELECT r.number FROM fairlane.lanes AS l CROSS JOIN LATERAL (
        SELECT w.number FROM fairlane.work AS w
        WHERE w.customer = owner AND w.kind = l.kind AND w.priority = l.priority AND w.state = 'ready' AND w.number > after
        ORDER BY w.number LIMIT max_count
      ) AS r WHERE l.customer = owner AND l.head IS NOT NULL
      UNION ALL (
        SELECT w.number FROM fairlane.work AS w WHERE w.customer = owner AND w.state = 'delayed' AND w.number > after
        ORDER BY w.number LIMIT max_count)
    ) AS o ORDER BY o.number LIMIT max_count);
END $$;

-- Give up to `max_count` waiting documents of a customer the priority that they would have now: by another check, or read again from
-- the counter that their check recorded. Those set by hand keep theirs. Returns how many changed, and where to go on.
CREATE FUNCTION fairlane.reprioritize(
  customer_id text, after bigint, max_count int, recheck boolean, now_override bigint, OUT changed int, OUT next bigint
) LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
  c fairlane.customer_terms;
  d fairlane.documents;
  w fairlane.work;
  now_ms bigint;
  numbers bigint[];
  document bigint;
  moved record;
  new_priority smallint;
BEGIN
  SELECT * INTO c FROM fairlane.customer_terms AS o WHERE o.id = customer_id FOR UPDATE;
  q := fairlane.lock_queue();
  PERFORM fairlane.refuse_frozen(q.frozen);
  now_ms := fairlane.now_ms(now_override);
  changed := 0;
  numbers := fairlane.waiting_after(c.number, after, max_count + 1);
  next := CASE WHEN cardinality(numbers) > max_count THEN numbers[max_count] END;
  FOREACH document IN ARRAY numbers[:max_count] LOOP
    SELECT * INTO d FROM fairlane.documents AS o WHERE o.number = document;
    SELECT * INTO w FROM fairlane.work AS o WHERE o.number = document;
    new_priority := w.priority;
    IF recheck AND d.resets <> -1 THEN
      SELECT * INTO moved FROM fairlane.check_again(q, d, w.cost, w.priority, w.is_set_by_hand, now_ms, 0);
      new_priority := moved.priority;
      q := fairlane.move_document(q, w, new_priority, w.is_set_by_hand, now_ms);
      q := fairlane.log_steered(q, w, 'rechecked', moved.note, now_ms);
    ELSIF NOT recheck AND NOT w.is_set_by_hand THEN
      new_priority := greatest(fairlane.priority_of(d.counter, coalesce(c.depths, q.depths)), d.no_better_than);
      IF new_priority <> w.priority THEN
        q := fairlane.move_document(q, w, new_priority, false, now_ms);
        q := fairlane.log_steered(q, w, 'prioritized', format('{"from": %s, "to": %s, "by": null}', w.priority, new_priority), now_ms);
      END IF;
    END IF;
    changed := changed + (new_priority <> w.priority)::int;
  END LOOP;
  PERFORM fairlane.write_queue(q, 0);
END $$;
