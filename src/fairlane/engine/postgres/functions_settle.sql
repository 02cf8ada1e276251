-- How a document leaves a worker, or ends: each by one conditional write on (number, state, token).

-- What becomes of some documents, in order: their rows, their lines in the feed, their lanes. The queue is held.
CREATE FUNCTION fairlane.change_states(moves fairlane.move[], now_ms bigint, last_change bigint) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  shifts fairlane.shift[];
  lines bigint;
BEGIN
  WITH given AS MATERIALIZED (
    SELECT m.*, w.customer, w.kind, w.priority, w.state AS state_before, w.token
    FROM unnest(moves) WITH ORDINALITY AS m (number, state, what, note, result, ready_ms, attempts, cost, correction, place)
    JOIN fairlane.work AS w ON w.number = m.number
  ), ended AS (
    DELETE FROM fairlane.work AS w USING given AS g
    WHERE w.number = g.number AND w.state = g.state_before AND w.token = g.token AND g.state IN ('done', 'failed', 'cancelled')
    RETURNING w.*, g.cost AS cost_after, g.state AS state_after, g.note, g.result
  ), kept AS (
    INSERT INTO fairlane.endings (number, state, ended_ms, ready_ms, cost, token, attempts, attempts_max, worker, reason, result)
    SELECT number, state_after, now_ms, ready_ms, coalesce(cost_after, cost), token, attempts, attempts_max, worker, note, result
    FROM ended
  ), returned AS (
    UPDATE fairlane.work AS w SET state = g.state, ready_ms = g.ready_ms, attempts = g.attempts, lease_ms = NULL,
      cost = coalesce(g.cost, w.cost)
    FROM given AS g
    WHERE w.number = g.number AND w.state = g.state_before AND w.token = g.token AND g.state IN ('ready', 'delayed')
  ), told AS MATERIALIZED (
    SELECT row_number() OVER (ORDER BY g.place, t.part) AS line, g.customer, g.number, g.token, t.what, t.note
    FROM given AS g CROSS JOIN LATERAL (
      SELECT 1 AS part, 'corrected' AS what, g.correction AS note WHERE g.correction IS NOT NULL
      UNION ALL SELECT 2, g.what, g.note
    ) AS t
  ), logged AS (
    INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token, note)
    SELECT change_states.last_change + t.line, now_ms, t.what, t.customer, t.number, t.token, t.note FROM told AS t
  )
  SELECT array_agg((number, customer, kind, priority,
      (state = 'ready')::int - (state_before = 'ready')::int,
      (state IN ('ready', 'delayed'))::int - (state_before IN ('ready', 'delayed'))::int,
      -(state_before = 'running')::int, (state = 'done')::int, (state = 'failed')::int, (state = 'cancelled')::int
    )::fairlane.shift), (SELECT count(*) FROM told)
  INTO shifts, lines FROM given;
  IF shifts IS NOT NULL THEN
    PERFORM fairlane.tidy(shifts, lines);
  END IF;
END $$;

-- The cost of a document turned out to be another one: its customer's counter moves by the difference, never above 0, unless a
-- reset came between; measured with the weight of its check.
CREATE FUNCTION fairlane.correct_cost(wanted bigint, cost_before bigint, cost_after bigint) RETURNS void LANGUAGE sql AS $$
  UPDATE fairlane.customers AS c SET counter = greatest(-1000000000000, least(0,
    c.counter + fairlane.step_of(cost_before, d.weight) - fairlane.step_of(cost_after, d.weight)))
  FROM fairlane.documents AS d
  WHERE d.number = wanted AND c.number = d.customer AND c.updated_ms IS NOT NULL AND c.resets = d.resets
$$;

-- Each claim ends with its outcome; answers the places of those that were lost, for which nothing was changed. The customers
-- whose counters a corrected cost may move are held first.
CREATE FUNCTION fairlane.settle(
  numbers bigint[], ids text[], tokens bigint[], outcomes text[], texts text[], delays bigint[], costs bigint[], now_given bigint
) RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  q fairlane.queue;
  now_ms bigint;
  each record;
  moves fairlane.move[];
  kept bigint[];
