-- Settling: a document leaves its worker, or ends, each by one conditional write on (number, state, token).

-- Return what attempts usually take after some more have ended: each moves it by a part, an eighth if `share` is 3. Shifts cut down,
-- below zero too.
CREATE FUNCTION fairlane.next_usual(usual bigint, taken bigint[], share int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  each bigint;
BEGIN
  FOREACH each IN ARRAY taken LOOP
    usual := CASE WHEN usual IS NULL THEN each ELSE usual + ((each - usual) >> share) END;
  END LOOP;
  RETURN usual;
END $$;

-- Note what attempts of customers usually take, after these have ended.
CREATE FUNCTION fairlane.update_usuals(owners bigint[], taken bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH input AS MATERIALIZED (
    SELECT g.*, u.spot, u.usual
    FROM (SELECT o.customer, array_agg(o.taken ORDER BY o.ordinal) AS taken
          FROM unnest(owners, taken) WITH ORDINALITY AS o (customer, taken, ordinal) GROUP BY o.customer) AS g
    LEFT JOIN LATERAL (
      SELECT i.usual, i.ctid AS spot FROM fairlane.usuals AS i WHERE i.customer = g.customer ORDER BY i.revision DESC LIMIT 1
    ) AS u ON true
  ), added AS (
    INSERT INTO fairlane.usuals (customer, usual)
    SELECT i.customer, fairlane.next_usual(NULL, i.taken, 3) FROM input AS i WHERE i.spot IS NULL
  )
  UPDATE fairlane.usuals AS o SET usual = fairlane.next_usual(i.usual, i.taken, 3), revision = o.revision + (random() < 0.06)::int
  FROM input AS i WHERE o.ctid = i.spot;
END $$;

-- Apply transitions in order: the documents' rows, their lines of the feed, their lanes. One that goes on leaves its lane for another. An attempt that ends is trued up: its lane is
-- charged what it took more than was paid. One that an older version claimed is not, as nobody knows when. The queue is locked.
CREATE FUNCTION fairlane.apply_transitions(q fairlane.queue, transitions fairlane.transition[], now_ms bigint) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  lane_changes fairlane.lane_change[];
  lines bigint;
  owners bigint[];
  attempts_taken bigint[];
BEGIN
  WITH input AS MATERIALIZED (
    SELECT m.*, w.spot, w.customer, w.kind, w.priority, w.state AS state_before, w.token, w.paid,
      CASE WHEN m.is_attempt AND w.claimed_ms IS NOT NULL THEN greatest(0, now_ms - w.claimed_ms) * 1000 END AS taken
    FROM unnest(transitions) WITH ORDINALITY
      AS m (number, state, what, note, result, ready_ms, attempts, cost, correction, bytes, is_attempt, kind_after, payload, ordinal)
    CROSS JOIN LATERAL (SELECT *, o.ctid AS spot FROM fairlane.work AS o WHERE o.number = m.number OFFSET 0) AS w
  ), ended AS (
    DELETE FROM fairlane.work AS w USING input AS g
    WHERE w.ctid = g.spot AND w.state = g.state_before AND w.token = g.token AND g.state IN ('done', 'failed', 'cancelled')
    RETURNING w.*, g.cost AS cost_after, g.state AS state_after, g.note, g.result, g.bytes
  ), recorded AS (
    INSERT INTO fairlane.endings (number, state, ended_ms, ready_ms, cost, token, attempts, attempts_max, worker, reason, result, bytes,
      priority, is_set_by_hand, claimed_ms)
    SELECT number, state_after, now_ms, ready_ms, coalesce(cost_after, cost), token, attempts, attempts_max, worker, note, result, bytes,
      priority, is_set_by_hand, claimed_ms
    FROM ended
  ), returned AS (
    UPDATE fairlane.work AS w SET state = g.state, ready_ms = g.ready_ms, attempts = g.attempts, lease_ms = NULL,
      cost = coalesce(g.cost, w.cost), kind = coalesce(g.kind_after, w.kind)
    FROM input AS g
    WHERE w.ctid = g.spot AND w.state = g.state_before AND w.token = g.token AND g.state IN ('ready', 'delayed')
  ), going_on AS MATERIALIZED (
    SELECT g.*, s.bytes AS bytes_before, s.bytes + octet_length(g.payload) - octet_length(d.payload) + g.bytes AS bytes_after
    FROM input AS g CROSS JOIN LATERAL (SELECT * FROM fairlane.documents AS o WHERE o.number = g.number OFFSET 0) AS d
    CROSS JOIN LATERAL (SELECT * FROM fairlane.sizes AS o WHERE o.number = g.number OFFSET 0) AS s WHERE g.kind_after IS NOT NULL
  ), renewed AS (
    UPDATE fairlane.documents AS d SET kind = g.kind_after, payload = g.payload, bytes = g.bytes_after
    FROM going_on AS g WHERE d.number = g.number
  ), feed_lines AS MATERIALIZED (
    SELECT row_number() OVER (ORDER BY g.ordinal, t.part) AS line, g.customer, g.number, g.token, t.what, t.note
    FROM input AS g CROSS JOIN LATERAL (
      SELECT 1 AS part, 'corrected' AS what, g.correction AS note WHERE g.correction IS NOT NULL
      UNION ALL SELECT 2, g.what, g.note
    ) AS t
  ), logged AS (
    INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token, note)
    SELECT q.last_change + t.line, now_ms, t.what, t.customer, t.number, t.token, t.note FROM feed_lines AS t
  )
  SELECT array_agg(c.lane_change ORDER BY c.ordinal, c.part), (SELECT count(*) FROM feed_lines),
    array_agg(c.customer ORDER BY c.ordinal) FILTER (WHERE c.taken IS NOT NULL),
    array_agg(c.taken ORDER BY c.ordinal) FILTER (WHERE c.taken IS NOT NULL)
  INTO lane_changes, lines, owners, attempts_taken FROM (
    SELECT g.ordinal, 1 AS part, g.customer, g.taken, (g.number, g.customer, g.kind, g.priority,
        CASE WHEN g.kind_after IS NULL THEN (g.state = 'ready')::int - (g.state_before = 'ready')::int ELSE 0 END,
        CASE WHEN g.kind_after IS NULL THEN (g.state IN ('ready', 'delayed'))::int - (g.state_before IN ('ready', 'delayed'))::int ELSE 0 END,
        -(g.state_before = 'running')::int, (g.state = 'done')::int, (g.state = 'failed')::int, (g.state = 'cancelled')::int,
        CASE WHEN g.kind_after IS NOT NULL AND g.number > q.uncounted THEN -1 ELSE 0 END,
        CASE WHEN g.number <= q.uncounted THEN 0 ELSE coalesce(-n.bytes_before, g.bytes, 0) END,
        CASE WHEN g.taken IS NOT NULL AND g.paid IS NOT NULL AND q.turns = 'time' THEN greatest(1, g.taken / (
          SELECT c.weight FROM fairlane.customer_terms AS c WHERE c.number = g.customer)) - g.paid END)::fairlane.lane_change AS lane_change
    FROM input AS g LEFT JOIN going_on AS n ON n.number = g.number
    UNION ALL
    SELECT n.ordinal, 2, NULL, NULL, (n.number, n.customer, n.kind_after, n.priority, (n.state = 'ready')::int, 1, 0, 0, 0, 0,
        (n.number > q.uncounted)::int, CASE WHEN n.number > q.uncounted THEN n.bytes_after ELSE 0 END, NULL)::fairlane.lane_change
    FROM going_on AS n
  ) AS c;
  IF lane_changes IS NOT NULL THEN
    q := fairlane.update_lanes(q, lane_changes, now_ms);
    IF owners IS NOT NULL THEN
      PERFORM fairlane.update_usuals(owners, attempts_taken);
      q.usual := fairlane.next_usual(q.usual, attempts_taken, 6);
    END IF;
    q.delayed_floor := least(q.delayed_floor, now_ms);
    PERFORM fairlane.write_queue(q, lines);
  END IF;
END $$;

-- End claims with their outcomes; returns the ordinals of claims that were lost, for which nothing was changed. Customers whose
-- counters a corrected cost may move, or who get parts, are locked first. Of one that goes on the text is its payload.
CREATE FUNCTION fairlane.settle(
  numbers bigint[], ids text[], tokens bigint[], outcomes text[], texts text[], delays bigint[], costs bigint[], files bigint[],
  kinds text[], packed_parts jsonb, now_override bigint
) RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  q fairlane.queue;
  now_ms bigint;
  each record;
  transitions fairlane.transition[];
  settled bigint[];
BEGIN
  IF costs IS NOT NULL OR packed_parts IS NOT NULL THEN
    PERFORM FROM fairlane.customer_terms AS c WHERE c.number IN (
      SELECT w.customer FROM unnest(numbers, costs, outcomes) AS g (number, cost, outcome) JOIN fairlane.work AS w ON w.number = g.number
      WHERE g.cost IS NOT NULL OR g.outcome = 'split'
    ) ORDER BY c.id FOR UPDATE;
  END IF;
  q := fairlane.lock_queue();
  now_ms := fairlane.now_ms(now_override);
  SELECT array_agg(h.ordinal), array_agg((
      h.number,
      CASE WHEN h.outcome IN ('done', 'failed') OR h.is_spent THEN CASE h.outcome WHEN 'done' THEN 'done' ELSE 'failed' END
           WHEN h.delay > 0 OR h.outcome = 'split' THEN 'delayed' ELSE 'ready' END,
      CASE WHEN h.is_spent THEN 'failed' ELSE h.outcome END,
      CASE WHEN h.outcome = 'done' THEN NULL WHEN h.kind_after IS NOT NULL THEN h.kind_after
           WHEN h.is_spent THEN format('attempt %s of %s failed: %s', h.attempts, h.attempts_max, h.message)
           ELSE h.message END,
      CASE h.outcome WHEN 'done' THEN h.message END,
      CASE h.outcome WHEN 'split' THEN 253402300799999 ELSE now_ms + h.delay END,
      CASE WHEN h.kind_after IS NULL THEN h.attempts - (h.outcome IN ('released', 'postponed'))::int ELSE 0 END,
      h.new_cost,
      CASE WHEN h.new_cost IS NOT NULL THEN h.cost || ' ' || h.new_cost END,
      CASE WHEN h.outcome = 'done' THEN coalesce(octet_length(h.message), 0) + coalesce(h.file, 0)
           WHEN h.kind_after IS NOT NULL THEN coalesce(h.file, 0) END,
      true, h.kind_after, CASE WHEN h.kind_after IS NOT NULL THEN h.message END
    )::fairlane.transition ORDER BY h.ordinal)
  INTO settled, transitions
  FROM (
    SELECT g.ordinal, g.outcome, g.message, g.file, g.kind_after, coalesce(g.delay, 0) AS delay, nullif(g.cost, w.cost) AS new_cost, w.number, w.cost,
      w.attempts, w.attempts_max, g.outcome = 'retried' AND w.attempts >= w.attempts_max AS is_spent,
      row_number() OVER (PARTITION BY w.number ORDER BY g.ordinal) AS nth
    FROM unnest(numbers, ids, tokens, outcomes, texts, delays, costs, files, kinds) WITH ORDINALITY
      AS g (number, id, token, outcome, message, delay, cost, file, kind_after, ordinal)
    CROSS JOIN LATERAL (SELECT * FROM fairlane.work AS o WHERE o.number = g.number OFFSET 0) AS w
    WHERE w.id = g.id AND w.token = g.token AND w.state = 'running'
  ) AS h WHERE h.nth = 1;
  IF costs IS NOT NULL THEN
    FOR each IN
      SELECT m.number, w.cost AS cost_before, m.cost AS cost_after
      FROM unnest(transitions) WITH ORDINALITY
        AS m (number, state, what, note, result, ready_ms, attempts, cost, correction, bytes, is_attempt, kind_after, payload, ordinal)
      JOIN fairlane.work AS w ON w.number = m.number WHERE m.cost IS NOT NULL ORDER BY m.ordinal
    LOOP
      PERFORM fairlane.correct_cost(q, each.number, each.cost_before, each.cost_after);
    END LOOP;
  END IF;
  PERFORM fairlane.apply_transitions(q, transitions, now_ms);
  IF packed_parts IS NOT NULL THEN
    PERFORM fairlane.add_parts(numbers, ids, settled, packed_parts, now_ms);
  END IF;
  PERFORM fairlane.end_families(ARRAY(SELECT m.number FROM unnest(transitions) AS m), now_ms);
  RETURN ARRAY(
    SELECT ordinal FROM generate_subscripts(numbers, 1) AS ordinal WHERE NOT ordinal = ANY (coalesce(settled, '{}')) ORDER BY 1);
END $$;

-- Keep the details of the attempts that `settle` ended, of the last ten claims of each document; returns the lost ones again.
CREATE FUNCTION fairlane.keep_details(lost bigint[], ids text[], tokens bigint[], details text[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
  last_record bigint := (fairlane.lock_queue()).last_record;
  kept bigint;
BEGIN
  DELETE FROM fairlane.records AS r USING unnest(ids, tokens, details) WITH ORDINALITY AS g (id, token, value, ordinal)
  WHERE g.value IS NOT NULL AND NOT g.ordinal = ANY (lost) AND g.token > 10
    AND r.group_name = 'attempts' AND r.key > g.id || ':' AND r.key <= g.id || ':' || lpad((g.token - 10)::text, 16, '0');
  INSERT INTO fairlane.records (group_name, key, value, version)
  SELECT 'attempts', g.id || ':' || lpad(g.token::text, 16, '0'), g.value, last_record + row_number() OVER (ORDER BY g.ordinal)
  FROM unnest(ids, tokens, details) WITH ORDINALITY AS g (id, token, value, ordinal)
  WHERE g.value IS NOT NULL AND NOT g.ordinal = ANY (lost);
  GET DIAGNOSTICS kept = ROW_COUNT;
  UPDATE fairlane.counters AS c SET revision = c.revision + 1, last_record = c.last_record + kept
  WHERE c.revision = (SELECT max(o.revision) FROM fairlane.counters AS o);
  RETURN lost;
END $$;

-- Extend leases, never shorten them; returns the ordinals of claims that were lost.
CREATE FUNCTION fairlane.extend(numbers bigint[], ids text[], tokens bigint[], length_ms bigint, now_override bigint)
RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  now_ms bigint;
BEGIN
  PERFORM fairlane.lock_queue();
  now_ms := fairlane.now_ms(now_override);
  UPDATE fairlane.work AS w SET lease_ms = greatest(w.lease_ms, now_ms + length_ms)
  FROM unnest(numbers, ids, tokens) AS g (number, id, token)
  WHERE w.number = ANY (numbers) AND w.number = g.number AND w.id = g.id AND w.token = g.token AND w.state = 'running';
  RETURN ARRAY(
    SELECT g.ordinal FROM unnest(numbers, ids, tokens) WITH ORDINALITY AS g (number, id, token, ordinal)
    WHERE NOT EXISTS (SELECT FROM fairlane.work AS w
      WHERE w.number = ANY (numbers) AND w.number = g.number AND w.id = g.id AND w.token = g.token AND w.state = 'running')
    ORDER BY g.ordinal);
END $$;

-- Give a running claim to another worker, under the next token and with a lease of its own; no row if it was lost. A lease that is
-- shorter than before must be found by `reclaim`, too.
CREATE FUNCTION fairlane.take_over(document_id text, claim_token bigint, worker_name text, length_ms bigint, now_override bigint)
RETURNS TABLE (
  id text, token bigint, number bigint, customer text, kind text, priority smallint, payload text, attempts int,
  attempts_max int, lease_ms bigint, turn bigint, is_open boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  q fairlane.queue := fairlane.lock_queue();
  now_ms bigint := fairlane.now_ms(now_override);
BEGIN
  RETURN QUERY
    WITH taken AS (
      UPDATE fairlane.work AS w SET token = w.token + 1, worker = worker_name, lease_ms = now_ms + length_ms
      WHERE w.number = (SELECT d.number FROM fairlane.documents AS d WHERE d.id = document_id)
        AND w.token = claim_token AND w.state = 'running'
      RETURNING w.*
    ), logged AS (
      INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token, note)
      SELECT q.last_change + 1, now_ms, 'taken_over', t.customer, t.number, t.token, worker_name FROM taken AS t
    )
    SELECT t.id, t.token, t.number, c.id, t.kind, t.priority, d.payload, t.attempts, t.attempts_max, t.lease_ms, 0::bigint, false
    FROM taken AS t JOIN fairlane.documents AS d ON d.number = t.number
    JOIN fairlane.customer_terms AS c ON c.number = t.customer;
  IF FOUND THEN
    q.leases_floor := least(q.leases_floor, now_ms + length_ms);
    PERFORM fairlane.write_queue(q, 1);
  END IF;
END $$;

-- Return up to `max_count` documents whose lease ran out to their lanes, or fail them if their attempts are spent.
CREATE FUNCTION fairlane.reclaim(max_count int, now_override bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue := fairlane.lock_queue();
  now_ms bigint := fairlane.now_ms(now_override);
  transitions fairlane.transition[];
BEGIN
  SELECT array_agg((w.number,
      CASE WHEN w.is_spent THEN 'failed' ELSE 'ready' END,
      CASE WHEN w.is_spent THEN 'failed' ELSE 'expired' END,
      CASE WHEN w.is_spent THEN format(
        'the worker stopped or died: its lease ran out on attempt %s of %s', w.attempts, w.attempts_max) END,
      NULL, now_ms, w.attempts, NULL, NULL, NULL, false, NULL, NULL
    )::fairlane.transition ORDER BY w.lease_ms, w.number)
  INTO transitions
  FROM (
    SELECT *, attempts >= attempts_max AS is_spent FROM fairlane.work
    WHERE lease_ms >= q.leases_floor AND lease_ms <= now_ms AND state = 'running' ORDER BY lease_ms, number LIMIT max_count
  ) AS w;
  IF coalesce(cardinality(transitions), 0) < max_count AND q.leases_floor < now_ms - 10000 THEN  -- all others end later
    UPDATE fairlane.counters AS o SET revision = o.revision + 1, leases_floor = now_ms WHERE o.revision = q.revision;
    q.revision := q.revision + 1;
  END IF;
  PERFORM fairlane.apply_transitions(q, transitions, now_ms);
  PERFORM fairlane.end_families(ARRAY(SELECT m.number FROM unnest(transitions) AS m), now_ms);
  RETURN coalesce(cardinality(transitions), 0);
END $$;

-- Cancel documents that have not ended, running ones too; returns their ids.
CREATE FUNCTION fairlane.cancel(ids text[], now_override bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue := fairlane.lock_queue();
  now_ms bigint := fairlane.now_ms(now_override);
  transitions fairlane.transition[];
  cancelled text[];
BEGIN
  PERFORM fairlane.refuse_frozen(q.frozen);
  SELECT array_agg((h.number, 'cancelled', 'cancelled', NULL, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL)::fairlane.transition
      ORDER BY h.ordinal),
    array_agg(h.id ORDER BY h.ordinal)
  INTO transitions, cancelled
  FROM (
    SELECT g.id, g.ordinal, w.number, row_number() OVER (PARTITION BY w.number ORDER BY g.ordinal) AS nth
    FROM unnest(ids) WITH ORDINALITY AS g (id, ordinal)
    JOIN fairlane.documents AS d ON d.id = g.id JOIN fairlane.work AS w ON w.number = d.number
  ) AS h WHERE h.nth = 1;
  PERFORM fairlane.apply_transitions(q, transitions, now_ms);
  PERFORM fairlane.end_families(ARRAY(SELECT m.number FROM unnest(transitions) AS m), now_ms);
  RETURN coalesce(cancelled, '{}');
END $$;

-- Give a document the check of a new one, because its customer retries it (`retrying`) or an operator takes the backlog along;
-- returns its priority and the feed's note. A priority that was set by hand stays.
CREATE FUNCTION fairlane.check_again(
  q fairlane.queue, d fairlane.documents, cost bigint, priority_before smallint, is_set_by_hand boolean, now_ms bigint, retrying int,
  OUT priority smallint, OUT note text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  c fairlane.customers;
  moved record;
BEGIN
  SELECT * INTO c FROM fairlane.customers AS o WHERE o.number = d.customer;
  SELECT * INTO moved FROM fairlane.move_counter(q, c, cost, d.no_better_than, now_ms, retrying);
  UPDATE fairlane.documents AS o SET counter = moved.counter, priority = moved.priority, resets = moved.resets,
    policy_version = q.rules_version, terms_version = c.terms_version, weight = c.weight, retries = o.retries + retrying,
    rechecked_ms = now_ms
  WHERE o.number = d.number;
  priority := CASE WHEN is_set_by_hand THEN priority_before ELSE moved.priority END;
  note := format('{"cost": %s, "counter": %s, "priority": %s, "policy": %s, "terms": %s, '
    || '"before": {"counter": %s, "priority": %s, "policy": %s, "terms": %s}}',
    cost, moved.counter, moved.priority, q.rules_version, c.terms_version, d.counter, d.priority, d.policy_version, d.terms_version);
END $$;

-- Make a failed document ready with fresh attempts, for its customer with a check; false if it is not failed, or a part. Or which
-- limit would be exceeded. One that waited for its parts does so again, and those that are not done are revived with it.
CREATE FUNCTION fairlane.retry(document_id text, as_customer boolean, now_override bigint, OUT is_revived boolean, OUT over text[])
LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue;
  c fairlane.customers;
  d fairlane.documents;
  e fairlane.endings;
  most fairlane.limits;
  now_ms bigint;
  priority_before smallint;
  new_priority smallint;
  check_note text;
  lane_changes fairlane.lane_change[];
  is_whole boolean;
BEGIN
  SELECT * INTO d FROM fairlane.documents WHERE id = document_id;
  PERFORM FROM fairlane.customer_terms WHERE number = d.customer FOR UPDATE;
  q := fairlane.lock_queue();
  PERFORM fairlane.refuse_frozen(q.frozen);
  now_ms := fairlane.now_ms(now_override);
  SELECT * INTO d FROM fairlane.documents WHERE id = document_id;
  SELECT * INTO e FROM fairlane.endings WHERE number = d.number AND state = 'failed';
  is_revived := FOUND AND NOT EXISTS (
    SELECT FROM fairlane.parts AS p JOIN fairlane.documents AS o ON o.number = p.whole WHERE p.number = d.number);
  IF NOT is_revived THEN
    RETURN;
  END IF;
  SELECT * INTO c FROM fairlane.customers WHERE number = d.customer;
  most := fairlane.limits_of(c.limits, q.limits);
  IF as_customer AND d.retries >= most.retries_max THEN
    over := ARRAY['retries_max', d.id, d.retries::text, '1', most.retries_max::text];
  ELSIF c.busy_most IS NULL OR c.busy_most >= most.waiting_max THEN
    over := fairlane.over_limit(c, ROW(most.waiting_max, NULL, NULL, NULL, NULL)::fairlane.limits, 1, 0);
  END IF;
  IF over IS NOT NULL THEN
    RETURN;
  END IF;
  priority_before := coalesce(e.priority, d.priority);
  new_priority := priority_before;
  lane_changes := ARRAY[(d.number, d.customer, d.kind, priority_before, 0, 0, 0, 0, -1, 0, 0, 0, NULL)::fairlane.lane_change];
  IF as_customer THEN
    lane_changes := lane_changes || fairlane.uncount(q, ARRAY[d.number]);
    SELECT a.priority, a.note INTO new_priority, check_note
    FROM fairlane.check_again(q, d, e.cost, priority_before, e.is_set_by_hand, now_ms, 1) AS a;
    lane_changes := lane_changes || ARRAY(
      SELECT (o.number, o.customer, o.kind, new_priority, 0, 0, 0, 0, 0, 0, -o.documents, -o.bytes, NULL)::fairlane.lane_change
      FROM unnest(lane_changes) AS o WHERE o.documents < 0);
  ELSE
    UPDATE fairlane.standings AS o SET busy_most = o.busy_most + 1 WHERE o.customer = c.number AND o.revision = c.revision;
  END IF;
  is_whole := EXISTS (SELECT FROM fairlane.wholes AS o WHERE o.number = d.number AND o.parts_left > 0);
  DELETE FROM fairlane.endings WHERE number = d.number;
  INSERT INTO fairlane.work (number, id, customer, kind, priority, state, ready_ms, cost, token, attempts, attempts_max, is_set_by_hand,
    claimed_ms)
  VALUES (d.number, d.id, d.customer, d.kind, new_priority, CASE WHEN is_whole THEN 'delayed' ELSE 'ready' END,
    CASE WHEN is_whole THEN 253402300799999 ELSE now_ms END, e.cost, e.token, 0, e.attempts_max, e.is_set_by_hand,
    e.claimed_ms);
  INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token, note)
  VALUES (q.last_change + 1, now_ms, 'revived', d.customer, d.number, e.token, check_note);
  q := fairlane.update_lanes(q, lane_changes ||
    (d.number, d.customer, d.kind, new_priority, (NOT is_whole)::int, 1, 0, 0, 0, 0, 0, 0, NULL)::fairlane.lane_change, now_ms);
  PERFORM fairlane.write_queue(q, 1);
  IF is_whole THEN
    UPDATE fairlane.standings AS o SET busy_most = o.busy_most + fairlane.revive_parts(d.number, now_ms)
    WHERE o.customer = c.number AND o.revision = (SELECT max(r.revision) FROM fairlane.standings AS r WHERE r.customer = c.number);
  END IF;
END $$;
