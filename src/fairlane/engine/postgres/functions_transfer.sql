-- Transfer: rows that were packed in another store. Rows that exist already stay as they are.

-- Replace the queue's own counters and its rules.
CREATE FUNCTION fairlane.unpack_queue(
  body text, version int, interval_ms bigint, depths bigint[], reset text, dispatch text, turns text, open_turn_every int, frozen text,
  limits fairlane.limits, clocks bigint[], usual bigint, busy_ms bigint, taken bigint[], ticked_ms bigint, last_number bigint,
  last_change bigint, last_record bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM fairlane.lock_queue();
  DELETE FROM fairlane.rules;
  DELETE FROM fairlane.changes;
  INSERT INTO fairlane.rules (version, since_ms, body) VALUES (unpack_queue.version, 0, unpack_queue.body);
  UPDATE fairlane.counters AS c SET revision = c.revision + 1, rules_version = unpack_queue.version,
    interval_ms = unpack_queue.interval_ms, depths = unpack_queue.depths, reset = unpack_queue.reset,
    dispatch = unpack_queue.dispatch, turns = unpack_queue.turns, open_turn_every = unpack_queue.open_turn_every,
    frozen = unpack_queue.frozen, limits = unpack_queue.limits, clocks = unpack_queue.clocks, usual = unpack_queue.usual,
    busy_ms = unpack_queue.busy_ms, taken = unpack_queue.taken, ticked_ms = unpack_queue.ticked_ms,
    last_change = unpack_queue.last_change, changes_floor = unpack_queue.last_change, last_record = unpack_queue.last_record;
  PERFORM setval('fairlane.numbers', greatest(1, unpack_queue.last_number), unpack_queue.last_number > 0);
END $$;

-- Set how many documents were dispatched to a set of kinds (NULL: all).
CREATE FUNCTION fairlane.unpack_dispatches(kind_set text[], last_number bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO fairlane.dispatches (digest, kinds, number) VALUES (fairlane.digest_of(kind_set), kind_set, last_number)
  ON CONFLICT (digest, revision) DO UPDATE SET number = excluded.number;
END $$;

-- Add a kind with its limit and its clocks, at no limit until the next claim.
CREATE FUNCTION fairlane.unpack_kind(
  name text, new_running_max int, new_rate bigint, new_burst bigint, new_version int, new_tokens bigint, new_tokens_ms bigint,
  new_clocks bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue := fairlane.lock_queue();
BEGIN
  DELETE FROM fairlane.kinds AS k WHERE k.kind = name;
  INSERT INTO fairlane.kinds (kind, clocks, version, running_max, rate, burst, tokens, tokens_ms)
  VALUES (name, new_clocks, new_version, new_running_max, new_rate, new_burst, new_tokens, new_tokens_ms);
  UPDATE fairlane.counters AS o SET limited = o.limited + (new_version > 0)::int WHERE o.revision = q.revision;
  PERFORM fairlane.write_queue(fairlane.update_kinds(q, ARRAY[name], NULL), 0);
END $$;

-- Add a customer with its terms. What has ended is counted in a lane of no kind, which never has a document: the rows do not say
-- in which lane it was.
CREATE FUNCTION fairlane.unpack_customer(
  new_id text, new_counter bigint, new_updated bigint, new_resets bigint, new_parts bigint[], new_version int, body text,
  new_weight int, new_cap int, new_paused boolean, new_interval bigint, new_depths bigint[], new_rule text,
  new_limits fairlane.limits, new_done bigint, new_failed bigint, new_cancelled bigint, new_usual bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  owner bigint;
BEGIN
  PERFORM fairlane.lock_customers(ARRAY[new_id]);
  PERFORM fairlane.lock_queue();
  UPDATE fairlane.customer_terms SET terms_version = new_version, weight = new_weight, cap = new_cap, paused = new_paused,
    interval_ms = new_interval, depths = new_depths, reset = new_rule, limits = new_limits
  WHERE id = new_id RETURNING number INTO owner;
  UPDATE fairlane.standings SET revision = revision + 1, counter = new_counter, updated_ms = new_updated,
    resets = new_resets, parts = new_parts, busy_most = NULL WHERE customer = owner;
  DELETE FROM fairlane.usuals WHERE customer = owner;
  INSERT INTO fairlane.usuals (customer, usual) SELECT owner, new_usual WHERE new_usual IS NOT NULL;
  IF new_version > 0 THEN
    INSERT INTO fairlane.terms (customer, version, since_ms, body) VALUES (owner, new_version, 0, unpack_customer.body)
    ON CONFLICT DO NOTHING;
    UPDATE fairlane.counters SET revision = revision + 1, tunings = tunings + 1;
  END IF;
  DELETE FROM fairlane.lanes WHERE customer = owner AND kind = '';
  INSERT INTO fairlane.lanes (customer, kind, priority, waiting, running, done, failed, cancelled)
  VALUES (owner, '', 1, 0, 0, new_done, new_failed, new_cancelled);
END $$;

-- Add documents in any state but running, from JSON.
CREATE FUNCTION fairlane.unpack_documents(packed_rows jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue := fairlane.lock_queue();
  lane_changes fairlane.lane_change[];
  due_first bigint;
BEGIN
  WITH packed AS MATERIALIZED (
    SELECT p.*, c.number AS owner FROM jsonb_to_recordset(packed_rows) AS p (
      number bigint, id text, customer text, kind text, state text, checked_priority smallint, counter bigint, checked_ms bigint,
      policy_version int, terms_version int, cost bigint, key text, ready_ms bigint, attempts int, attempts_max int, token bigint,
      worker text, ended_ms bigint, reason text, digest text, weight int, resets bigint, payload text, result text,
      bytes bigint, retries int, submitted_ms bigint, root bigint, descendants bigint, priority smallint, no_better_than smallint,
      is_set_by_hand boolean, claimed_ms bigint, whole text, parts_from bigint, parts int, parts_left int
    ) JOIN fairlane.customer_terms AS c ON c.id = p.customer
    WHERE NOT EXISTS (SELECT FROM fairlane.documents AS d WHERE d.number = p.number)
  ), added AS (
    INSERT INTO fairlane.documents (number, customer, counter, checked_ms, resets, policy_version, terms_version, weight, priority,
      id, kind, key, digest, payload, bytes, retries, rechecked_ms, no_better_than)
    SELECT number, owner, counter, submitted_ms, resets, policy_version, terms_version, weight, checked_priority, id, kind, key, digest,
      payload, bytes, retries, checked_ms, no_better_than
    FROM packed
  ), related AS (
    INSERT INTO fairlane.descendants (number, root) SELECT number, root FROM packed WHERE root IS NOT NULL
  ), counted AS (
    INSERT INTO fairlane.families (root, descendants)
    SELECT DISTINCT coalesce(root, number), descendants FROM packed WHERE descendants > 0 ON CONFLICT DO NOTHING
  ), belonging AS (  -- without its number, that of a whole that is gone is 0
    INSERT INTO fairlane.parts (number, whole, whole_id)
    SELECT p.number, coalesce((SELECT d.number FROM fairlane.documents AS d WHERE d.id = p.whole),
      (SELECT o.number FROM packed AS o WHERE o.id = p.whole), 0), p.whole
    FROM packed AS p WHERE p.whole IS NOT NULL
  ), divided AS (
    INSERT INTO fairlane.wholes (number, parts_from, parts, parts_left)
    SELECT number, parts_from, parts, parts_left FROM packed WHERE parts > 0
  ), queued AS (
    INSERT INTO fairlane.work (number, id, customer, kind, priority, state, ready_ms, cost, token, attempts, attempts_max, worker,
      is_set_by_hand, claimed_ms)
    SELECT number, id, owner, kind, priority, state, ready_ms, cost, token, attempts, attempts_max, worker, is_set_by_hand, claimed_ms
    FROM packed WHERE state IN ('ready', 'delayed')
  ), ended AS (
    INSERT INTO fairlane.endings (number, ended_ms, ready_ms, cost, token, attempts, attempts_max, state, worker, reason, result, bytes,
      priority, is_set_by_hand, claimed_ms)
    SELECT number, ended_ms, ready_ms, cost, token, attempts, attempts_max, state, worker, reason, result, 0, priority, is_set_by_hand,
      claimed_ms
    FROM packed WHERE state NOT IN ('ready', 'delayed')
  )
  SELECT array_agg((number, owner, kind, priority, (state = 'ready')::int, (state IN ('ready', 'delayed'))::int, 0, 0, 0, 0, 1, bytes,
    NULL)::fairlane.lane_change), min(ready_ms) FILTER (WHERE state IN ('ready', 'delayed'))
  INTO lane_changes, due_first FROM packed;
  IF lane_changes IS NOT NULL THEN
    q.delayed_floor := least(q.delayed_floor, due_first);
    PERFORM fairlane.write_queue(fairlane.update_lanes(q, lane_changes, NULL), 0);
  END IF;
END $$;

-- Set the tags of lanes; a lane competes if it did where it comes from.
CREATE FUNCTION fairlane.unpack_lanes(
  customers text[], names text[], priorities smallint[], starts bigint[], crosses bigint[], finishes bigint[], cross_finishes bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue := fairlane.lock_queue();
BEGIN
  INSERT INTO fairlane.lanes AS l (customer, kind, priority, waiting, running, done, failed, cancelled)
  SELECT c.number, g.kind, g.priority, 0, 0, 0, 0, 0
  FROM unnest(customers, names, priorities) AS g (customer, kind, priority) JOIN fairlane.customer_terms AS c ON c.id = g.customer
  WHERE NOT EXISTS (SELECT FROM fairlane.lanes AS o WHERE o.customer = c.number AND o.kind = g.kind AND o.priority = g.priority);
  UPDATE fairlane.lanes AS l SET finish = g.finish, cross_finish = g.cross_finish, cross_tag = g.cross_tag,
    start = CASE WHEN l.head IS NOT NULL THEN g.start END, revision = l.revision + 1
  FROM unnest(customers, names, priorities, starts, crosses, finishes, cross_finishes)
    AS g (customer, kind, priority, start, cross_tag, finish, cross_finish) JOIN fairlane.customer_terms AS c ON c.id = g.customer
  WHERE l.customer = c.number AND l.kind = g.kind AND l.priority = g.priority;
  PERFORM fairlane.write_queue(fairlane.update_kinds(q, ARRAY(SELECT DISTINCT n FROM unnest(names) AS n), -9223372036854775808), 0);
END $$;

-- Add records with the versions that they had.
CREATE FUNCTION fairlane.unpack_records(groups text[], keys text[], contents text[], versions bigint[]) RETURNS void LANGUAGE sql AS $$
  INSERT INTO fairlane.records (group_name, key, value, version)
  SELECT * FROM unnest(groups, keys, contents, versions)
  ON CONFLICT (group_name, key) DO UPDATE SET value = excluded.value, version = excluded.version
$$;
