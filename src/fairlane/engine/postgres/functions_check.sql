-- Checks: how a customer's counter moves, and which priority it gives.

-- Return one step of a document; all in thousandths.
CREATE FUNCTION fairlane.step_of(cost bigint, weight int) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT greatest(1, cost * 1000 / weight)
$$;

-- Return whether a check under `idle` resets the counter; that of a customer never seen does.
CREATE FUNCTION fairlane.is_reset_due(updated_ms bigint, now_ms bigint, interval_ms bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT updated_ms IS NULL OR now_ms - updated_ms > interval_ms
$$;

-- Return the counter after that many thousandths of steps; it stops at -10^9 steps.
CREATE FUNCTION fairlane.step_down(before bigint, total bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT greatest(-1000000000000, before - total)
$$;

-- Return the start of the part of a sliding interval that a moment lies in; an interval has 16 parts, counted from the epoch.
CREATE FUNCTION fairlane.part_of(at_ms bigint, interval_ms bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT at_ms - at_ms % greatest(1, interval_ms / 16)
$$;

-- Return what counts at a check under a sliding interval: the part of the check, what was sent in it and in earlier parts, and
-- the earlier parts with what was sent in each. A customer that comes from `idle` begins with one part, of its last update.
CREATE FUNCTION fairlane.sent_lately(
  parts bigint[], counter bigint, updated_ms bigint, now_ms bigint, interval_ms bigint,
  OUT part bigint, OUT in_part bigint, OUT earlier bigint, OUT earlier_parts bigint[]
) LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  part := fairlane.part_of(greatest(updated_ms, now_ms), interval_ms);
  in_part := 0;
  earlier := 0;
  earlier_parts := '{}';
  IF updated_ms IS NOT NULL AND coalesce(cardinality(parts), 0) = 0 THEN
    parts := ARRAY[fairlane.part_of(updated_ms, interval_ms), 1000 - counter];
  END IF;
  FOR nth IN 1 .. coalesce(cardinality(parts), 0) BY 2 LOOP
    IF parts[nth] = part THEN
      in_part := in_part + parts[nth + 1];
    ELSIF parts[nth] > part - 16 * greatest(1, interval_ms / 16) THEN
      earlier := earlier + parts[nth + 1];
      earlier_parts := earlier_parts || parts[nth] || parts[nth + 1];
    END IF;
  END LOOP;
END $$;

-- Return the counter of a check under a sliding interval, after so many thousandths of steps of checks just before it.
CREATE FUNCTION fairlane.sliding_counter(in_part bigint, earlier bigint, before bigint, step bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
  SELECT greatest(-1000000000000, -earlier - least(1000000000000, in_part + before) - greatest(0, step - 1000))
$$;

-- Return a customer's standing after one check; whatever is not `idle` is a sliding interval.
CREATE FUNCTION fairlane.check_standing(s fairlane.standing, rule text, interval_ms bigint, step bigint, now_ms bigint)
RETURNS fairlane.standing LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  sent record;
BEGIN
  IF rule <> 'idle' THEN
    sent := fairlane.sent_lately(s.parts, s.counter, s.updated_ms, now_ms, interval_ms);
    RETURN (fairlane.sliding_counter(sent.in_part, sent.earlier, 0, step), greatest(s.updated_ms, now_ms),
      s.resets + (s.updated_ms IS NULL)::int,
      sent.earlier_parts || sent.part || least(1000000000000, sent.in_part + step))::fairlane.standing;
  ELSIF fairlane.is_reset_due(s.updated_ms, now_ms, interval_ms) THEN
    RETURN (fairlane.step_down(least(step, 1000), step), now_ms, s.resets + 1, NULL)::fairlane.standing;
  END IF;
  RETURN (fairlane.step_down(s.counter, step), greatest(s.updated_ms, now_ms), s.resets, NULL)::fairlane.standing;
END $$;

-- Return the priority of a counter: the last line of the table that holds.
CREATE FUNCTION fairlane.priority_of(counter bigint, depths bigint[]) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
  SELECT (1 + width_bucket(-counter - 1, depths))::smallint
$$;

-- Move a customer's counter by one check, and count up how many of its documents wait or run at most. Its row is locked.
CREATE FUNCTION fairlane.move_counter(
  q fairlane.queue, c fairlane.customers, cost bigint, no_better_than smallint, now_ms bigint, adding int, OUT counter bigint,
  OUT priority smallint, OUT resets bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  moved fairlane.standing := fairlane.check_standing((c.counter, c.updated_ms, c.resets, c.parts)::fairlane.standing,
    coalesce(c.reset, q.reset), coalesce(c.interval_ms, q.interval_ms), fairlane.step_of(cost, c.weight), now_ms);
BEGIN
  UPDATE fairlane.standings AS s SET revision = s.revision + (random() < 0.06)::int, counter = moved.counter,
    updated_ms = moved.updated_ms, resets = moved.resets, parts = moved.parts, busy_most = s.busy_most + adding
  WHERE s.customer = c.number AND s.revision = c.revision;
  counter := moved.counter;
  priority := greatest(fairlane.priority_of(moved.counter, coalesce(c.depths, q.depths)), no_better_than);
  resets := moved.resets;
END $$;

-- Check a customer without a document.
CREATE FUNCTION fairlane.check_customer(customer_id text, cost bigint, now_override bigint)
RETURNS TABLE (priority smallint, counter bigint, checked_ms bigint, policy_version int, terms_version int)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  q fairlane.queue;
  c fairlane.customers;
BEGIN
  PERFORM fairlane.lock_customers(ARRAY[customer_id]);
  q := fairlane.lock_queue();
  PERFORM fairlane.refuse_frozen(q.frozen);
  checked_ms := fairlane.now_ms(now_override);
  SELECT * INTO c FROM fairlane.customers WHERE id = customer_id;
  SELECT m.counter, m.priority INTO counter, priority FROM fairlane.move_counter(q, c, cost, NULL, checked_ms, 0) AS m;
  policy_version := q.rules_version;
  terms_version := c.terms_version;
  INSERT INTO fairlane.changes (number, at_ms, what, customer, note) VALUES (
    q.last_change + 1, check_customer.checked_ms, 'checked', c.number,
    format('{"cost": %s, "counter": %s, "priority": %s, "policy": %s, "terms": %s}',
           cost, counter, priority, policy_version, terms_version));
  PERFORM fairlane.count_changes(1);
  RETURN NEXT;
END $$;

-- Move a customer's counter by the difference of two costs of a document, with the weight of its check: never above 0, and not if
-- a reset came between. Under a sliding interval it counts in the part of the check, and not at all if that part is gone.
CREATE FUNCTION fairlane.correct_cost(q fairlane.queue, document_number bigint, cost_before bigint, cost_after bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  d fairlane.documents;
  c fairlane.customers;
  more bigint;
  nth int;
BEGIN
  SELECT * INTO d FROM fairlane.documents WHERE number = document_number;
  SELECT * INTO c FROM fairlane.customers WHERE number = d.customer;
  IF c.updated_ms IS NULL OR c.resets <> d.resets THEN
    RETURN;
  END IF;
  more := fairlane.step_of(cost_after, d.weight) - fairlane.step_of(cost_before, d.weight);
  IF coalesce(c.reset, q.reset) <> 'idle' AND cardinality(c.parts) > 0 THEN
    nth := (SELECT o FROM generate_series(1, cardinality(c.parts), 2) AS o
      WHERE c.parts[o] = fairlane.part_of(coalesce(d.rechecked_ms, d.checked_ms), coalesce(c.interval_ms, q.interval_ms)));
    IF nth IS NULL THEN
      RETURN;
    END IF;
    c.parts[nth + 1] := greatest(0, least(1000000000000, c.parts[nth + 1] + more));
  END IF;
  UPDATE fairlane.standings AS s SET revision = s.revision + 1, counter = greatest(-1000000000000, least(0, c.counter - more)),
    parts = c.parts
  WHERE s.customer = c.number AND s.revision = c.revision;
END $$;