BEGIN
  IF costs IS NOT NULL THEN
    PERFORM FROM fairlane.customers AS c WHERE c.number IN (
      SELECT w.customer FROM unnest(numbers, costs) AS g (number, cost) JOIN fairlane.work AS w ON w.number = g.number
      WHERE g.cost IS NOT NULL
    ) ORDER BY c.id FOR UPDATE;
  END IF;
  q := fairlane.hold();
  now_ms := fairlane.now_ms(now_given);
  SELECT array_agg(h.place), array_agg((
      h.number,
      CASE WHEN h.outcome IN ('done', 'failed') OR h.is_spent THEN CASE h.outcome WHEN 'done' THEN 'done' ELSE 'failed' END
           WHEN h.delay > 0 THEN 'delayed' ELSE 'ready' END,
      CASE WHEN h.is_spent THEN 'failed' ELSE h.outcome END,
      CASE WHEN h.outcome = 'done' THEN NULL
           WHEN h.is_spent THEN format('attempt %s of %s failed: %s', h.attempts, h.attempts_max, h.told)
           ELSE h.told END,
      CASE h.outcome WHEN 'done' THEN h.told END,
      now_ms + h.delay,
      h.attempts - (h.outcome = 'released')::int,
      h.new_cost,
      CASE WHEN h.new_cost IS NOT NULL THEN h.cost || ' ' || h.new_cost END
    )::fairlane.move ORDER BY h.place)
  INTO kept, moves
  FROM (
    SELECT g.place, g.outcome, g.told, coalesce(g.delay, 0) AS delay, nullif(g.cost, w.cost) AS new_cost, w.number, w.cost,
      w.attempts, w.attempts_max, g.outcome = 'retried' AND w.attempts >= w.attempts_max AS is_spent,
      row_number() OVER (PARTITION BY w.number ORDER BY g.place) AS nth
    FROM unnest(numbers, ids, tokens, outcomes, texts, delays, costs) WITH ORDINALITY
      AS g (number, id, token, outcome, told, delay, cost, place)
    JOIN fairlane.work AS w ON w.number = g.number AND w.id = g.id AND w.token = g.token AND w.state = 'running'
  ) AS h WHERE h.nth = 1;
  IF costs IS NOT NULL THEN
    FOR each IN
      SELECT m.number, w.cost AS cost_before, m.cost AS cost_after
      FROM unnest(moves) WITH ORDINALITY AS m (number, state, what, note, result, ready_ms, attempts, cost, correction, place)
      JOIN fairlane.work AS w ON w.number = m.number WHERE m.cost IS NOT NULL ORDER BY m.place
    LOOP
      PERFORM fairlane.correct_cost(each.number, each.cost_before, each.cost_after);
    END LOOP;
  END IF;
  PERFORM fairlane.change_states(moves, now_ms, q.last_change);
  RETURN ARRAY(
    SELECT place FROM generate_subscripts(numbers, 1) AS place WHERE NOT place = ANY (coalesce(kept, '{}')) ORDER BY 1);
END $$;

-- Longer leases, never shorter ones; answers the places of the claims that were lost.
CREATE FUNCTION fairlane.extend(numbers bigint[], ids text[], tokens bigint[], length_ms bigint, now_given bigint)
RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  now_ms bigint;
BEGIN
  PERFORM fairlane.hold();
  now_ms := fairlane.now_ms(now_given);
  UPDATE fairlane.work AS w SET lease_ms = greatest(w.lease_ms, now_ms + length_ms)
  FROM unnest(numbers, ids, tokens) AS g (number, id, token)
  WHERE w.number = g.number AND w.id = g.id AND w.token = g.token AND w.state = 'running';
  RETURN ARRAY(
    SELECT g.place FROM unnest(numbers, ids, tokens) WITH ORDINALITY AS g (number, id, token, place)
    WHERE NOT EXISTS (SELECT FROM fairlane.work AS w
      WHERE w.number = g.number AND w.id = g.id AND w.token = g.token AND w.state = 'running')
    ORDER BY g.place);
