-- Locking and submitting. Order of locks: customers by id, then the queue's lock.

-- Return the server's clock in whole milliseconds, or the time that a test passed in; called after the locks are taken.
CREATE FUNCTION fairlane.now_ms(now_override bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(now_override, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
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
  DELETE FROM fairlane.usuals WHERE customer = ANY (numbers);
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
    SELECT arrived.number, arrived.ready_ms, arrived.cost, arrived.state, arrived.note, arrived.is_set_by_hand, d.id, d.customer, d.kind,
      coalesce(arrived.priority, d.priority) AS priority, d.checked_ms, d.bytes, row_number() OVER (ORDER BY arrived.number) AS ordinal
    FROM arrived JOIN fairlane.documents AS d ON d.number = arrived.number
  ), queued AS (
    INSERT INTO fairlane.work (number, id, customer, kind, priority, state, ready_ms, cost, is_set_by_hand)
    SELECT number, id, customer, kind, priority, state, ready_ms, cost, is_set_by_hand FROM numbered
  ), logged AS (
    INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token, note)
    SELECT q.last_change + ordinal, checked_ms, 'submitted', customer, number, 0, note FROM numbered
  )
  SELECT array_agg((number, customer, kind, priority, (state = 'ready')::int, 1, 0, 0, 0, 0,
      (number > q.uncounted)::int, CASE WHEN number > q.uncounted THEN bytes ELSE 0 END, NULL)::fairlane.lane_change), min(ready_ms),
    pg_current_snapshot()
  INTO lane_changes, due_first, seen FROM numbered;
  q.arrivals_floor := pg_snapshot_xmax(seen);
  q.awaited := ARRAY(SELECT pg_snapshot_xip(seen)) || pg_current_xact_id();
  q.delayed_floor := least(q.delayed_floor, due_first);
  IF lane_changes IS NOT NULL THEN
    q := fairlane.update_lanes(q, lane_changes, NULL);
  END IF;
  PERFORM fairlane.write_queue(q, coalesce(cardinality(lane_changes), 0));
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

