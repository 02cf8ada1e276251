-- Moving in: what was packed in another store. Rows that are already there stay as they are.

-- Where the queue's own counters stand, and its rules.
CREATE FUNCTION fairlane.unpack_queue(
  body text, version int, interval_ms bigint, depths bigint[], reset text, dispatch text, open_turn_every int, frozen text,
  clocks bigint[], dispatches bigint, last_number bigint, last_change bigint, last_record bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM fairlane.hold();
  DELETE FROM fairlane.rules;
  DELETE FROM fairlane.changes;
  INSERT INTO fairlane.rules (version, since_ms, body) VALUES (unpack_queue.version, 0, unpack_queue.body);
  UPDATE fairlane.queue AS q SET rules_version = unpack_queue.version, interval_ms = unpack_queue.interval_ms,
    depths = unpack_queue.depths, reset = unpack_queue.reset, dispatch = unpack_queue.dispatch,
    open_turn_every = unpack_queue.open_turn_every, frozen = unpack_queue.frozen, clocks = unpack_queue.clocks,
    dispatches = unpack_queue.dispatches, last_change = unpack_queue.last_change, changes_floor = unpack_queue.last_change,
    last_record = unpack_queue.last_record WHERE q.one;
  PERFORM setval('fairlane.numbers', greatest(1, unpack_queue.last_number), unpack_queue.last_number > 0);
END $$;

-- A customer with its terms. What has ended is counted in a lane of no kind, which never has a document: nobody says in which
-- lane it was.
CREATE FUNCTION fairlane.unpack_customer(
  given_id text, given_counter bigint, given_updated bigint, given_reset bigint, given_resets bigint, given_version int, body text,
  given_weight int, given_cap int, given_paused boolean, given_interval bigint, given_depths bigint[], given_rule text,
  given_done bigint, given_failed bigint, given_cancelled bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  own bigint;
BEGIN
  PERFORM fairlane.hold_customers(ARRAY[given_id]);
  PERFORM fairlane.hold();
  UPDATE fairlane.customers SET counter = given_counter, updated_ms = given_updated, reset_ms = given_reset,
    resets = given_resets, terms_version = given_version, weight = given_weight, cap = given_cap, paused = given_paused,
    interval_ms = given_interval, depths = given_depths, reset = given_rule
  WHERE id = given_id RETURNING number INTO own;
  IF given_version > 0 THEN
    INSERT INTO fairlane.terms (customer, version, since_ms, body) VALUES (own, given_version, 0, unpack_customer.body)
    ON CONFLICT DO NOTHING;
    UPDATE fairlane.queue SET tunings = tunings + 1 WHERE one;
  END IF;
  INSERT INTO fairlane.lanes (customer, kind, priority, waiting, running, done, failed, cancelled)
  VALUES (own, '', 1, 0, 0, given_done, given_failed, given_cancelled)
  ON CONFLICT (customer, kind, priority) DO UPDATE SET done = excluded.done, failed = excluded.failed,
    cancelled = excluded.cancelled;
END $$;

-- Documents in whatever state but running, as JSON.
CREATE FUNCTION fairlane.unpack_documents(given jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  shifts fairlane.shift[];
BEGIN
  PERFORM fairlane.hold();
  WITH packed AS MATERIALIZED (
    SELECT p.*, c.number AS own FROM jsonb_to_recordset(given) AS p (
      number bigint, id text, customer text, kind text, state text, priority smallint, counter bigint, checked_ms bigint,
      policy_version int, terms_version int, cost bigint, key text, ready_ms bigint, attempts int, attempts_max int, token bigint,
      worker text, ended_ms bigint, reason text, digest text, weight int, resets bigint, payload text, result text
    ) JOIN fairlane.customers AS c ON c.id = p.customer
    WHERE NOT EXISTS (SELECT FROM fairlane.documents AS d WHERE d.number = p.number)
  ), added AS (
    INSERT INTO fairlane.documents (number, customer, counter, checked_ms, resets, policy_version, terms_version, weight, priority,
      id, kind, key, digest, payload)
    SELECT number, own, counter, checked_ms, resets, policy_version, terms_version, weight, priority, id, kind, key, digest, payload
    FROM packed
  ), queued AS (
    INSERT INTO fairlane.work (number, id, customer, kind, priority, state, ready_ms, cost, token, attempts, attempts_max, worker)
    SELECT number, id, own, kind, priority, state, ready_ms, cost, token, attempts, attempts_max, worker
    FROM packed WHERE state IN ('ready', 'delayed')
  ), ended AS (
    INSERT INTO fairlane.endings (number, ended_ms, ready_ms, cost, token, attempts, attempts_max, state, worker, reason, result)
    SELECT number, ended_ms, ready_ms, cost, token, attempts, attempts_max, state, worker, reason, result
    FROM packed WHERE state NOT IN ('ready', 'delayed')
  )
  SELECT array_agg((number, own, kind, priority, (state = 'ready')::int, 1, 0, 0, 0, 0)::fairlane.shift)
  INTO shifts FROM packed WHERE state IN ('ready', 'delayed');
  IF shifts IS NOT NULL THEN
    PERFORM fairlane.tidy(shifts, 0);
  END IF;
END $$;

-- The tags of lanes; one competes if it did where it comes from.
CREATE FUNCTION fairlane.unpack_lanes(customers text[], kinds text[], priorities smallint[], starts bigint[], finishes bigint[])
RETURNS void LANGUAGE sql AS $$
  INSERT INTO fairlane.lanes AS l (customer, kind, priority, finish, waiting, running, done, failed, cancelled)
  SELECT c.number, g.kind, g.priority, g.finish, 0, 0, 0, 0, 0
  FROM unnest(customers, kinds, priorities, starts, finishes) AS g (customer, kind, priority, start, finish)
  JOIN fairlane.customers AS c ON c.id = g.customer
  ON CONFLICT (customer, kind, priority) DO NOTHING;
  UPDATE fairlane.lanes AS l SET finish = g.finish, start = CASE WHEN l.head IS NULL THEN NULL ELSE g.start END
  FROM unnest(customers, kinds, priorities, starts, finishes) AS g (customer, kind, priority, start, finish)
  JOIN fairlane.customers AS c ON c.id = g.customer
  WHERE l.customer = c.number AND l.kind = g.kind AND l.priority = g.priority
$$;

-- Records with the versions that they had.
CREATE FUNCTION fairlane.unpack_records(groups text[], keys text[], contents text[], versions bigint[]) RETURNS void LANGUAGE sql AS $$
  INSERT INTO fairlane.records (group_name, key, value, version)
  SELECT * FROM unnest(groups, keys, contents, versions)
  ON CONFLICT (group_name, key) DO UPDATE SET value = excluded.value, version = excluded.version
$$;
