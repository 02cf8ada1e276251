-- Administration: rules, terms, resets, purges, forgetting, records. Priorities that operators change are in functions_steer.sql.

-- Replace the rules, under the next version; false, and no change, if `expected_version` is not the current version.
CREATE FUNCTION fairlane.configure(
  expected_version int, body text, interval_ms bigint, depths bigint[], reset text, dispatch text, turns text, open_turn_every int,
  frozen text, limits fairlane.limits, now_override bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
  now_ms bigint;
BEGIN
  IF configure.frozen IS NOT NULL THEN  -- wait for senders that do not lock the queue, see `announce_arrival`
    PERFORM pg_advisory_xact_lock(hashtext('fairlane arrivals'), 'fairlane.queue_lock'::regclass::oid::int);
  END IF;
  q := fairlane.lock_queue();
  now_ms := fairlane.now_ms(now_override);
  IF q.rules_version <> expected_version THEN
    RETURN false;
  END IF;
  INSERT INTO fairlane.rules (version, since_ms, body) VALUES (expected_version + 1, now_ms, configure.body);
  UPDATE fairlane.counters AS r SET revision = r.revision + 1, last_change = r.last_change + 1, rules_version = expected_version + 1,
    interval_ms = configure.interval_ms, depths = configure.depths, reset = configure.reset, dispatch = configure.dispatch,
    turns = configure.turns, open_turn_every = configure.open_turn_every, frozen = configure.frozen, limits = configure.limits WHERE r.revision = q.revision;
  IF (q.dispatch, q.turns) <> (configure.dispatch, configure.turns) THEN
    PERFORM fairlane.level_lanes();
  END IF;
  INSERT INTO fairlane.changes (number, at_ms, what, note) VALUES (q.last_change + 1, now_ms, 'configured', configure.body);
  RETURN true;
END $$;

-- Let every lane start from the clocks; under `strict` every start tag is 0. First lanes, floors and bounds follow.
CREATE FUNCTION fairlane.level_lanes() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
  k fairlane.kinds;
BEGIN
  SELECT * INTO q FROM fairlane.queue;
  UPDATE fairlane.lanes AS l SET finish = o.kind_clock, cross_finish = q.clocks[l.priority],
    start = CASE WHEN l.start IS NULL THEN NULL WHEN q.dispatch = 'strict' THEN 0 ELSE o.kind_clock END,
    cross_tag = CASE WHEN q.dispatch = 'strict' THEN 0 ELSE q.clocks[l.priority] END, revision = l.revision + 1
  FROM (SELECT i.ctid AS spot, c.clocks[i.priority] AS kind_clock FROM fairlane.lanes AS i CROSS JOIN LATERAL (
          SELECT n.clocks FROM fairlane.kinds AS n WHERE n.kind = i.kind ORDER BY n.revision DESC LIMIT 1) AS c) AS o
  WHERE l.ctid = o.spot;
  FOR k IN SELECT * FROM fairlane.kinds LOOP
    k.floors := NULL;
    q := fairlane.update_kind(q, k, NULL, true);
  END LOOP;
  PERFORM fairlane.write_queue(q, 0);
END $$;

-- Replace a customer's terms, under the next version; NULL, and no change, if `expected_version` is not the current version.
CREATE FUNCTION fairlane.tune(
  customer_id text, expected_version int, body text, weight int, cap int, paused boolean, interval_ms bigint, depths bigint[], reset text,
  limits fairlane.limits, now_override bigint
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
    PERFORM fairlane.delete_customers(created);
    RETURN NULL;
  END IF;
  INSERT INTO fairlane.terms (customer, version, since_ms, body) VALUES (c.number, expected_version + 1, now_ms, tune.body);
  UPDATE fairlane.customer_terms AS o SET terms_version = expected_version + 1, weight = tune.weight, cap = tune.cap, paused = tune.paused,
    interval_ms = tune.interval_ms, depths = tune.depths, reset = tune.reset, limits = tune.limits WHERE o.number = c.number;
  INSERT INTO fairlane.changes (number, at_ms, what, customer, note)
  VALUES (q.last_change + 1, now_ms, 'tuned', c.number, tune.body);
  UPDATE fairlane.counters AS r SET tunings = r.tunings + 1 WHERE r.revision = q.revision;
  PERFORM fairlane.write_queue(fairlane.update_blocked(q, ARRAY[c.number]), 1);
  PERFORM fairlane.wake_workers();
  RETURN expected_version + 1;
END $$;

-- Reset a customer as if it was never seen; its documents are not touched.
CREATE FUNCTION fairlane.reset_customer(customer_id text, now_override bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
  owner bigint;
BEGIN
  SELECT number INTO owner FROM fairlane.customer_terms WHERE id = customer_id FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  q := fairlane.lock_queue();
  PERFORM fairlane.refuse_frozen(q.frozen);
  UPDATE fairlane.standings SET revision = revision + 1, counter = 0, updated_ms = NULL, parts = NULL WHERE customer = owner;
  INSERT INTO fairlane.changes (number, at_ms, what, customer)
  VALUES (q.last_change + 1, fairlane.now_ms(now_override), 'reset', owner);
  PERFORM fairlane.count_changes(1);
END $$;

-- Delete the records that belong to documents: their progress, and the details of their failed attempts.
CREATE FUNCTION fairlane.delete_records_of(numbers bigint[]) RETURNS void LANGUAGE sql AS $$
  DELETE FROM fairlane.records AS r USING fairlane.documents AS d
  WHERE d.number = ANY (numbers) AND r.group_name = 'progress' AND r.key = d.id;
  DELETE FROM fairlane.records AS r USING fairlane.documents AS d
  WHERE d.number = ANY (numbers) AND r.group_name = 'attempts' AND r.key > d.id || ':' AND r.key < d.id || ';'
$$;

-- Remove old changes, then documents that ended; so a document exists as long as its changes can be read.
CREATE FUNCTION fairlane.purge(
  age_ms bigint, max_count int, now_override bigint, OUT ids text[], OUT owners text[], OUT tokens bigint[], OUT changes int
) LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue := fairlane.lock_queue();
  before_ms bigint;
  last bigint;
  removed bigint[];
  lane_changes fairlane.lane_change[];
BEGIN
  PERFORM fairlane.refuse_frozen(q.frozen);
  before_ms := fairlane.now_ms(now_override) - age_ms;
  SELECT max(o.number), count(*) INTO last, changes FROM (
    SELECT c.number, bool_and(c.at_ms <= before_ms) OVER (ORDER BY c.number) AS is_old
    FROM (SELECT * FROM fairlane.changes AS f WHERE f.number > q.changes_floor ORDER BY f.number LIMIT max_count) AS c
  ) AS o WHERE o.is_old;
  IF last IS NOT NULL THEN
    DELETE FROM fairlane.changes AS c WHERE c.number > q.changes_floor AND c.number <= last;
    UPDATE fairlane.counters AS r SET revision = r.revision + 1, changes_floor = last WHERE r.revision = q.revision;
    q.revision := q.revision + 1;
  END IF;
  IF changes = max_count THEN
    RETURN;
  END IF;
  removed := ARRAY(  -- parts only after their whole is gone
    SELECT e.number FROM fairlane.endings AS e WHERE e.ended_ms <= before_ms AND NOT EXISTS (
      SELECT FROM fairlane.parts AS p JOIN fairlane.documents AS w ON w.number = p.whole WHERE p.number = e.number)
    ORDER BY e.ended_ms, e.number LIMIT max_count);
  SELECT array_agg(d.id ORDER BY e.ended_ms, e.number), array_agg(c.id ORDER BY e.ended_ms, e.number),
         array_agg(e.token ORDER BY e.ended_ms, e.number)
  INTO ids, owners, tokens
  FROM fairlane.endings AS e JOIN fairlane.documents AS d ON d.number = e.number JOIN fairlane.customer_terms AS c ON c.number = d.customer
  WHERE e.number = ANY (removed);
  PERFORM fairlane.delete_records_of(removed);
  lane_changes := fairlane.uncount(q, removed);
  DELETE FROM fairlane.endings AS e WHERE e.number = ANY (removed);
  DELETE FROM fairlane.documents AS d WHERE d.number = ANY (removed);
  PERFORM fairlane.leave_families(removed);
  PERFORM fairlane.delete_parts(removed);
  IF cardinality(lane_changes) > 0 THEN
    PERFORM fairlane.write_queue(fairlane.update_lanes(q, lane_changes, NULL), 0);
  END IF;
END $$;

-- Erase up to `max_count` documents of a customer in whatever state; when none is left, everything else that names the customer.
CREATE FUNCTION fairlane.forget(customer_id text, max_count int, now_override bigint, OUT ids text[], OUT tokens bigint[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  q fairlane.queue;
  owner bigint;
  removed bigint[];
  lane_changes fairlane.lane_change[];
  uncounted fairlane.lane_change[];
BEGIN
  SELECT number INTO owner FROM fairlane.customer_terms WHERE id = customer_id FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  q := fairlane.lock_queue();
  PERFORM fairlane.refuse_frozen(q.frozen);
  removed := ARRAY(SELECT d.number FROM fairlane.documents AS d WHERE d.customer = owner ORDER BY d.number LIMIT max_count);
  IF cardinality(removed) = 0 THEN
    DELETE FROM fairlane.lanes WHERE customer = owner;
    DELETE FROM fairlane.terms WHERE customer = owner;
    DELETE FROM fairlane.changes WHERE customer = owner;
    PERFORM fairlane.delete_customers(ARRAY[owner]);
    INSERT INTO fairlane.changes (number, at_ms, what) VALUES (q.last_change + 1, fairlane.now_ms(now_override), 'forgotten');
    PERFORM fairlane.count_changes(1);
    RETURN;
  END IF;
  PERFORM fairlane.delete_records_of(removed);
  uncounted := fairlane.uncount(q, removed);
  WITH working AS (
    DELETE FROM fairlane.work WHERE number = ANY (removed) RETURNING number, state, token, priority
  ), ended AS (
    DELETE FROM fairlane.endings WHERE number = ANY (removed) RETURNING number, state, token, priority
  ), dropped AS (
    DELETE FROM fairlane.documents WHERE number = ANY (removed) RETURNING number, kind, priority, id
  )
  SELECT array_agg((d.number, owner, d.kind, coalesce(s.priority, d.priority), -(s.state = 'ready')::int, -(s.state IN ('ready', 'delayed'))::int,
    -(s.state = 'running')::int, -(s.state = 'done')::int, -(s.state = 'failed')::int, -(s.state = 'cancelled')::int, 0, 0, NULL
    )::fairlane.lane_change), array_agg(d.id ORDER BY d.number), array_agg(s.token ORDER BY d.number)
  INTO lane_changes, ids, tokens FROM dropped AS d JOIN (SELECT * FROM working UNION ALL SELECT * FROM ended) AS s ON s.number = d.number;
  PERFORM fairlane.leave_families(removed);
  PERFORM fairlane.delete_parts(removed);
  PERFORM fairlane.write_queue(fairlane.update_lanes(q, lane_changes || uncounted, fairlane.now_ms(now_override)), 0);
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
  UPDATE fairlane.counters AS r SET revision = r.revision + 1, last_record = r.last_record + 1 WHERE r.revision = q.revision;
  RETURN q.last_record + 1;
END $$;

-- Return whether documents have arrived that are not in their lanes yet.
CREATE FUNCTION fairlane.is_behind() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT q.is_behind FROM fairlane.queue AS q);
END $$;

-- Put documents that have arrived into their lanes, for readers of customers, lanes and the feed.
CREATE FUNCTION fairlane.settle_arrivals() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM fairlane.lock_queue();
END $$;