-- Return those documents of a batch that are new, with their checks and what each leaves of its customer's standing. Those that
-- inherit from their source move no counter. The planner puts this into the statement that calls it.
CREATE FUNCTION fairlane.check_documents(
  q fairlane.queue, now_ms bigint, ids text[], customers text[], kinds text[], payloads text[], costs bigint[], keys text[],
  digests text[], delays bigint[], no_better_than smallint[], sources text[], inherits boolean[], files bigint[], firsts bigint[]
) RETURNS TABLE (
  ordinal bigint, id text, sender bigint, spot tid, kind text, payload text, cost bigint, key text, digest text, state text,
  ready_ms bigint, bytes bigint, note text, weight int, is_checked boolean, counter bigint, check_priority smallint, policy_version int,
  terms_version int, resets bigint, parts bigint[], root bigint, priority smallint, is_set_by_hand boolean, no_better smallint
) LANGUAGE sql STABLE AS $$
  WITH input AS (
    SELECT g.*, g.inheriting IS NOT TRUE AS is_checked, c.number AS sender, c.spot, c.counter AS counter_before, c.updated_ms, c.resets,
      c.parts, c.weight, c.terms_version, coalesce(c.interval_ms, q.interval_ms) AS interval_ms,
      coalesce(c.reset, q.reset) = 'idle' AS is_idle, coalesce(c.depths, q.depths) AS depths, fairlane.step_of(g.cost, c.weight) AS step
    FROM unnest(ids, customers, kinds, payloads, costs, keys, digests, delays, no_better_than, sources, inherits, files, firsts)
      WITH ORDINALITY AS g (id, customer, kind, payload, cost, key, digest, delay, no_better, source, inheriting, file, first, ordinal)
    CROSS JOIN LATERAL (SELECT * FROM fairlane.customers AS o WHERE o.id = g.customer OFFSET 0) AS c  -- one by one
    WHERE coalesce(g.first, g.ordinal) = g.ordinal
  ), summed AS (
    SELECT *, first_value(step) OVER own AS first_step, (sum(step) OVER own)::bigint AS steps,
      CASE WHEN is_idle THEN fairlane.is_reset_due(updated_ms, now_ms, interval_ms) ELSE updated_ms IS NULL END AS is_reset
    FROM input WINDOW own AS (PARTITION BY sender, is_checked ORDER BY ordinal)
  ), checks AS (
    SELECT m.*, CASE WHEN m.is_idle
        THEN fairlane.step_down(CASE WHEN m.is_reset THEN least(m.first_step, 1000) ELSE m.counter_before END, m.steps)
        ELSE fairlane.sliding_counter(l.in_part, l.earlier, m.steps - m.step, m.step) END AS counter,
      CASE WHEN NOT m.is_idle THEN l.earlier_parts || l.part || least(1000000000000, l.in_part + m.steps) END AS parts_after
    FROM summed AS m LEFT JOIN LATERAL fairlane.sent_lately(m.parts, m.counter_before, m.updated_ms, now_ms, m.interval_ms) AS l
      ON NOT m.is_idle
  )
  SELECT k.ordinal, k.id, k.sender, k.spot, k.kind, k.payload, k.cost, k.key, k.digest,
    CASE WHEN k.delay > 0 THEN 'delayed' ELSE 'ready' END, now_ms + k.delay, octet_length(k.payload) + coalesce(k.file, 0),
    CASE WHEN NOT k.is_checked THEN k.source END, k.weight, k.is_checked,
    CASE WHEN k.is_checked THEN k.counter ELSE s.counter END, CASE WHEN k.is_checked THEN p.priority ELSE s.checked_priority END,
    CASE WHEN k.is_checked THEN q.rules_version ELSE s.policy_version END,
    CASE WHEN k.is_checked THEN k.terms_version ELSE s.terms_version END,
    CASE WHEN k.is_checked THEN k.resets + k.is_reset::int ELSE -1 END, k.parts_after,
    coalesce((SELECT o.root FROM fairlane.descendants AS o WHERE o.number = s.number), s.number),
    CASE WHEN k.is_checked THEN p.priority ELSE s.priority END, NOT k.is_checked AND s.is_set_by_hand,
    CASE WHEN k.is_checked THEN k.no_better ELSE s.no_better_than END
  FROM checks AS k
  CROSS JOIN LATERAL (SELECT greatest(fairlane.priority_of(k.counter, k.depths), k.no_better) AS priority) AS p
  LEFT JOIN LATERAL (SELECT * FROM fairlane.snapshots AS o WHERE o.id = k.source OFFSET 0) AS s ON k.source IS NOT NULL
  ORDER BY k.ordinal
$$;

