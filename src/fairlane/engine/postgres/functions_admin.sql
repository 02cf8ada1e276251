-- Administration: rules, terms, resets, purges, forgetting, records.

-- Replace the rules, under the next version; false, and no change, if `expected_version` is not the current version.
CREATE FUNCTION fairlane.configure(
  expected_version int, body text, interval_ms bigint, depths bigint[], reset text, dispatch text, open_turn_every int, frozen text,
  now_override bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
  now_ms bigint;
BEGIN
  IF configure.frozen IS NOT NULL THEN  -- wait for senders that do not lock the queue, see `announce_arrival`
    PERFORM pg_advisory_xact_lock(hashtext('fairlane arrivals'), 'fairlane.queue'::regclass::oid::int);
  END IF;
  q := fairlane.lock_queue();
  now_ms := fairlane.now_ms(now_override);
  IF q.rules_version <> expected_version THEN
    RETURN false;
  END IF;
  INSERT INTO fairlane.rules (version, since_ms, body) VALUES (expected_version + 1, now_ms, configure.body);
  UPDATE fairlane.queue AS r SET rules_version = expected_version + 1, interval_ms = configure.interval_ms, depths = configure.depths,
    reset = configure.reset, dispatch = configure.dispatch, open_turn_every = configure.open_turn_every,
    frozen = configure.frozen, last_change = r.last_change + 1 WHERE r.one;
  IF q.dispatch <> configure.dispatch THEN
    UPDATE fairlane.lanes AS l
    SET start = CASE WHEN configure.dispatch = 'strict' THEN 0 ELSE greatest(q.clocks[l.priority], l.finish) END
    WHERE l.start IS NOT NULL;
  END IF;
  INSERT INTO fairlane.changes (number, at_ms, what, note) VALUES (q.last_change + 1, now_ms, 'configured', configure.body);
  RETURN true;
END $$;

-- Replace a customer's terms, under the next version; NULL, and no change, if `expected_version` is not the current version.
CREATE FUNCTION fairlane.tune(
  customer_id text, expected_version int, body text, weight int, cap int, paused boolean, interval_ms bigint, depths bigint[], reset text,
  now_override bigint
) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
  c fairlane.customers;
  now_ms bigint;
  created bigint[] := fairlane.lock_customers(ARRAY[customer_id]);
BEGIN
  q := fairlane.lock_queue();
  PERFORM fairlane.refuse_frozen(q.frozen);
  now_ms := fairlane.now_ms(now_override);
  SELECT * INTO c FROM fairlane.customers AS o WHERE o.id = customer_id;
  IF c.terms_version <> expected_version THEN
    DELETE FROM fairlane.customers AS o WHERE o.number = ANY (created);
    RETURN NULL;
  END IF;
  INSERT INTO fairlane.terms (customer, version, since_ms, body) VALUES (c.number, expected_version + 1, now_ms, tune.body);
  UPDATE fairlane.customers AS o SET terms_version = expected_version + 1, weight = tune.weight, cap = tune.cap, paused = tune.paused,
    interval_ms = tune.interval_ms, depths = tune.depths, reset = tune.reset WHERE o.number = c.number;
  INSERT INTO fairlane.changes (number, at_ms, what, customer, note)
  VALUES (q.last_change + 1, now_ms, 'tuned', c.number, tune.body);
  UPDATE fairlane.queue AS r SET last_change = r.last_change + 1, tunings = r.tunings + 1 WHERE r.one;
  PERFORM fairlane.update_blocked(ARRAY[c.number], q.dispatch, q.clocks);
  PERFORM pg_notify('fairlane_wake', '') WHERE pg_notification_queue_usage() < 0.5;
  RETURN expected_version + 1;
END $$;

-- Reset a customer as if it was never seen; its documents are not touched.
CREATE FUNCTION fairlane.reset_customer(customer_id text, now_override bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
  owner bigint;
BEGIN
  SELECT number INTO owner FROM fairlane.customers WHERE id = customer_id FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  q := fairlane.lock_queue();
  PERFORM fairlane.refuse_frozen(q.frozen);
  UPDATE fairlane.customers SET counter = 0, updated_ms = NULL, reset_ms = NULL WHERE number = owner;
  INSERT INTO fairlane.changes (number, at_ms, what, customer)
  VALUES (q.last_change + 1, fairlane.now_ms(now_override), 'reset', owner);
  UPDATE fairlane.queue SET last_change = last_change + 1 WHERE one;
END $$;

-- Remove old changes, then documents that ended; so a document exists as long as its changes can be read.
CREATE FUNCTION fairlane.purge(age_ms bigint, max_count int, now_override bigint, OUT documents int, OUT changes int)
LANGUAGE plpgsql AS $$
DECLARE
  before_ms bigint;
  last bigint;
  removed bigint[];
BEGIN
  PERFORM fairlane.refuse_frozen((fairlane.lock_queue()).frozen);
  before_ms := fairlane.now_ms(now_override) - age_ms;
  SELECT max(o.number), count(*) INTO last, changes FROM (
    SELECT c.number, bool_and(c.at_ms <= before_ms) OVER (ORDER BY c.number) AS is_old
    FROM (SELECT * FROM fairlane.changes ORDER BY number LIMIT max_count) AS c
  ) AS o WHERE o.is_old;
  IF last IS NOT NULL THEN
    DELETE FROM fairlane.changes AS c WHERE c.number <= last;
    UPDATE fairlane.queue SET changes_floor = last WHERE one;
  END IF;
  documents := 0;
  IF changes = max_count THEN
    RETURN;
  END IF;
  removed := ARRAY(SELECT e.number FROM fairlane.endings AS e WHERE e.ended_ms <= before_ms ORDER BY e.ended_ms, e.number LIMIT max_count);
  DELETE FROM fairlane.records AS r USING fairlane.documents AS d
  WHERE d.number = ANY (removed) AND r.group_name = 'progress' AND r.key = d.id;
  DELETE FROM fairlane.endings AS e WHERE e.number = ANY (removed);
  DELETE FROM fairlane.documents AS d WHERE d.number = ANY (removed);
  documents := cardinality(removed);
END $$;

-- Erase up to `max_count` documents of a customer in whatever state; when none is left, everything else that names the customer.
CREATE FUNCTION fairlane.forget(customer_id text, max_count int, now_override bigint) RETURNS int LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  q fairlane.queue;
  owner bigint;
  removed bigint[];
  lane_changes fairlane.lane_change[];
BEGIN
  SELECT number INTO owner FROM fairlane.customers WHERE id = customer_id FOR UPDATE;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  q := fairlane.lock_queue();
  PERFORM fairlane.refuse_frozen(q.frozen);
  removed := ARRAY(SELECT d.number FROM fairlane.documents AS d WHERE d.customer = owner ORDER BY d.number LIMIT max_count);
  IF cardinality(removed) = 0 THEN
    DELETE FROM fairlane.lanes WHERE customer = owner;
    DELETE FROM fairlane.terms WHERE customer = owner;
    DELETE FROM fairlane.changes WHERE customer = owner;
    DELETE FROM fairlane.customers WHERE number = owner;
    INSERT INTO fairlane.changes (number, at_ms, what) VALUES (q.last_change + 1, fairlane.now_ms(now_override), 'forgotten');
    UPDATE fairlane.queue SET last_change = last_change + 1 WHERE one;
    RETURN 0;
  END IF;
  DELETE FROM fairlane.records AS r USING fairlane.documents AS d
  WHERE d.number = ANY (removed) AND r.group_name = 'progress' AND r.key = d.id;
  WITH working AS (
    DELETE FROM fairlane.work WHERE number = ANY (removed) RETURNING number, state
  ), ended AS (
    DELETE FROM fairlane.endings WHERE number = ANY (removed) RETURNING number, state
  ), dropped AS (
    DELETE FROM fairlane.documents WHERE number = ANY (removed) RETURNING number, kind, priority
  )
  SELECT array_agg((d.number, owner, d.kind, d.priority, -(s.state = 'ready')::int, -(s.state IN ('ready', 'delayed'))::int,
    -(s.state = 'running')::int, -(s.state = 'done')::int, -(s.state = 'failed')::int, -(s.state = 'cancelled')::int
    )::fairlane.lane_change)
  INTO lane_changes FROM dropped AS d JOIN (SELECT * FROM working UNION ALL SELECT * FROM ended) AS s ON s.number = d.number;
  PERFORM fairlane.update_lanes(lane_changes, 0);
  RETURN cardinality(removed);
END $$;

-- Set or remove a record; NULL, and no change, if `expected_version` is neither NULL nor the current version (0: there is none).
CREATE FUNCTION fairlane.put_record(record_group text, record_key text, new_value text, expected_version bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue := fairlane.lock_queue();
  current_version bigint := (SELECT version FROM fairlane.records WHERE group_name = record_group AND key = record_key);
BEGIN
  IF expected_version IS NOT NULL AND expected_version <> coalesce(current_version, 0) THEN
    RETURN NULL;
  END IF;
  IF new_value IS NULL THEN
    DELETE FROM fairlane.records WHERE group_name = record_group AND key = record_key;
    RETURN 0;
  END IF;
  INSERT INTO fairlane.records AS r (group_name, key, value, version)
  VALUES (record_group, record_key, new_value, q.last_record + 1)
  ON CONFLICT (group_name, key) DO UPDATE SET value = excluded.value, version = excluded.version;
  UPDATE fairlane.queue SET last_record = last_record + 1 WHERE one;
  RETURN q.last_record + 1;
END $$;

-- Put documents that have arrived into their lanes, for readers of customers, lanes and the feed.
CREATE FUNCTION fairlane.settle_arrivals() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM fairlane.lock_queue();
END $$;