END $$;

-- Up to `most` documents whose lease ran out go back to their lane, or fail if their attempts are spent.
CREATE FUNCTION fairlane.reclaim(most int, now_given bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue := fairlane.hold();
  now_ms bigint := fairlane.now_ms(now_given);
  moves fairlane.move[];
BEGIN
  SELECT array_agg((w.number,
      CASE WHEN w.is_spent THEN 'failed' ELSE 'ready' END,
      CASE WHEN w.is_spent THEN 'failed' ELSE 'expired' END,
      CASE WHEN w.is_spent THEN format(
        'the worker stopped or died: its lease ran out on attempt %s of %s', w.attempts, w.attempts_max) END,
      NULL, now_ms, w.attempts, NULL, NULL
    )::fairlane.move ORDER BY w.lease_ms, w.number)
  INTO moves
  FROM (
    SELECT *, attempts >= attempts_max AS is_spent FROM fairlane.work
    WHERE lease_ms <= now_ms AND state = 'running' ORDER BY lease_ms, number LIMIT most
  ) AS w;
  PERFORM fairlane.change_states(moves, now_ms, q.last_change);
  RETURN coalesce(cardinality(moves), 0);
END $$;

-- Documents that have not ended end as cancelled, running ones too; answers the ids that did.
CREATE FUNCTION fairlane.cancel(ids text[], now_given bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue := fairlane.hold();
  now_ms bigint := fairlane.now_ms(now_given);
  moves fairlane.move[];
  cancelled text[];
BEGIN
  PERFORM fairlane.refuse_frozen(q.frozen);
  SELECT array_agg((h.number, 'cancelled', 'cancelled', NULL, NULL, NULL, NULL, NULL, NULL)::fairlane.move ORDER BY h.place),
    array_agg(h.id ORDER BY h.place)
  INTO moves, cancelled
  FROM (
    SELECT g.id, g.place, w.number, row_number() OVER (PARTITION BY w.number ORDER BY g.place) AS nth
    FROM unnest(ids) WITH ORDINALITY AS g (id, place)
    JOIN fairlane.documents AS d ON d.id = g.id JOIN fairlane.work AS w ON w.number = d.number
  ) AS h WHERE h.nth = 1;
  PERFORM fairlane.change_states(moves, now_ms, q.last_change);
  RETURN coalesce(cancelled, '{}');
END $$;

-- A failed document becomes ready with fresh attempts, without a check; false if it is not failed.
CREATE FUNCTION fairlane.retry(wanted text, now_given bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue := fairlane.hold();
  now_ms bigint := fairlane.now_ms(now_given);
  d fairlane.documents;
  e fairlane.endings;
BEGIN
  PERFORM fairlane.refuse_frozen(q.frozen);
  SELECT * INTO d FROM fairlane.documents WHERE id = wanted;
  DELETE FROM fairlane.endings WHERE number = d.number AND state = 'failed' RETURNING * INTO e;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  INSERT INTO fairlane.work (number, id, customer, kind, priority, state, ready_ms, cost, token, attempts, attempts_max)
  VALUES (d.number, d.id, d.customer, d.kind, d.priority, 'ready', now_ms, e.cost, e.token, 0, e.attempts_max);
  INSERT INTO fairlane.changes (number, at_ms, what, customer, document, token)
  VALUES (q.last_change + 1, now_ms, 'revived', d.customer, d.number, e.token);
  PERFORM fairlane.tidy(ARRAY[(d.number, d.customer, d.kind, d.priority, 1, 1, 0, 0, -1, 0)::fairlane.shift], 1);
  RETURN true;
END $$;