-- Check and insert those documents of a batch that are new. If they only arrive, they get no rows in `work` and the feed.
CREATE FUNCTION fairlane.insert_documents(
  q fairlane.queue, now_ms bigint, arrives boolean, ids text[], customers text[], kinds text[], payloads text[], costs bigint[],
  keys text[], digests text[], delays bigint[], no_better_than smallint[], sources text[], inherits boolean[], files bigint[],
  firsts bigint[], OUT numbers bigint[], OUT priorities smallint[], OUT counters bigint[], OUT checked bigint[], OUT policies int[],
  OUT terms int[], OUT lane_changes fairlane.lane_change[]
) LANGUAGE plpgsql AS $$
BEGIN
  WITH inserted AS MATERIALIZED (
    SELECT nextval('fairlane.numbers') AS number, d.* FROM fairlane.check_documents(q, now_ms, ids, customers, kinds, payloads, costs,
      keys, digests, delays, no_better_than, sources, inherits, files, firsts) AS d
  ), added AS (
    INSERT INTO fairlane.documents (number, id, customer, kind, priority, counter, checked_ms, policy_version, terms_version,
      weight, resets, key, digest, payload, bytes, no_better_than)
    SELECT number, id, sender, kind, check_priority, counter, now_ms, policy_version, terms_version, weight, resets, key, digest,
      payload, bytes, no_better
    FROM inserted
  ), related AS (
    INSERT INTO fairlane.descendants (number, root) SELECT number, root FROM inserted WHERE root IS NOT NULL
  ), counted AS (
    INSERT INTO fairlane.families AS f (root, descendants) SELECT root, count(*) FROM inserted WHERE root IS NOT NULL GROUP BY root
    ON CONFLICT (root) DO UPDATE SET descendants = f.descendants + excluded.descendants
  ), moved AS (
    UPDATE fairlane.standings AS c SET revision = c.revision + (random() < 0.06)::int, busy_most = c.busy_most + m.adding,
      counter = CASE WHEN m.is_checked THEN (m.last).counter ELSE c.counter END,
      updated_ms = CASE WHEN m.is_checked THEN greatest(c.updated_ms, now_ms) ELSE c.updated_ms END,
      resets = CASE WHEN m.is_checked THEN (m.last).resets ELSE c.resets END,
      parts = CASE WHEN m.is_checked THEN (m.last).parts ELSE c.parts END
    FROM (SELECT spot, count(*) AS adding, bool_or(is_checked) AS is_checked,
            (array_agg((counter, NULL, resets, parts)::fairlane.standing ORDER BY ordinal DESC) FILTER (WHERE is_checked))[1] AS last
          FROM inserted GROUP BY spot) AS m
    WHERE c.ctid = m.spot
  ), queued AS (
    INSERT INTO fairlane.work (number, id, customer, kind, priority, state, ready_ms, cost, is_set_by_hand)
    SELECT number, id, sender, kind, priority, state, ready_ms, cost, is_set_by_hand FROM inserted WHERE NOT arrives
  ), logged AS (
    INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token, note)
    SELECT q.last_change + row_number() OVER (ORDER BY number), now_ms, 'submitted', sender, number, 0, note
    FROM inserted WHERE NOT arrives
  ), arrived AS (
    INSERT INTO fairlane.arrivals (number, ready_ms, cost, state, note, priority, is_set_by_hand)
    SELECT number, ready_ms, cost, state, note, priority, is_set_by_hand FROM inserted WHERE arrives
  )
  SELECT array_agg(m.number), array_agg(m.check_priority), array_agg(m.counter), array_agg(now_ms), array_agg(m.policy_version),
    array_agg(m.terms_version), array_agg((m.number, m.sender, m.kind, m.priority, (m.state = 'ready')::int, 1, 0, 0, 0, 0, 1, m.bytes,
      NULL)::fairlane.lane_change)
  INTO numbers, priorities, counters, checked, policies, terms, lane_changes FROM inserted AS m;
END $$;

