-- Limits: what a customer has, whether more would be over its limits, and families of documents.

-- Return the limits that hold for a customer: its own, else everybody's.
CREATE FUNCTION fairlane.limits_of(own fairlane.limits, everybody fairlane.limits) RETURNS fairlane.limits LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN own IS NULL THEN everybody ELSE ROW(
    coalesce(own.waiting_max, everybody.waiting_max), coalesce(own.descendants_max, everybody.descendants_max),
    coalesce(own.documents_max, everybody.documents_max), coalesce(own.bytes_max, everybody.bytes_max),
    coalesce(own.retries_max, everybody.retries_max))::fairlane.limits END
$$;

-- Return what a customer has. Its lanes are read one by one, the newest revision of each, past the old versions of their rows;
-- and what has arrived is not in a lane yet. One statement, so that nothing is counted twice.
CREATE FUNCTION fairlane.usage_of(owner bigint, OUT waiting bigint, OUT running bigint, OUT documents bigint, OUT bytes bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  WITH RECURSIVE own AS (
    (SELECT l.kind, l.priority, l.waiting, l.running, l.documents, l.bytes FROM fairlane.lanes AS l WHERE l.customer = owner
     ORDER BY l.kind DESC, l.priority DESC, l.revision DESC LIMIT 1)
    UNION ALL
    SELECT n.* FROM own AS o CROSS JOIN LATERAL (
      SELECT l.kind, l.priority, l.waiting, l.running, l.documents, l.bytes FROM fairlane.lanes AS l
      WHERE l.customer = owner AND (l.kind, l.priority) < (o.kind, o.priority)
      ORDER BY l.kind DESC, l.priority DESC, l.revision DESC LIMIT 1
    ) AS n
  ), looked AS (
    SELECT o.awaited, CASE WHEN o.arrivals_floor > pg_snapshot_xmax(pg_current_snapshot()) THEN '0' ELSE o.arrivals_floor END AS floor
    FROM fairlane.counters AS o ORDER BY o.revision DESC LIMIT 1
  ), arrived AS (
    SELECT a.number FROM looked AS o JOIN fairlane.arrivals AS a ON a.xid >= o.floor
    UNION SELECT a.number FROM looked AS o JOIN fairlane.arrivals AS a ON a.xid = ANY (o.awaited)
  )
  SELECT coalesce(sum(t.waiting), 0), coalesce(sum(t.running), 0), coalesce(sum(t.documents), 0), coalesce(sum(t.bytes), 0)
  INTO waiting, running, documents, bytes
  FROM (
    SELECT l.waiting, l.running, l.documents, l.bytes FROM own AS l
    UNION ALL SELECT 1, 0, 1, d.bytes FROM arrived AS a CROSS JOIN LATERAL (
      SELECT * FROM fairlane.documents AS o WHERE o.number = a.number OFFSET 0) AS d WHERE d.customer = owner
  ) AS t;
END $$;

-- Return which limit more documents of a customer would exceed, with the figures; NULL if none. If many are known to wait or run,
-- they have been counted now.
CREATE FUNCTION fairlane.over_limit(c fairlane.customers, most fairlane.limits, adding bigint, adding_bytes bigint) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  usage record;
BEGIN
  SELECT * INTO usage FROM fairlane.usage_of(c.number);
  IF usage.waiting + adding > most.waiting_max THEN
    RETURN ARRAY['waiting_max', c.id, usage.waiting::text, adding::text, most.waiting_max::text];
  ELSIF usage.documents + adding > most.documents_max THEN
    RETURN ARRAY['documents_max', c.id, usage.documents::text, adding::text, most.documents_max::text];
  ELSIF usage.bytes + adding_bytes > most.bytes_max THEN
    RETURN ARRAY['bytes_max', c.id, usage.bytes::text, adding_bytes::text, most.bytes_max::text];
  END IF;
  IF c.busy_most IS NULL OR c.busy_most + adding > most.waiting_max THEN
    UPDATE fairlane.standings SET busy_most = usage.waiting + usage.running WHERE customer = c.number AND revision = c.revision;
  END IF;
  RETURN NULL;
END $$;

-- Return which limit the new documents of a batch would exceed, with the figures: a family's first, then a customer's.
CREATE FUNCTION fairlane.find_over_limit(
  q fairlane.queue, customers text[], payloads text[], files bigint[], sources text[], firsts bigint[]
) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  over text[];
  each record;
BEGIN
  IF sources IS NOT NULL THEN
    SELECT ARRAY['descendants_max', f.sources[1], f.used::text, f.adding::text, f.most::text] INTO over FROM (
      SELECT min(g.ordinal) AS ordinal, count(*) AS adding, array_agg(g.source ORDER BY g.ordinal) AS sources,
        min((fairlane.limits_of(c.limits, q.limits)).descendants_max) AS most, coalesce(min(r.descendants), 0) AS used
      FROM unnest(sources, firsts) WITH ORDINALITY AS g (source, first, ordinal)
      JOIN fairlane.documents AS d ON d.id = g.source JOIN fairlane.customer_terms AS c ON c.number = d.customer
      LEFT JOIN fairlane.descendants AS s ON s.number = d.number
      LEFT JOIN fairlane.families AS r ON r.root = coalesce(s.root, d.number)
      WHERE coalesce(g.first, g.ordinal) = g.ordinal GROUP BY coalesce(s.root, d.number)
    ) AS f WHERE f.used + f.adding > f.most ORDER BY f.ordinal LIMIT 1;
  END IF;
  FOR each IN
    SELECT g.customer, g.adding, o.busy_most,
      CASE WHEN o.limits IS NULL THEN q.limits ELSE fairlane.limits_of(o.limits, q.limits) END AS most
    FROM (SELECT n.customer, count(*) AS adding, min(n.ordinal) AS ordinal
      FROM unnest(customers, firsts) WITH ORDINALITY AS n (customer, first, ordinal)
      WHERE over IS NULL AND coalesce(n.first, n.ordinal) = n.ordinal GROUP BY 1
    ) AS g CROSS JOIN LATERAL (SELECT * FROM fairlane.customers AS c WHERE c.id = g.customer OFFSET 0) AS o ORDER BY g.ordinal
  LOOP
    IF each.busy_most IS NULL OR each.busy_most + each.adding > (each.most).waiting_max
      OR (each.most).documents_max IS NOT NULL OR (each.most).bytes_max IS NOT NULL
    THEN
      SELECT fairlane.over_limit(o, each.most, each.adding, (
          SELECT sum(octet_length(n.payload) + coalesce(n.file, 0))
          FROM unnest(customers, payloads, files, firsts) WITH ORDINALITY AS n (customer, payload, file, first, ordinal)
          WHERE n.customer = each.customer AND coalesce(n.first, n.ordinal) = n.ordinal)::bigint)
      INTO over FROM fairlane.customers AS o WHERE o.id = each.customer;
      EXIT WHEN over IS NOT NULL;
    END IF;
  END LOOP;
  RETURN over;
END $$;

-- Count documents no longer among their families that are deleted, and delete families of which nothing is left. A family that is
-- locked gets another document just now.
CREATE FUNCTION fairlane.leave_families(removed bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  roots bigint[] := ARRAY(
    SELECT DISTINCT coalesce(d.root, n.number) FROM unnest(removed) AS n (number) LEFT JOIN fairlane.descendants AS d ON d.number = n.number);
BEGIN
  DELETE FROM fairlane.descendants WHERE number = ANY (removed);
  roots := ARRAY(SELECT f.root FROM fairlane.families AS f WHERE f.root = ANY (roots) FOR UPDATE SKIP LOCKED);
  DELETE FROM fairlane.families AS f WHERE f.root = ANY (roots)
    AND NOT EXISTS (SELECT FROM fairlane.descendants AS d WHERE d.root = f.root)
    AND NOT EXISTS (SELECT FROM fairlane.documents AS d WHERE d.number = f.root);
END $$;

-- Return what the deletion of documents does to the counts of what is kept; those that are not counted yet do nothing.
CREATE FUNCTION fairlane.uncount(q fairlane.queue, removed bigint[]) RETURNS fairlane.lane_change[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY(
    SELECT (s.number, s.customer, s.kind, s.priority, 0, 0, 0, 0, 0, 0, -1, -s.bytes, NULL)::fairlane.lane_change
    FROM fairlane.sizes AS s WHERE s.number = ANY (removed) AND s.number > q.uncounted);
END $$;

-- Count what documents take that an older version stored, newest first, at most `max_count`; returns whether there may be more.
CREATE FUNCTION fairlane.count_some(max_count int) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  q fairlane.queue := fairlane.lock_queue();
  lane_changes fairlane.lane_change[];
  last bigint;
BEGIN
  SELECT array_agg((s.number, s.customer, s.kind, s.priority, 0, 0, 0, 0, 0, 0, 1, s.bytes, NULL)::fairlane.lane_change), min(s.number)
  INTO lane_changes, last
  FROM (SELECT d.number FROM fairlane.documents AS d WHERE d.number <= q.uncounted ORDER BY d.number DESC LIMIT max_count) AS n
  CROSS JOIN LATERAL (SELECT * FROM fairlane.sizes AS o WHERE o.number = n.number OFFSET 0) AS s;
  IF lane_changes IS NOT NULL THEN
    PERFORM fairlane.write_queue(fairlane.update_lanes(q, lane_changes, NULL), 0);
  END IF;
  UPDATE fairlane.counters AS o SET revision = o.revision + 1,
    uncounted = CASE WHEN cardinality(lane_changes) = max_count THEN last - 1 ELSE 0 END
  WHERE o.revision = (SELECT max(r.revision) FROM fairlane.counters AS r);
  RETURN coalesce(cardinality(lane_changes), 0) = max_count AND last > 1;
END $$;
