-- Locking, checking and submitting. Order of locks: customers by id, then the queue's lock.

-- Return the server's clock in whole milliseconds, or the time that a test passed in; called after the locks are taken.
CREATE FUNCTION fairlane.now_ms(now_override bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(now_override, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;

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

-- Lock the rows of customers, in the order of their ids so that there is no deadlock; returns those it had to create.
CREATE FUNCTION fairlane.lock_customers(ids text[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  sorted text[] := ARRAY(SELECT DISTINCT o.id COLLATE "C" FROM unnest(ids) AS o (id) ORDER BY 1);
  created bigint[] := '{}';
  new_numbers bigint[];
  locked int;
BEGIN
  LOOP
    PERFORM FROM fairlane.customer_terms AS c WHERE c.id = ANY (sorted) ORDER BY c.id FOR UPDATE;
    GET DIAGNOSTICS locked = ROW_COUNT;
    EXIT WHEN locked = cardinality(sorted);
    WITH added AS (
      INSERT INTO fairlane.customer_terms (id) SELECT o.id FROM unnest(sorted) AS o (id) ORDER BY o.id COLLATE "C"
      ON CONFLICT DO NOTHING RETURNING number
    ), begun AS (
      INSERT INTO fairlane.standings (customer) SELECT number FROM added
    )
    SELECT array_agg(number) INTO new_numbers FROM added;
    created := created || coalesce(new_numbers, '{}');
  END LOOP;
  RETURN created;
END $$;

-- Delete customers that have no document.
CREATE FUNCTION fairlane.delete_customers(numbers bigint[]) RETURNS void LANGUAGE sql AS $$
  DELETE FROM fairlane.standings WHERE customer = ANY (numbers);
  DELETE FROM fairlane.customer_terms WHERE number = ANY (numbers);
$$;

-- Raise an error if the queue is frozen, because it is being moved or was moved.
CREATE FUNCTION fairlane.refuse_frozen(reason text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF reason IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'FLFRZ', MESSAGE = reason;
  END IF;
END $$;

-- Announce a sender that does not lock the queue, so that a freeze waits until its transaction is over. A transaction that sees
-- the queue as it was at its begin would miss a freeze, and its document would be left behind.
CREATE FUNCTION fairlane.announce_arrival() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
      MESSAGE = format('the transaction is %s', upper(current_setting('transaction_isolation')));
  END IF;
  PERFORM pg_advisory_xact_lock_shared(hashtext('fairlane arrivals'), 'fairlane.queue_lock'::regclass::oid::int);
END $$;

-- Lock the queue, and put documents into their lanes that have arrived inside callers' transactions. The numbers are read by
-- another statement than the one that waits for the lock: it would see them as they were before.
CREATE FUNCTION fairlane.lock_queue() RETURNS fairlane.queue LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
BEGIN
  PERFORM FROM fairlane.queue_lock WHERE one FOR UPDATE;
  SELECT * INTO q FROM fairlane.queue;
  IF q.is_behind THEN
    PERFORM fairlane.absorb_arrivals(q);
    SELECT * INTO q FROM fairlane.queue;
  END IF;
  RETURN q;
END $$;

-- Lock the queue unless another session has locked it, so that senders need not wait for each other's commits; else NULL.
CREATE FUNCTION fairlane.try_lock_queue() RETURNS fairlane.queue LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM fairlane.queue_lock WHERE one FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  RETURN fairlane.lock_queue();
END $$;

-- Put documents that have arrived into the feed and into their lanes, and note which transactions may still add some: those that
-- were not over in the snapshot of this statement, and this transaction.
CREATE FUNCTION fairlane.absorb_arrivals(q fairlane.queue) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  seen pg_snapshot;
  lane_changes fairlane.lane_change[];
  due_first bigint;
BEGIN
  IF q.arrivals_floor > pg_snapshot_xmax(pg_current_snapshot()) THEN  -- of another server
    q.arrivals_floor := '0';
  END IF;
  WITH arrived AS (
    DELETE FROM fairlane.arrivals AS a WHERE a.ctid = ANY (ARRAY(
      SELECT l.ctid FROM fairlane.arrivals AS l WHERE l.xid >= q.arrivals_floor
      UNION SELECT o.ctid FROM fairlane.arrivals AS o WHERE o.xid = ANY (q.awaited))) RETURNING a.*
  ), numbered AS (
    SELECT arrived.*, d.id, d.customer, d.kind, d.priority, d.checked_ms, row_number() OVER (ORDER BY arrived.number) AS ordinal
    FROM arrived JOIN fairlane.documents AS d ON d.number = arrived.number
  ), queued AS (
    INSERT INTO fairlane.work (number, id, customer, kind, priority, state, ready_ms, cost)
    SELECT number, id, customer, kind, priority, state, ready_ms, cost FROM numbered
  ), logged AS (
    INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token, note)
    SELECT q.last_change + ordinal, checked_ms, 'submitted', customer, number, 0, note FROM numbered
  )
  SELECT array_agg((number, customer, kind, priority, (state = 'ready')::int, 1, 0, 0, 0, 0)::fairlane.lane_change), min(ready_ms),
    pg_current_snapshot()
  INTO lane_changes, due_first, seen FROM numbered;
  q.arrivals_floor := pg_snapshot_xmax(seen);
  q.awaited := ARRAY(SELECT pg_snapshot_xip(seen)) || pg_current_xact_id();
  PERFORM fairlane.update_lanes(q, lane_changes, coalesce(cardinality(lane_changes), 0), due_first);
END $$;

-- Check a customer without a document.
CREATE FUNCTION fairlane.check_customer(customer_id text, cost bigint, now_override bigint)
RETURNS TABLE (priority smallint, counter bigint, checked_ms bigint, policy_version int, terms_version int)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  q fairlane.queue;
  c fairlane.customers;
  now_ms bigint;
  step bigint;
  is_reset boolean;
BEGIN
  PERFORM fairlane.lock_customers(ARRAY[customer_id]);
  q := fairlane.lock_queue();
  PERFORM fairlane.refuse_frozen(q.frozen);
  now_ms := fairlane.now_ms(now_override);
  SELECT * INTO c FROM fairlane.customers WHERE id = customer_id;
  c.interval_ms := coalesce(c.interval_ms, q.interval_ms);
  c.reset := coalesce(c.reset, q.reset);
  step := fairlane.step_of(cost, c.weight);
  is_reset := fairlane.is_reset_due(c.updated_ms, c.reset_ms, now_ms, c.interval_ms, c.reset);
  counter := fairlane.step_down(
    fairlane.counter_before(c.counter, c.updated_ms, c.reset_ms, now_ms, c.interval_ms, c.reset, step), step);
  priority := fairlane.priority_of(counter, coalesce(c.depths, q.depths));
  checked_ms := now_ms;
  policy_version := q.rules_version;
  terms_version := c.terms_version;
  UPDATE fairlane.standings AS s SET revision = s.revision + (random() < 0.06)::int,
    counter = check_customer.counter, updated_ms = greatest(c.updated_ms, now_ms),
    reset_ms = CASE WHEN is_reset THEN now_ms ELSE c.reset_ms END, resets = c.resets + is_reset::int
  WHERE s.customer = c.number AND s.revision = c.revision;
  INSERT INTO fairlane.changes (number, at_ms, what, customer, note) VALUES (
    q.last_change + 1, now_ms, 'checked', c.number,
    format('{"cost": %s, "counter": %s, "priority": %s, "policy": %s, "terms": %s}',
           cost, counter, priority, policy_version, terms_version));
  PERFORM fairlane.count_changes(1);
  RETURN NEXT;
END $$;

-- Return the ordinal and the document of the first submission that must be refused: for a source that its customer does not have
-- (without a document), or a key that belongs to a document with another body.
CREATE FUNCTION fairlane.find_refused(ids text[], customers text[], keys text[], digests text[], sources text[])
RETURNS TABLE (ordinal bigint, document text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  IF sources IS NOT NULL THEN
    RETURN QUERY
      SELECT g.ordinal, NULL::text
      FROM unnest(customers, sources) WITH ORDINALITY AS g (customer, source, ordinal)
      WHERE g.source IS NOT NULL AND NOT EXISTS (
        SELECT FROM fairlane.documents AS d JOIN fairlane.customer_terms AS c ON c.number = d.customer
        WHERE d.id = g.source AND c.id = g.customer)
      ORDER BY g.ordinal LIMIT 1;
    IF FOUND THEN
      RETURN;
    END IF;
  END IF;
  IF keys IS NOT NULL THEN
    RETURN QUERY
      SELECT k.ordinal, k.document FROM (
        SELECT g.ordinal, g.digest,
          CASE WHEN d.number IS NULL THEN first_value(g.id) OVER same ELSE d.id END AS document,
          CASE WHEN d.number IS NULL THEN first_value(g.digest) OVER same ELSE d.digest END AS known_digest
        FROM unnest(ids, customers, keys, digests) WITH ORDINALITY AS g (id, customer, key, digest, ordinal)
        JOIN fairlane.customer_terms AS c ON c.id = g.customer
        LEFT JOIN fairlane.documents AS d ON d.customer = c.number AND d.key = g.key
        WHERE g.key IS NOT NULL
        WINDOW same AS (PARTITION BY g.customer, g.key ORDER BY g.ordinal)
      ) AS k
      WHERE k.digest IS DISTINCT FROM k.known_digest ORDER BY k.ordinal LIMIT 1;
  END IF;
END $$;

-- Return by ordinal which submission makes the document: itself, the first with the same key, or 0 if the document exists.
CREATE FUNCTION fairlane.first_ordinals(customers text[], keys text[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN (
    SELECT array_agg(k.first ORDER BY k.ordinal) FROM (
      SELECT g.ordinal, CASE WHEN d.number IS NOT NULL THEN 0 WHEN g.key IS NULL THEN g.ordinal
        ELSE min(g.ordinal) OVER (PARTITION BY g.customer, g.key) END AS first
      FROM unnest(customers, keys) WITH ORDINALITY AS g (customer, key, ordinal)
      JOIN fairlane.customer_terms AS c ON c.id = g.customer
      LEFT JOIN fairlane.documents AS d ON d.customer = c.number AND d.key = g.key
    ) AS k
  );
END $$;

-- Return a list as long as the batch: one value is sent for a list of equal values.
CREATE FUNCTION fairlane.fill(list anyarray, size int) RETURNS anyarray LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN size > 1 AND cardinality(list) = 1 THEN array_fill(list[1], ARRAY[size]) ELSE list END
$$;

-- Check and insert those documents of a batch that are new. If they only arrive, they get no rows in `work` and the feed.
CREATE FUNCTION fairlane.insert_documents(
  q fairlane.queue, now_ms bigint, arrives boolean, ids text[], customers text[], kinds text[], payloads text[], costs bigint[],
  keys text[], digests text[], delays bigint[], sources text[], firsts bigint[],
  OUT numbers bigint[], OUT priorities smallint[], OUT counters bigint[], OUT checked bigint[], OUT policies int[],
  OUT terms int[], OUT lane_changes fairlane.lane_change[]
) LANGUAGE plpgsql AS $$
BEGIN
  WITH input AS (
    SELECT g.*, c.number AS sender, c.spot, c.counter AS counter_before, c.updated_ms, c.reset_ms, c.resets, c.weight, c.terms_version,
      coalesce(c.interval_ms, q.interval_ms) AS interval_ms, coalesce(c.reset, q.reset) AS rule,
      coalesce(c.depths, q.depths) AS depths, fairlane.step_of(g.cost, c.weight) AS step
    FROM unnest(ids, customers, kinds, payloads, costs, keys, digests, delays, sources, firsts) WITH ORDINALITY
      AS g (id, customer, kind, payload, cost, key, digest, delay, source, first, ordinal)
    CROSS JOIN LATERAL (SELECT * FROM fairlane.customers AS o WHERE o.id = g.customer OFFSET 0) AS c  -- one by one
    WHERE coalesce(g.first, g.ordinal) = g.ordinal
  ), checks AS (
    SELECT *,
      fairlane.is_reset_due(updated_ms, reset_ms, now_ms, interval_ms, rule) AS is_reset,
      fairlane.step_down(
        fairlane.counter_before(counter_before, updated_ms, reset_ms, now_ms, interval_ms, rule, first_value(step) OVER own),
        (sum(step) OVER own)::bigint) AS counter
    FROM input WINDOW own AS (PARTITION BY sender, source IS NULL ORDER BY ordinal)
  ), decided AS (
    SELECT k.ordinal, k.id, k.sender, k.spot, k.kind, k.payload, k.cost, k.key, k.digest, k.delay, k.source, k.weight, k.is_reset,
      coalesce(s.counter, k.counter) AS counter,
      coalesce(s.priority, fairlane.priority_of(k.counter, k.depths)) AS priority,
      coalesce(s.policy_version, q.rules_version) AS policy_version,
      coalesce(s.terms_version, k.terms_version) AS terms_version,
      CASE WHEN k.source IS NULL THEN k.resets + k.is_reset::int ELSE -1 END AS resets
    FROM checks AS k LEFT JOIN fairlane.documents AS s ON s.id = k.source
    ORDER BY k.ordinal
  ), inserted AS MATERIALIZED (
    SELECT nextval('fairlane.numbers') AS number, * FROM decided
  ), added AS (
    INSERT INTO fairlane.documents (number, id, customer, kind, priority, counter, checked_ms, policy_version, terms_version,
      weight, resets, key, digest, payload)
    SELECT number, id, sender, kind, priority, counter, now_ms, policy_version, terms_version, weight, resets, key, digest, payload
    FROM inserted
  ), moved AS (
    UPDATE fairlane.standings AS c SET revision = c.revision + (random() < 0.06)::int,
      counter = m.counter, updated_ms = greatest(c.updated_ms, now_ms),
      reset_ms = CASE WHEN m.is_reset THEN now_ms ELSE c.reset_ms END, resets = c.resets + m.is_reset::int
    FROM (SELECT spot, min(counter) AS counter, bool_or(is_reset) AS is_reset FROM inserted WHERE source IS NULL GROUP BY spot) AS m
    WHERE c.ctid = m.spot
  ), queued AS (
    INSERT INTO fairlane.work (number, id, customer, kind, priority, state, ready_ms, cost)
    SELECT number, id, sender, kind, priority, CASE WHEN delay > 0 THEN 'delayed' ELSE 'ready' END, now_ms + delay, cost
    FROM inserted WHERE NOT arrives
  ), logged AS (
    INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token, note)
    SELECT q.last_change + row_number() OVER (ORDER BY number), now_ms, 'submitted', sender, number, 0, source
    FROM inserted WHERE NOT arrives
  ), arrived AS (
    INSERT INTO fairlane.arrivals (number, ready_ms, cost, state, note)
    SELECT number, now_ms + delay, cost, CASE WHEN delay > 0 THEN 'delayed' ELSE 'ready' END, source FROM inserted WHERE arrives
  )
  SELECT array_agg(m.number), array_agg(m.priority), array_agg(m.counter), array_agg(now_ms), array_agg(m.policy_version),
    array_agg(m.terms_version), array_agg((m.number, m.sender, m.kind, m.priority, (m.delay = 0)::int, 1, 0, 0, 0, 0)::fairlane.lane_change)
  INTO numbers, priorities, counters, checked, policies, terms, lane_changes FROM inserted AS m;
END $$;

-- Submit documents, all or none: for each, in order, check, priority and insert. A list of equal values is sent as one value, a
-- list without any value as NULL. Inside the caller's own transaction (`joins`), or while another session has locked the queue,
-- documents only arrive: the next session that locks the queue puts them into their lanes. Returns lists by ordinal; for a known
-- key the values of its first receipt.
CREATE FUNCTION fairlane.submit(
  ids text[], customers text[], kinds text[], payloads text[], costs bigint[], keys text[], digests text[], delays bigint[],
  sources text[], now_override bigint, joins boolean,
  OUT documents text[], OUT numbers bigint[], OUT priorities smallint[], OUT counters bigint[], OUT checked bigint[],
  OUT policies int[], OUT terms int[], OUT refused bigint, OUT refused_document text
) LANGUAGE plpgsql AS $$
DECLARE
  size int := cardinality(ids);
  q fairlane.queue;
  created bigint[] := fairlane.lock_customers(customers);
  firsts bigint[];
  lane_changes fairlane.lane_change[];
BEGIN
  customers := fairlane.fill(customers, size);
  IF keys IS NOT NULL OR sources IS NOT NULL THEN
    SELECT ordinal, document INTO refused, refused_document FROM fairlane.find_refused(ids, customers, keys, digests, sources);
    IF refused IS NOT NULL THEN
      PERFORM fairlane.delete_customers(created);
      RETURN;
    END IF;
  END IF;
  IF keys IS NOT NULL THEN
    firsts := fairlane.first_ordinals(customers, keys);
  END IF;
  IF NOT joins THEN
    q := fairlane.try_lock_queue();
    joins := q.revision IS NULL;
  END IF;
  IF joins THEN
    PERFORM fairlane.announce_arrival();
    SELECT * INTO q FROM fairlane.queue;
  END IF;
  PERFORM fairlane.refuse_frozen(q.frozen);
  SELECT i.* INTO numbers, priorities, counters, checked, policies, terms, lane_changes
  FROM fairlane.insert_documents(
    q, fairlane.now_ms(now_override), joins, ids, customers, fairlane.fill(kinds, size), payloads, fairlane.fill(costs, size),
    keys, digests, fairlane.fill(delays, size), sources, firsts) AS i;
  IF NOT joins AND lane_changes IS NOT NULL THEN
    PERFORM fairlane.update_lanes(q, lane_changes, cardinality(lane_changes), checked[1]);
  END IF;
  IF firsts IS NOT NULL THEN
    SELECT array_agg(d.id ORDER BY g.ordinal), array_agg(d.number ORDER BY g.ordinal), array_agg(d.priority ORDER BY g.ordinal),
      array_agg(d.counter ORDER BY g.ordinal), array_agg(d.checked_ms ORDER BY g.ordinal),
      array_agg(d.policy_version ORDER BY g.ordinal), array_agg(d.terms_version ORDER BY g.ordinal)
    INTO documents, numbers, priorities, counters, checked, policies, terms
    FROM unnest(ids, customers, keys, firsts) WITH ORDINALITY AS g (id, customer, key, first, ordinal)
    JOIN fairlane.customer_terms AS c ON c.id = g.customer
    JOIN fairlane.documents AS d ON CASE WHEN g.key IS NULL THEN d.id = g.id ELSE d.customer = c.number AND d.key = g.key END;
  END IF;
END $$;

-- Count a new document in its lane and in the queue, with its line of the feed; in plain steps if the lane has a head already (or
-- gets none), so that its start tag stays.
CREATE FUNCTION fairlane.join_lane(q fairlane.queue, joining fairlane.lane_change, due_first bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE fairlane.lanes AS l SET waiting = l.waiting + 1, revision = l.revision + (random() < 0.06)::int
  WHERE l.customer = joining.customer AND l.kind = joining.kind AND l.priority = joining.priority
    AND (l.head IS NOT NULL OR joining.ready = 0) AND l.revision = (SELECT max(o.revision) FROM fairlane.lanes AS o
      WHERE o.customer = joining.customer AND o.kind = joining.kind AND o.priority = joining.priority);
  IF FOUND THEN
    UPDATE fairlane.counters AS o SET revision = o.revision + 1, last_change = o.last_change + 1,
      ready[joining.priority] = o.ready[joining.priority] + joining.ready, delayed_floor = least(o.delayed_floor, due_first)
    WHERE o.revision = q.revision;
  ELSE
    PERFORM fairlane.update_lanes(q, ARRAY[joining], 1, due_first);
  END IF;
END $$;

-- Submit one document without a source, in plain steps: what `submit` does with a list of one, at half its cost. Returns the
-- receipt as texts, and whether it is refused because the key belongs to a document with another body.
CREATE FUNCTION fairlane.submit_one(
  new_id text, customer_id text, new_kind text, new_payload text, new_cost bigint, new_key text, new_digest text,
  delay bigint, now_override bigint, joins boolean
) RETURNS text[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  q fairlane.queue;
  c fairlane.customers;
  d fairlane.documents;
  new_number bigint;
  new_priority smallint;
  new_counter bigint;
  now_ms bigint;
  rule text;
  span_ms bigint;
  step bigint;
  is_reset boolean;
  new_state text := CASE WHEN delay > 0 THEN 'delayed' ELSE 'ready' END;
BEGIN
  PERFORM FROM fairlane.customer_terms WHERE id = customer_id FOR UPDATE;
  IF NOT FOUND THEN
    PERFORM fairlane.lock_customers(ARRAY[customer_id]);
  END IF;
  SELECT * INTO c FROM fairlane.customers WHERE id = customer_id;
  IF new_key IS NOT NULL THEN
    SELECT * INTO d FROM fairlane.documents WHERE customer = c.number AND key = new_key;
    IF FOUND THEN
      PERFORM fairlane.refuse_frozen((SELECT o.frozen FROM fairlane.counters AS o ORDER BY o.revision DESC LIMIT 1));
      RETURN ARRAY[d.id, d.number::text, d.priority::text, d.counter::text, d.checked_ms::text, d.policy_version::text,
        d.terms_version::text, CASE WHEN d.digest IS DISTINCT FROM new_digest THEN 'refused' END];
    END IF;
  END IF;
  IF NOT joins THEN  -- as try_lock_queue does, without the call
    PERFORM FROM fairlane.queue_lock WHERE one FOR UPDATE SKIP LOCKED;
    joins := NOT FOUND;
  END IF;
  IF joins THEN
    PERFORM fairlane.announce_arrival();
  END IF;
  SELECT * INTO q FROM fairlane.queue;
  IF q.is_behind AND NOT joins THEN
    PERFORM fairlane.absorb_arrivals(q);
    SELECT * INTO q FROM fairlane.queue;
  END IF;
  PERFORM fairlane.refuse_frozen(q.frozen);
  now_ms := fairlane.now_ms(now_override);
  rule := coalesce(c.reset, q.reset);
  span_ms := coalesce(c.interval_ms, q.interval_ms);
  step := fairlane.step_of(new_cost, c.weight);
  is_reset := fairlane.is_reset_due(c.updated_ms, c.reset_ms, now_ms, span_ms, rule);
  new_counter := fairlane.step_down(
    fairlane.counter_before(c.counter, c.updated_ms, c.reset_ms, now_ms, span_ms, rule, step), step);
  new_priority := fairlane.priority_of(new_counter, coalesce(c.depths, q.depths));
  new_number := nextval('fairlane.numbers');
  INSERT INTO fairlane.documents (number, id, customer, kind, priority, counter, checked_ms, policy_version, terms_version, weight,
    resets, key, digest, payload)
  VALUES (new_number, new_id, c.number, new_kind, new_priority, new_counter, now_ms, q.rules_version, c.terms_version, c.weight,
    c.resets + is_reset::int, new_key, new_digest, new_payload);
  UPDATE fairlane.standings AS o SET counter = new_counter, updated_ms = greatest(c.updated_ms, now_ms),
    revision = o.revision + (random() < 0.06)::int,
    reset_ms = CASE WHEN is_reset THEN now_ms ELSE c.reset_ms END, resets = c.resets + is_reset::int
  WHERE o.customer = c.number AND o.revision = c.revision;
  IF joins THEN
    INSERT INTO fairlane.arrivals (number, ready_ms, cost, state) VALUES (new_number, now_ms + delay, new_cost, new_state);
    RETURN ARRAY[new_id, new_number::text, new_priority::text, new_counter::text, now_ms::text, q.rules_version::text,
      c.terms_version::text, NULL];
  END IF;
  INSERT INTO fairlane.work (number, id, customer, kind, priority, state, ready_ms, cost)
  VALUES (new_number, new_id, c.number, new_kind, new_priority, new_state, now_ms + delay, new_cost);
  INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token)
  VALUES (q.last_change + 1, now_ms, 'submitted', c.number, new_number, 0);
  PERFORM fairlane.join_lane(
    q, (new_number, c.number, new_kind, new_priority, (delay = 0)::int, 1, 0, 0, 0, 0)::fairlane.lane_change, now_ms + delay);
  RETURN ARRAY[new_id, new_number::text, new_priority::text, new_counter::text, now_ms::text, q.rules_version::text,
    c.terms_version::text, NULL];
END $$;