-- Submit documents, all or none: for each, in order, check, priority and insert. A list of equal values is sent as one value, a
-- list without any value as NULL. Inside the caller's own transaction (`joins`), or while another session has locked the queue,
-- documents only arrive: the next session that locks the queue puts them into their lanes. Returns lists by ordinal; for a known
-- key the values of its receipt. Or which submission is refused, or which limit is exceeded.
CREATE FUNCTION fairlane.submit(
  ids text[], customers text[], kinds text[], payloads text[], costs bigint[], keys text[], digests text[], delays bigint[],
  no_better_than smallint[], sources text[], inherits boolean[], files bigint[], now_override bigint, joins boolean,
  OUT documents text[], OUT numbers bigint[], OUT priorities smallint[], OUT counters bigint[], OUT checked bigint[],
  OUT policies int[], OUT terms int[], OUT refused bigint, OUT refused_document text, OUT over text[]
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
  over := fairlane.find_over_limit(q, customers, payloads, files, sources, firsts);
  IF over IS NOT NULL THEN
    PERFORM fairlane.delete_customers(created);
    RETURN;
  END IF;
  SELECT i.* INTO numbers, priorities, counters, checked, policies, terms, lane_changes
  FROM fairlane.insert_documents(
    q, fairlane.now_ms(now_override), joins, ids, customers, fairlane.fill(kinds, size), payloads, fairlane.fill(costs, size),
    keys, digests, fairlane.fill(delays, size), no_better_than, sources, inherits, files, firsts) AS i;
  IF NOT joins AND lane_changes IS NOT NULL THEN
    q.delayed_floor := least(q.delayed_floor, checked[1]);
    PERFORM fairlane.write_queue(fairlane.update_lanes(q, lane_changes, checked[1]), cardinality(lane_changes));
  END IF;
  IF firsts IS NOT NULL THEN
    SELECT array_agg(d.id ORDER BY g.ordinal), array_agg(d.number ORDER BY g.ordinal), array_agg(d.priority ORDER BY g.ordinal),
      array_agg(d.counter ORDER BY g.ordinal), array_agg(coalesce(d.rechecked_ms, d.checked_ms) ORDER BY g.ordinal),
      array_agg(d.policy_version ORDER BY g.ordinal), array_agg(d.terms_version ORDER BY g.ordinal)
    INTO documents, numbers, priorities, counters, checked, policies, terms
    FROM unnest(ids, customers, keys, firsts) WITH ORDINALITY AS g (id, customer, key, first, ordinal)
    JOIN fairlane.customer_terms AS c ON c.id = g.customer
    JOIN fairlane.documents AS d ON CASE WHEN g.key IS NULL THEN d.id = g.id ELSE d.customer = c.number AND d.key = g.key END;
  END IF;
END $$;

-- Count a new document in its lane and in the queue, with its line of the feed; in plain steps if the lane has a head already (or
-- gets none), so that its start tag stays.
CREATE FUNCTION fairlane.join_lane(q fairlane.queue, now_ms bigint, due_first bigint, joining fairlane.lane_change) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token)
  VALUES (q.last_change + 1, now_ms, 'submitted', joining.customer, joining.number, 0);
  UPDATE fairlane.lanes AS l SET waiting = l.waiting + 1, documents = l.documents + 1, bytes = l.bytes + joining.bytes,
    revision = l.revision + (random() < 0.06)::int
  WHERE l.customer = joining.customer AND l.kind = joining.kind AND l.priority = joining.priority
    AND (l.head IS NOT NULL OR joining.ready = 0) AND l.revision = (SELECT max(o.revision) FROM fairlane.lanes AS o
      WHERE o.customer = joining.customer AND o.kind = joining.kind AND o.priority = joining.priority);
  IF FOUND THEN
    UPDATE fairlane.counters AS o SET revision = o.revision + 1, last_change = o.last_change + 1,
      ready[joining.priority] = o.ready[joining.priority] + joining.ready, delayed_floor = least(o.delayed_floor, due_first)
    WHERE o.revision = q.revision;
  ELSE
    q.delayed_floor := least(q.delayed_floor, due_first);
    PERFORM fairlane.write_queue(fairlane.update_lane(q, joining, now_ms), 1);
  END IF;
END $$;

