-- Checks: how a customer's counter moves, and which priority it gives.

-- Return one step of a document, for the counter and for turns; all in thousandths.
CREATE FUNCTION fairlane.step_of(cost bigint, weight int) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT greatest(1, cost * 1000 / weight)
$$;

-- Return whether a check resets the counter; that of a customer never seen does.
CREATE FUNCTION fairlane.is_reset_due(updated_ms bigint, reset_ms bigint, now_ms bigint, interval_ms bigint, rule text)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT updated_ms IS NULL OR reset_ms IS NULL OR
    (now_ms >= updated_ms AND now_ms - CASE WHEN rule = 'window' THEN reset_ms ELSE updated_ms END > interval_ms)
$$;

-- Return the counter from which the first of some checks steps down: after a reset so that its step ends at 0, or below by what
-- its cost is above 1; under gradual recovered in proportion to the gap, cut towards zero. Products exceed 64 bits: numeric.
CREATE FUNCTION fairlane.counter_before(
  counter bigint, updated_ms bigint, reset_ms bigint, now_ms bigint, interval_ms bigint, rule text, first_step bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN fairlane.is_reset_due(updated_ms, reset_ms, now_ms, interval_ms, rule) THEN least(first_step, 1000)
    WHEN rule = 'gradual' AND now_ms > updated_ms
      THEN div(counter::numeric * (interval_ms - (now_ms - updated_ms)), interval_ms)::bigint
    ELSE counter END
$$;

-- Return the counter after that many thousandths of steps; it stops at -10^9 steps.
CREATE FUNCTION fairlane.step_down(before bigint, total bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT greatest(-1000000000000, before - total)
$$;

-- Return the priority of a counter: the last line of the table that holds.
CREATE FUNCTION fairlane.priority_of(counter bigint, depths bigint[]) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
  SELECT (1 + width_bucket(-counter - 1, depths))::smallint
$$;

-- Move a customer's counter by one check, and count up how many of its documents wait or run at most. Its row is locked.
CREATE FUNCTION fairlane.move_counter(
  q fairlane.queue, c fairlane.customers, cost bigint, now_ms bigint, adding int, OUT counter bigint, OUT priority smallint,
  OUT resets bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  rule text := coalesce(c.reset, q.reset);
  span_ms bigint := coalesce(c.interval_ms, q.interval_ms);
  step bigint := fairlane.step_of(cost, c.weight);
  is_reset boolean := fairlane.is_reset_due(c.updated_ms, c.reset_ms, now_ms, span_ms, rule);
  counter_after bigint := fairlane.step_down(
    fairlane.counter_before(c.counter, c.updated_ms, c.reset_ms, now_ms, span_ms, rule, step), step);
BEGIN
  UPDATE fairlane.standings AS s SET revision = s.revision + (random() < 0.06)::int,
    counter = counter_after, updated_ms = greatest(c.updated_ms, now_ms), busy_most = s.busy_most + adding,
    reset_ms = CASE WHEN is_reset THEN now_ms ELSE c.reset_ms END, resets = c.resets + is_reset::int
  WHERE s.customer = c.number AND s.revision = c.revision;
  counter := counter_after;
  priority := fairlane.priority_of(counter_after, coalesce(c.depths, q.depths));
  resets := c.resets + is_reset::int;
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
  SELECT m.counter, m.priority INTO counter, priority FROM fairlane.move_counter(q, c, cost, checked_ms, 0) AS m;
  policy_version := q.rules_version;
  terms_version := c.terms_version;
  INSERT INTO fairlane.changes (number, at_ms, what, customer, note) VALUES (
    q.last_change + 1, check_customer.checked_ms, 'checked', c.number,
    format('{"cost": %s, "counter": %s, "priority": %s, "policy": %s, "terms": %s}',
           cost, counter, priority, policy_version, terms_version));
  PERFORM fairlane.count_changes(1);
  RETURN NEXT;
END $$;
