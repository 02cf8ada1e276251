-- Holding, checking and submitting. Order of locks: customers by id, then the queue's row.

-- The store's clock in whole milliseconds, or the time that a test passed in; asked when the locks are held.
CREATE FUNCTION fairlane.now_ms(given bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(given, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;

-- One step of a document, for the counter and for turns; all in thousandths.
CREATE FUNCTION fairlane.step_of(cost bigint, weight int) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT greatest(1, cost * 1000 / weight)
$$;

-- Whether a check finds the reset interval over; a customer never seen is one that resets.
CREATE FUNCTION fairlane.resets(updated_ms bigint, reset_ms bigint, now_ms bigint, interval_ms bigint, rule text)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT updated_ms IS NULL OR reset_ms IS NULL OR
    (now_ms >= updated_ms AND now_ms - CASE WHEN rule = 'window' THEN reset_ms ELSE updated_ms END > interval_ms)
$$;

-- The counter from which the first of some checks steps down: after a reset so that its step ends at 0 or at what its cost is
-- above 1; under gradual recovered in proportion to the gap, cut towards zero. The products exceed 64 bits, so numeric.
CREATE FUNCTION fairlane.before_steps(
  counter bigint, updated_ms bigint, reset_ms bigint, now_ms bigint, interval_ms bigint, rule text, first_step bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN fairlane.resets(updated_ms, reset_ms, now_ms, interval_ms, rule) THEN least(first_step, 1000)
    WHEN rule = 'gradual' AND now_ms > updated_ms
      THEN div(counter::numeric * (interval_ms - (now_ms - updated_ms)), interval_ms)::bigint
    ELSE counter END
$$;

-- The counter after that many thousandths of steps; it stops at -10^9 steps.
CREATE FUNCTION fairlane.stepped(before bigint, total bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT greatest(-1000000000000, before - total)
$$;

-- The priority of a counter: the last line of the table that holds.
CREATE FUNCTION fairlane.level(counter bigint, depths bigint[]) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
  SELECT (1 + width_bucket(-counter - 1, depths))::smallint
$$;

-- Hold the rows of these customers, in the order of their ids so that nobody waits in a circle; returns those it had to make.
CREATE FUNCTION fairlane.hold_customers(wanted text[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  sorted text[] := ARRAY(SELECT DISTINCT one COLLATE "C" FROM unnest(wanted) AS one ORDER BY 1);
  made bigint[] := '{}';
  fresh bigint[];
  held int;
BEGIN
  LOOP
    PERFORM FROM fairlane.customers AS c WHERE c.id = ANY (sorted) ORDER BY c.id FOR UPDATE;
    GET DIAGNOSTICS held = ROW_COUNT;
    EXIT WHEN held = cardinality(sorted);
    WITH added AS (
      INSERT INTO fairlane.customers (id) SELECT one FROM unnest(sorted) AS one ORDER BY one COLLATE "C"
      ON CONFLICT DO NOTHING RETURNING number
    )
    SELECT array_agg(number) INTO fresh FROM added;
    made := made || coalesce(fresh, '{}');
  END LOOP;
  RETURN made;
END $$;

-- Nothing new may begin in a queue that is being moved, or was moved.
CREATE FUNCTION fairlane.refuse_frozen(why text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF why IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'FLFRZ', MESSAGE = why;
  END IF;
END $$;

-- A sender that does not hold the queue: whoever freezes it waits until the sender's transaction is over. A transaction that
-- sees the queue as it was at its begin would not see that it was frozen since, and its document would be left behind.
CREATE FUNCTION fairlane.arrive() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
      MESSAGE = format('the transaction is %s', upper(current_setting('transaction_isolation')));
  END IF;
  PERFORM pg_advisory_xact_lock_shared(hashtext('fairlane arrivals'), 'fairlane.queue'::regclass::oid::int);
END $$;

-- Hold the queue, and first of all put in their lanes what has arrived inside transactions of others.
CREATE FUNCTION fairlane.hold() RETURNS fairlane.queue LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
BEGIN
  SELECT * INTO q FROM fairlane.queue WHERE one FOR UPDATE;
  IF EXISTS (SELECT FROM fairlane.arrivals) THEN
    PERFORM fairlane.take_in(q.last_change);
    SELECT * INTO q FROM fairlane.queue WHERE one;
  END IF;
  RETURN q;
END $$;

-- Hold the queue if nobody else does, so that senders need not wait for each other's commits; NULL if it is held.
CREATE FUNCTION fairlane.hold_if_free() RETURNS fairlane.queue LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
BEGIN
  SELECT * INTO q FROM fairlane.queue WHERE one FOR UPDATE SKIP LOCKED;
  IF FOUND AND EXISTS (SELECT FROM fairlane.arrivals) THEN
    PERFORM fairlane.take_in(q.last_change);
    SELECT * INTO q FROM fairlane.queue WHERE one;
  END IF;
  RETURN q;
END $$;

-- Documents that have arrived take their place in the feed and in their lanes.
CREATE FUNCTION fairlane.take_in(last_change bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  shifts fairlane.shift[];
BEGIN
  WITH came AS (
    DELETE FROM fairlane.arrivals RETURNING *
  ), made AS (
    SELECT came.*, d.id, d.customer, d.kind, d.priority, d.checked_ms, row_number() OVER (ORDER BY came.number) AS place
    FROM came JOIN fairlane.documents AS d ON d.number = came.number
  ), queued AS (
    INSERT INTO fairlane.work (number, id, customer, kind, priority, state, ready_ms, cost)
    SELECT number, id, customer, kind, priority, state, ready_ms, cost FROM made
  ), logged AS (
    INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token, note)
    SELECT take_in.last_change + place, checked_ms, 'submitted', customer, number, 0, note FROM made
  )
  SELECT array_agg((number, customer, kind, priority, (state = 'ready')::int, 1, 0, 0, 0, 0)::fairlane.shift) INTO shifts FROM made;
  PERFORM fairlane.tidy(shifts, coalesce(cardinality(shifts), 0));
END $$;

-- One check of a customer without a document.
CREATE FUNCTION fairlane.check_customer(wanted text, cost bigint, now_given bigint)
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
  PERFORM fairlane.hold_customers(ARRAY[wanted]);
  q := fairlane.hold();
  PERFORM fairlane.refuse_frozen(q.frozen);
  now_ms := fairlane.now_ms(now_given);
  SELECT * INTO c FROM fairlane.customers WHERE id = wanted;
  c.interval_ms := coalesce(c.interval_ms, q.interval_ms);
  c.reset := coalesce(c.reset, q.reset);
  step := fairlane.step_of(cost, c.weight);
  is_reset := fairlane.resets(c.updated_ms, c.reset_ms, now_ms, c.interval_ms, c.reset);
  counter := fairlane.stepped(
    fairlane.before_steps(c.counter, c.updated_ms, c.reset_ms, now_ms, c.interval_ms, c.reset, step), step);
  priority := fairlane.level(counter, coalesce(c.depths, q.depths));
  checked_ms := now_ms;
  policy_version := q.rules_version;
  terms_version := c.terms_version;
  UPDATE fairlane.customers SET
    counter = check_customer.counter, updated_ms = greatest(c.updated_ms, now_ms),
    reset_ms = CASE WHEN is_reset THEN now_ms ELSE c.reset_ms END, resets = c.resets + is_reset::int
  WHERE number = c.number;
  INSERT INTO fairlane.changes (number, at_ms, what, customer, note) VALUES (
    q.last_change + 1, now_ms, 'checked', c.number,
    format('{"cost": %s, "counter": %s, "priority": %s, "policy": %s, "terms": %s}',
           cost, counter, priority, policy_version, terms_version));
  UPDATE fairlane.queue SET last_change = last_change + 1 WHERE one;
  RETURN NEXT;
END $$;

-- The place and the document of the first submission that must be refused: a source that its customer does not have (no
-- document is told), or a key that belongs to a document with another body.
CREATE FUNCTION fairlane.refusal(ids text[], customers text[], keys text[], digests text[], sources text[])
RETURNS TABLE (place bigint, document text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  IF sources IS NOT NULL THEN
    RETURN QUERY
      SELECT g.place, NULL::text
      FROM unnest(customers, sources) WITH ORDINALITY AS g (customer, source, place)
      WHERE g.source IS NOT NULL AND NOT EXISTS (
        SELECT FROM fairlane.documents AS d JOIN fairlane.customers AS c ON c.number = d.customer
        WHERE d.id = g.source AND c.id = g.customer)
      ORDER BY g.place LIMIT 1;
    IF FOUND THEN
      RETURN;
    END IF;
  END IF;
  IF keys IS NOT NULL THEN
    RETURN QUERY
      SELECT k.place, k.document FROM (
        SELECT g.place, g.digest,
          CASE WHEN d.number IS NULL THEN first_value(g.id) OVER same ELSE d.id END AS document,
          CASE WHEN d.number IS NULL THEN first_value(g.digest) OVER same ELSE d.digest END AS known_digest
        FROM unnest(ids, customers, keys, digests) WITH ORDINALITY AS g (id, customer, key, digest, place)
        JOIN fairlane.customers AS c ON c.id = g.customer
        LEFT JOIN fairlane.documents AS d ON d.customer = c.number AND d.key = g.key
        WHERE g.key IS NOT NULL
        WINDOW same AS (PARTITION BY g.customer, g.key ORDER BY g.place)
      ) AS k
      WHERE k.digest IS DISTINCT FROM k.known_digest ORDER BY k.place LIMIT 1;
  END IF;
END $$;

-- All or none: for each submission, in order, check, priority and insert. A list that is the same all through is sent as one
-- value, one that is empty all through as NULL. If the caller's own transaction goes on (`joins`), or somebody else holds the
-- queue, the documents only arrive: whoever holds it next puts them in their lanes. Answers lists by place; a known key's are
-- those of its first receipt.
CREATE FUNCTION fairlane.submit(
  ids text[], customers text[], kinds text[], payloads text[], costs bigint[], keys text[], digests text[], delays bigint[],
  sources text[], now_given bigint, joins boolean,
  OUT documents text[], OUT numbers bigint[], OUT priorities smallint[], OUT counters bigint[], OUT checked bigint[],
  OUT policies int[], OUT terms int[], OUT refused bigint, OUT refused_document text
) LANGUAGE plpgsql AS $$
DECLARE
  size int := cardinality(ids);
  q fairlane.queue;
  now_ms bigint;
  made_customers bigint[] := fairlane.hold_customers(customers);
  firsts bigint[];   -- by place: the place that makes the document; 0: it is already there
  shifts fairlane.shift[];
BEGIN
  IF size > 1 AND cardinality(customers) = 1 THEN customers := array_fill(customers[1], ARRAY[size]); END IF;
  IF size > 1 AND cardinality(kinds) = 1 THEN kinds := array_fill(kinds[1], ARRAY[size]); END IF;
  IF size > 1 AND cardinality(costs) = 1 THEN costs := array_fill(costs[1], ARRAY[size]); END IF;
  IF size > 1 AND cardinality(delays) = 1 THEN delays := array_fill(delays[1], ARRAY[size]); END IF;
  IF keys IS NOT NULL OR sources IS NOT NULL THEN
    SELECT place, document INTO refused, refused_document FROM fairlane.refusal(ids, customers, keys, digests, sources);
    IF refused IS NOT NULL THEN
      DELETE FROM fairlane.customers AS c WHERE c.number = ANY (made_customers);
      RETURN;
    END IF;
  END IF;
  IF keys IS NOT NULL THEN
    SELECT array_agg(k.first ORDER BY k.place) INTO firsts FROM (
      SELECT g.place, CASE WHEN d.number IS NOT NULL THEN 0 WHEN g.key IS NULL THEN g.place
        ELSE min(g.place) OVER (PARTITION BY g.customer, g.key) END AS first
      FROM unnest(customers, keys) WITH ORDINALITY AS g (customer, key, place)
      JOIN fairlane.customers AS c ON c.id = g.customer
      LEFT JOIN fairlane.documents AS d ON d.customer = c.number AND d.key = g.key
    ) AS k;
  END IF;
  IF NOT joins THEN
    q := fairlane.hold_if_free();
    joins := q.one IS NULL;
  END IF;
  IF joins THEN
    PERFORM fairlane.arrive();
    SELECT * INTO q FROM fairlane.queue WHERE one;
  END IF;
  PERFORM fairlane.refuse_frozen(q.frozen);
  now_ms := fairlane.now_ms(now_given);
  WITH given AS (
    SELECT g.*, c.number AS sender, c.counter AS counter_before, c.updated_ms, c.reset_ms, c.resets, c.weight, c.terms_version,
      coalesce(c.interval_ms, q.interval_ms) AS interval_ms, coalesce(c.reset, q.reset) AS rule,
      coalesce(c.depths, q.depths) AS depths, fairlane.step_of(g.cost, c.weight) AS step
    FROM unnest(ids, customers, kinds, payloads, costs, keys, digests, delays, sources, firsts) WITH ORDINALITY
      AS g (id, customer, kind, payload, cost, key, digest, delay, source, first, place)
    CROSS JOIN LATERAL (SELECT * FROM fairlane.customers AS o WHERE o.id = g.customer OFFSET 0) AS c  -- one by one
    WHERE coalesce(g.first, g.place) = g.place
  ), checks AS (
    SELECT *,
      fairlane.resets(updated_ms, reset_ms, now_ms, interval_ms, rule) AS is_reset,
      fairlane.stepped(
        fairlane.before_steps(counter_before, updated_ms, reset_ms, now_ms, interval_ms, rule, first_value(step) OVER own),
        (sum(step) OVER own)::bigint) AS counter
    FROM given WINDOW own AS (PARTITION BY sender, source IS NULL ORDER BY place)
  ), decided AS (
    SELECT k.place, k.id, k.sender, k.kind, k.payload, k.cost, k.key, k.digest, k.delay, k.source, k.weight, k.is_reset,
      coalesce(s.counter, k.counter) AS counter,
      coalesce(s.priority, fairlane.level(k.counter, k.depths)) AS priority,
      coalesce(s.policy_version, q.rules_version) AS policy_version,
      coalesce(s.terms_version, k.terms_version) AS terms_version,
      CASE WHEN k.source IS NULL THEN k.resets + k.is_reset::int ELSE -1 END AS resets
    FROM checks AS k LEFT JOIN fairlane.documents AS s ON s.id = k.source
    ORDER BY k.place
  ), made AS MATERIALIZED (
    SELECT nextval('fairlane.numbers') AS number, * FROM decided
  ), added AS (
    INSERT INTO fairlane.documents (number, id, customer, kind, priority, counter, checked_ms, policy_version, terms_version,
      weight, resets, key, digest, payload)
    SELECT number, id, sender, kind, priority, counter, now_ms, policy_version, terms_version, weight, resets, key, digest, payload
    FROM made
  ), moved AS (
    UPDATE fairlane.customers AS c SET counter = m.counter, updated_ms = greatest(c.updated_ms, now_ms),
      reset_ms = CASE WHEN m.is_reset THEN now_ms ELSE c.reset_ms END, resets = c.resets + m.is_reset::int
    FROM (SELECT sender, min(counter) AS counter, bool_or(is_reset) AS is_reset FROM made WHERE source IS NULL GROUP BY sender) AS m
    WHERE c.number = m.sender
  ), queued AS (
    INSERT INTO fairlane.work (number, id, customer, kind, priority, state, ready_ms, cost)
    SELECT number, id, sender, kind, priority, CASE WHEN delay > 0 THEN 'delayed' ELSE 'ready' END, now_ms + delay, cost
    FROM made WHERE NOT joins
  ), logged AS (
    INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token, note)
    SELECT q.last_change + row_number() OVER (ORDER BY number), now_ms, 'submitted', sender, number, 0, source
    FROM made WHERE NOT joins
  ), arrived AS (
    INSERT INTO fairlane.arrivals (number, ready_ms, cost, state, note)
    SELECT number, now_ms + delay, cost, CASE WHEN delay > 0 THEN 'delayed' ELSE 'ready' END, source FROM made WHERE joins
  )
  SELECT array_agg(m.number), array_agg(m.priority), array_agg(m.counter), array_agg(now_ms), array_agg(m.policy_version),
    array_agg(m.terms_version), array_agg((m.number, m.sender, m.kind, m.priority, (m.delay = 0)::int, 1, 0, 0, 0, 0)::fairlane.shift)
  INTO numbers, priorities, counters, checked, policies, terms, shifts FROM made AS m;
  IF NOT joins AND shifts IS NOT NULL THEN
    PERFORM fairlane.tidy(shifts, cardinality(shifts));
  END IF;
  IF firsts IS NOT NULL THEN
    SELECT array_agg(d.id ORDER BY g.place), array_agg(d.number ORDER BY g.place), array_agg(d.priority ORDER BY g.place),
      array_agg(d.counter ORDER BY g.place), array_agg(d.checked_ms ORDER BY g.place),
      array_agg(d.policy_version ORDER BY g.place), array_agg(d.terms_version ORDER BY g.place)
    INTO documents, numbers, priorities, counters, checked, policies, terms
    FROM unnest(ids, customers, keys, firsts) WITH ORDINALITY AS g (id, customer, key, first, place)
    JOIN fairlane.customers AS c ON c.id = g.customer
    JOIN fairlane.documents AS d ON CASE WHEN g.key IS NULL THEN d.id = g.id ELSE d.customer = c.number AND d.key = g.key END;
  END IF;
END $$;

-- One document, the usual case, in plain steps: check, priority and insert. It does what `submit` does with a list of one, but
-- for sources. Answers the receipt as texts, and whether it is refused because the key has another body.
CREATE FUNCTION fairlane.submit_one(
  given_id text, sender text, given_kind text, given_payload text, given_cost bigint, given_key text, given_digest text,
  delay bigint, now_given bigint, joins boolean
) RETURNS text[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  q fairlane.queue;
  c fairlane.customers;
  d fairlane.documents;
  new_number bigint;
  level smallint;
  new_counter bigint;
  now_ms bigint;
  rule text;
  span_ms bigint;
  step bigint;
  is_reset boolean;
  new_state text := CASE WHEN delay > 0 THEN 'delayed' ELSE 'ready' END;
BEGIN
  SELECT * INTO c FROM fairlane.customers WHERE id = sender FOR UPDATE;
  IF NOT FOUND THEN
    PERFORM fairlane.hold_customers(ARRAY[sender]);
    SELECT * INTO c FROM fairlane.customers WHERE id = sender;
  END IF;
  IF given_key IS NOT NULL THEN
    SELECT * INTO d FROM fairlane.documents WHERE customer = c.number AND key = given_key;
    IF FOUND THEN
      PERFORM fairlane.refuse_frozen((SELECT o.frozen FROM fairlane.queue AS o));
      RETURN ARRAY[d.id, d.number::text, d.priority::text, d.counter::text, d.checked_ms::text, d.policy_version::text,
        d.terms_version::text, CASE WHEN d.digest IS DISTINCT FROM given_digest THEN 'refused' END];
    END IF;
  END IF;
  IF NOT joins THEN  -- as hold_if_free, without the call
    SELECT * INTO q FROM fairlane.queue WHERE one FOR UPDATE SKIP LOCKED;
    joins := NOT FOUND;
  END IF;
  IF joins THEN
    PERFORM fairlane.arrive();
    SELECT * INTO q FROM fairlane.queue WHERE one;
  ELSIF EXISTS (SELECT FROM fairlane.arrivals) THEN
    PERFORM fairlane.take_in(q.last_change);
    SELECT * INTO q FROM fairlane.queue WHERE one;
  END IF;
  PERFORM fairlane.refuse_frozen(q.frozen);
  now_ms := fairlane.now_ms(now_given);
  rule := coalesce(c.reset, q.reset);
  span_ms := coalesce(c.interval_ms, q.interval_ms);
  step := fairlane.step_of(given_cost, c.weight);
  is_reset := fairlane.resets(c.updated_ms, c.reset_ms, now_ms, span_ms, rule);
  new_counter := fairlane.stepped(
    fairlane.before_steps(c.counter, c.updated_ms, c.reset_ms, now_ms, span_ms, rule, step), step);
  level := fairlane.level(new_counter, coalesce(c.depths, q.depths));
  new_number := nextval('fairlane.numbers');
  INSERT INTO fairlane.documents (number, id, customer, kind, priority, counter, checked_ms, policy_version, terms_version, weight,
    resets, key, digest, payload)
  VALUES (new_number, given_id, c.number, given_kind, level, new_counter, now_ms, q.rules_version, c.terms_version, c.weight,
    c.resets + is_reset::int, given_key, given_digest, given_payload);
  UPDATE fairlane.customers AS o SET counter = new_counter, updated_ms = greatest(c.updated_ms, now_ms),
    reset_ms = CASE WHEN is_reset THEN now_ms ELSE c.reset_ms END, resets = c.resets + is_reset::int
  WHERE o.number = c.number;
  IF joins THEN
    INSERT INTO fairlane.arrivals (number, ready_ms, cost, state) VALUES (new_number, now_ms + delay, given_cost, new_state);
    RETURN ARRAY[given_id, new_number::text, level::text, new_counter::text, now_ms::text, q.rules_version::text,
      c.terms_version::text, NULL];
  END IF;
  INSERT INTO fairlane.work (number, id, customer, kind, priority, state, ready_ms, cost)
  VALUES (new_number, given_id, c.number, given_kind, level, new_state, now_ms + delay, given_cost);
  INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token)
  VALUES (q.last_change + 1, now_ms, 'submitted', c.number, new_number, 0);
  UPDATE fairlane.lanes AS l SET waiting = l.waiting + 1
  WHERE l.customer = c.number AND l.kind = given_kind AND l.priority = level AND (l.head IS NOT NULL OR delay > 0);
  IF FOUND THEN  -- the lane has a head already, so its place in the order stays
    UPDATE fairlane.queue AS o SET last_change = q.last_change + 1, ready[level] = o.ready[level] + (delay = 0)::int WHERE o.one;
  ELSE
    PERFORM fairlane.tidy(
      ARRAY[(new_number, c.number, given_kind, level, (delay = 0)::int, 1, 0, 0, 0, 0)::fairlane.shift], 1);
  END IF;
  RETURN ARRAY[given_id, new_number::text, level::text, new_counter::text, now_ms::text, q.rules_version::text,
    c.terms_version::text, NULL];
END $$;