-- Submit one document without a source, in plain steps: what `submit` does with a list of one, at half its cost. Returns the
-- receipt as texts, and whether it is refused because the key belongs to a document with another body; or a limit that would be
-- exceeded, with its figures.
CREATE FUNCTION fairlane.submit_one(
  new_id text, customer_id text, new_kind text, new_payload text, new_cost bigint, new_key text, new_digest text,
  delay bigint, new_no_better_than smallint, new_bytes bigint, now_override bigint, joins boolean
) RETURNS text[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  q fairlane.queue;
  c fairlane.customers;
  d fairlane.documents;
  created bigint[];
  most fairlane.limits;
  over text[];
  new_number bigint;
  new_priority smallint;
  moved fairlane.standing;
  now_ms bigint;
  new_state text := CASE WHEN delay > 0 THEN 'delayed' ELSE 'ready' END;
BEGIN
  PERFORM FROM fairlane.customer_terms WHERE id = customer_id FOR UPDATE;
  IF NOT FOUND THEN
    created := fairlane.lock_customers(ARRAY[customer_id]);
  END IF;
  SELECT * INTO c FROM fairlane.customers WHERE id = customer_id;
  IF new_key IS NOT NULL THEN
    SELECT * INTO d FROM fairlane.documents WHERE customer = c.number AND key = new_key;
    IF FOUND THEN
      PERFORM fairlane.refuse_frozen((SELECT o.frozen FROM fairlane.counters AS o ORDER BY o.revision DESC LIMIT 1));
      RETURN ARRAY[d.id, d.number::text, d.priority::text, d.counter::text, coalesce(d.rechecked_ms, d.checked_ms)::text,
        d.policy_version::text, d.terms_version::text, CASE WHEN d.digest IS DISTINCT FROM new_digest THEN 'refused' END];
    END IF;
  END IF;
  IF NOT joins THEN  -- as try_lock_queue does, without the call
    PERFORM FROM fairlane.queue_lock WHERE one FOR UPDATE SKIP LOCKED;
    joins := NOT FOUND;
  END IF;
  PERFORM fairlane.announce_arrival() WHERE joins;
  SELECT * INTO q FROM fairlane.queue;
  IF q.is_behind AND NOT joins THEN
    PERFORM fairlane.absorb_arrivals(q);
    SELECT * INTO q FROM fairlane.queue;
  END IF;
  PERFORM fairlane.refuse_frozen(q.frozen);
  most := CASE WHEN c.limits IS NULL THEN q.limits ELSE fairlane.limits_of(c.limits, q.limits) END;
  IF c.busy_most IS NULL OR c.busy_most >= most.waiting_max OR most.documents_max IS NOT NULL OR most.bytes_max IS NOT NULL THEN
    over := fairlane.over_limit(c, most, 1, new_bytes);
  END IF;
  IF over IS NOT NULL THEN
    PERFORM fairlane.delete_customers(created);
    RETURN over || 'over'::text;
  END IF;
  now_ms := fairlane.now_ms(now_override);
  moved := fairlane.check_standing((c.counter, c.updated_ms, c.resets, c.parts)::fairlane.standing, coalesce(c.reset, q.reset),
    coalesce(c.interval_ms, q.interval_ms), fairlane.step_of(new_cost, c.weight), now_ms);
  new_priority := greatest(fairlane.priority_of(moved.counter, coalesce(c.depths, q.depths)), new_no_better_than);
  new_number := nextval('fairlane.numbers');
  INSERT INTO fairlane.documents (number, id, customer, kind, priority, counter, checked_ms, policy_version, terms_version, weight,
    resets, key, digest, payload, bytes, no_better_than)
  VALUES (new_number, new_id, c.number, new_kind, new_priority, moved.counter, now_ms, q.rules_version, c.terms_version, c.weight,
    moved.resets, new_key, new_digest, new_payload, new_bytes, new_no_better_than);
  UPDATE fairlane.standings AS o SET counter = moved.counter, updated_ms = moved.updated_ms, resets = moved.resets, parts = moved.parts,
    revision = o.revision + (random() < 0.06)::int, busy_most = o.busy_most + 1
  WHERE o.customer = c.number AND o.revision = c.revision;
  IF joins THEN
    INSERT INTO fairlane.arrivals (number, ready_ms, cost, state) VALUES (new_number, now_ms + delay, new_cost, new_state);
  ELSE
    INSERT INTO fairlane.work (number, id, customer, kind, priority, state, ready_ms, cost)
    VALUES (new_number, new_id, c.number, new_kind, new_priority, new_state, now_ms + delay, new_cost);
    PERFORM fairlane.join_lane(q, now_ms, now_ms + delay,
      (new_number, c.number, new_kind, new_priority, (delay = 0)::int, 1, 0, 0, 0, 0, 1, new_bytes, NULL)::fairlane.lane_change);
  END IF;
  RETURN ARRAY[new_id, new_number::text, new_priority::text, moved.counter::text, now_ms::text, q.rules_version::text,
    c.terms_version::text, NULL];
END $$;
