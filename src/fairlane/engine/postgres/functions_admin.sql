-- What operators ask for: rules, terms, resets, purges, forgetting, records.

-- Other rules for everybody, under the next version; false, and no change, if `seen` is not the current one.
CREATE FUNCTION fairlane.configure(
  seen int, body text, interval_ms bigint, depths bigint[], reset text, dispatch text, open_turn_every int, frozen text,
  now_given bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
  now_ms bigint;
BEGIN
  IF configure.frozen IS NOT NULL THEN  -- wait for senders that do not hold the queue, see `arrive`
    PERFORM pg_advisory_xact_lock(hashtext('fairlane arrivals'), 'fairlane.queue'::regclass::oid::int);
  END IF;
  q := fairlane.hold();
  now_ms := fairlane.now_ms(now_given);
  IF q.rules_version <> seen THEN
    RETURN false;
  END IF;
  INSERT INTO fairlane.rules (version, since_ms, body) VALUES (seen + 1, now_ms, configure.body);
  UPDATE fairlane.queue AS r SET rules_version = seen + 1, interval_ms = configure.interval_ms, depths = configure.depths,
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

-- Other terms for one customer, under the next version; NULL, and no change, if `seen` is not the current one.
CREATE FUNCTION fairlane.tune(
  wanted text, seen int, body text, weight int, cap int, paused boolean, interval_ms bigint, depths bigint[], reset text,
  now_given bigint
) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
  c fairlane.customers;
  now_ms bigint;
  made bigint[] := fairlane.hold_customers(ARRAY[wanted]);
BEGIN
  q := fairlane.hold();
  PERFORM fairlane.refuse_frozen(q.frozen);
  now_ms := fairlane.now_ms(now_given);
  SELECT * INTO c FROM fairlane.customers AS o WHERE o.id = wanted;
  IF c.terms_version <> seen THEN
    DELETE FROM fairlane.customers AS o WHERE o.number = ANY (made);
    RETURN NULL;
  END IF;
  INSERT INTO fairlane.terms (customer, version, since_ms, body) VALUES (c.number, seen + 1, now_ms, tune.body);
  UPDATE fairlane.customers AS o SET terms_version = seen + 1, weight = tune.weight, cap = tune.cap, paused = tune.paused,
    interval_ms = tune.interval_ms, depths = tune.depths, reset = tune.reset WHERE o.number = c.number;
  INSERT INTO fairlane.changes (number, at_ms, what, customer, note)
  VALUES (q.last_change + 1, now_ms, 'tuned', c.number, tune.body);
  UPDATE fairlane.queue AS r SET last_change = r.last_change + 1, tunings = r.tunings + 1 WHERE r.one;
  PERFORM fairlane.gate(ARRAY[c.number], q.dispatch, q.clocks);
  PERFORM pg_notify('fairlane_wake', '') WHERE pg_notification_queue_usage() < 0.5;
  RETURN seen + 1;
END $$;

-- The customer stands as never seen; its documents are not touched.
CREATE FUNCTION fairlane.reset_customer(wanted text, now_given bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
  found_number bigint;
BEGIN
  SELECT number INTO found_number FROM fairlane.customers WHERE id = wanted FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  q := fairlane.hold();
  PERFORM fairlane.refuse_frozen(q.frozen);
  UPDATE fairlane.customers SET counter = 0, updated_ms = NULL, reset_ms = NULL WHERE number = found_number;
  INSERT INTO fairlane.changes (number, at_ms, what, customer)
  VALUES (q.last_change + 1, fairlane.now_ms(now_given), 'reset', found_number);
  UPDATE fairlane.queue SET last_change = last_change + 1 WHERE one;
END $$;

-- Old changes go first, then documents that ended; so a document is not gone while its changes can be read.
CREATE FUNCTION fairlane.purge(age_ms bigint, most int, now_given bigint, OUT documents int, OUT changes int)
LANGUAGE plpgsql AS $$
DECLARE
  before_ms bigint;
  last bigint;
  gone bigint[];
BEGIN
  PERFORM fairlane.refuse_frozen((fairlane.hold()).frozen);
  before_ms := fairlane.now_ms(now_given) - age_ms;
  SELECT max(o.number), count(*) INTO last, changes FROM (
    SELECT c.number, bool_and(c.at_ms <= before_ms) OVER (ORDER BY c.number) AS is_old
    FROM (SELECT * FROM fairlane.changes ORDER BY number LIMIT most) AS c
  ) AS o WHERE o.is_old;
  IF last IS NOT NULL THEN
    DELETE FROM fairlane.changes AS c WHERE c.number <= last;
    UPDATE fairlane.queue SET changes_floor = last WHERE one;
  END IF;
  documents := 0;
  IF changes = most THEN
    RETURN;
  END IF;
  gone := ARRAY(SELECT e.number FROM fairlane.endings AS e WHERE e.ended_ms <= before_ms ORDER BY e.ended_ms, e.number LIMIT most);
  DELETE FROM fairlane.records AS r USING fairlane.documents AS d
  WHERE d.number = ANY (gone) AND r.group_name = 'progress' AND r.key = d.id;
  DELETE FROM fairlane.endings AS e WHERE e.number = ANY (gone);
  DELETE FROM fairlane.documents AS d WHERE d.number = ANY (gone);
  documents := cardinality(gone);
END $$;

-- Erase up to `most` documents of a customer in whatever state; when none is left, everything else that names the customer.
CREATE FUNCTION fairlane.forget(wanted text, most int, now_given bigint) RETURNS int LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  q fairlane.queue;
  own bigint;
  gone bigint[];
  shifts fairlane.shift[];
BEGIN
  SELECT number INTO own FROM fairlane.customers WHERE id = wanted FOR UPDATE;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  q := fairlane.hold();
  PERFORM fairlane.refuse_frozen(q.frozen);
  gone := ARRAY(SELECT d.number FROM fairlane.documents AS d WHERE d.customer = own ORDER BY d.number LIMIT most);
  IF cardinality(gone) = 0 THEN
    DELETE FROM fairlane.lanes WHERE customer = own;
    DELETE FROM fairlane.terms WHERE customer = own;
    DELETE FROM fairlane.changes WHERE customer = own;
    DELETE FROM fairlane.customers WHERE number = own;
    INSERT INTO fairlane.changes (number, at_ms, what) VALUES (q.last_change + 1, fairlane.now_ms(now_given), 'forgotten');
    UPDATE fairlane.queue SET last_change = last_change + 1 WHERE one;
    RETURN 0;
  END IF;
  DELETE FROM fairlane.records AS r USING fairlane.documents AS d
  WHERE d.number = ANY (gone) AND r.group_name = 'progress' AND r.key = d.id;
  WITH working AS (
    DELETE FROM fairlane.work WHERE number = ANY (gone) RETURNING number, state
  ), ended AS (
    DELETE FROM fairlane.endings WHERE number = ANY (gone) RETURNING number, state
  ), dropped AS (
    DELETE FROM fairlane.documents WHERE number = ANY (gone) RETURNING number, kind, priority
  )
  SELECT array_agg((d.number, own, d.kind, d.priority, -(s.state = 'ready')::int, -(s.state IN ('ready', 'delayed'))::int,
    -(s.state = 'running')::int, -(s.state = 'done')::int, -(s.state = 'failed')::int, -(s.state = 'cancelled')::int
    )::fairlane.shift)
  INTO shifts FROM dropped AS d JOIN (SELECT * FROM working UNION ALL SELECT * FROM ended) AS s ON s.number = d.number;
  PERFORM fairlane.tidy(shifts, 0);
  RETURN cardinality(gone);
END $$;

-- A record's new value, or none; NULL, and no change, if `seen` is given and is not the current version (0: not there).
CREATE FUNCTION fairlane.put_record(wanted_group text, wanted_key text, new_value text, seen bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue := fairlane.hold();
  known bigint := (SELECT version FROM fairlane.records WHERE group_name = wanted_group AND key = wanted_key);
BEGIN
  IF seen IS NOT NULL AND seen <> coalesce(known, 0) THEN
    RETURN NULL;
  END IF;
  IF new_value IS NULL THEN
    DELETE FROM fairlane.records WHERE group_name = wanted_group AND key = wanted_key;
    RETURN 0;
  END IF;
  INSERT INTO fairlane.records AS r (group_name, key, value, version)
  VALUES (wanted_group, wanted_key, new_value, q.last_record + 1)
  ON CONFLICT (group_name, key) DO UPDATE SET value = excluded.value, version = excluded.version;
  UPDATE fairlane.queue SET last_record = last_record + 1 WHERE one;
  RETURN q.last_record + 1;
END $$;

-- What looks at customers, lanes and the feed asks for first, when something has arrived.
CREATE FUNCTION fairlane.settle_arrivals() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM fairlane.hold();
END $$;
