-- server: The server's version, encoding, role and durability settings.
SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_setting('server_encoding'),
       pg_is_in_recovery(), current_setting('fsync'), current_setting('synchronous_commit'),
       current_setting('full_page_writes');

-- database: What tells this database from all others, whatever the way to it: when its server started, its name; and its address.
SELECT extract(epoch FROM pg_postmaster_start_time())::text, current_database()::text,
       coalesce(host(inet_server_addr()) || ':' || inet_server_port(), 'a local socket');

-- schema_exists: Whether the schema exists and holds a queue; from the catalogues, because to_regclass may be stale.
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s),
       EXISTS (SELECT FROM pg_class AS t JOIN pg_namespace AS n ON n.oid = t.relnamespace
               WHERE n.nspname = %s AND t.relname = 'version');

-- schema_version: The version of the schema.
SELECT version FROM fairlane.version;

-- write_schema_version: Write the version of the schema.
WITH gone AS (DELETE FROM fairlane.version) INSERT INTO fairlane.version (version) VALUES (%s);

-- short_lock_timeout: Wait only so long for a table in this transaction.
SET LOCAL lock_timeout = '500ms';

-- migration_lock: Let one process at a time create or upgrade this schema.
SELECT pg_advisory_xact_lock(hashtext('fairlane'), hashtext(%s));

-- create_schema: Create the schema.
CREATE SCHEMA IF NOT EXISTS fairlane;

-- first_rules: Write the default rules.
WITH first AS (INSERT INTO fairlane.rules (version, since_ms, body) VALUES (%s, 0, %s))
INSERT INTO fairlane.counters (revision, rules_version, interval_ms, depths, reset, dispatch, turns, open_turn_every, limits)
VALUES (1, %s, %s, %s::bigint[], %s, %s, %s, %s, ROW(%s, %s, %s, %s, %s)::fairlane.limits);

-- check: Check a customer without a document.
SELECT * FROM fairlane.check_customer(%s, %s, %s);

-- submit_one: Submit one document.
SELECT fairlane.submit_one(%s, %s, %s, %s, %s, %s, %s, %s, %s::smallint, %s, %s, %s);

-- submit: Submit documents, all or none.
SELECT * FROM fairlane.submit(%s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::text[], %s::bigint[],
                              %s::smallint[], %s::text[], %s::boolean[], %s::bigint[], %s, %s);

-- claim: Claim documents in dispatch order.
SELECT * FROM fairlane.claim(%s, %s, %s, %s::text[], %s::int[], %s, %s);

-- extend: Extend leases; returns the ordinals of lost claims.
SELECT fairlane.extend(%s::bigint[], %s::text[], %s::bigint[], %s, %s);

-- take_over: Give running claims to another worker, in order; no row for one that was lost.
SELECT t.* FROM unnest(%s::text[], %s::bigint[]) WITH ORDINALITY AS g (id, token, ordinal),
  LATERAL fairlane.take_over(g.id, g.token, %s, %s, %s) AS t ORDER BY g.ordinal;

-- settle: End claims with their outcomes; returns the ordinals of lost ones.
SELECT fairlane.settle(%s::bigint[], %s::text[], %s::bigint[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[],
                       %s::text[], %s::jsonb, %s);

-- settle_with_details: The same, and keep the details of failed attempts.
SELECT fairlane.keep_details(
  fairlane.settle(%s::bigint[], %s::text[], %s::bigint[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[],
                  %s::text[], %s::jsonb, %s),
  %s::text[], %s::bigint[], %s::text[]);

-- read_uncounted: Up to which number documents of an older version are not counted yet.
SELECT uncounted FROM fairlane.counters ORDER BY revision DESC LIMIT 1;

-- count_some: Count what some documents of an older version take; returns whether there may be more.
SELECT fairlane.count_some(%s);

-- reclaim: Take back documents whose lease ran out.
SELECT fairlane.reclaim(%s, %s);

-- cancel: Cancel documents that have not ended.
SELECT fairlane.cancel(%s::text[], %s);

-- retry: Give a failed document fresh attempts.
SELECT * FROM fairlane.retry(%s, %s, %s);

-- purge: Remove old changes, then documents that ended.
SELECT * FROM fairlane.purge(%s, %s, %s);

-- configure: Replace the rules.
SELECT fairlane.configure(%s, %s, %s, %s::bigint[], %s, %s, %s, %s, %s, ROW(%s, %s, %s, %s, %s)::fairlane.limits, %s);

-- tune: Replace a customer's terms.
SELECT fairlane.tune(%s, %s, %s, %s, %s, %s, %s, %s::bigint[], %s, ROW(%s, %s, %s, %s, %s)::fairlane.limits, %s);

-- limit_kind: Replace a kind's limit.
SELECT fairlane.limit_kind(%s, %s, %s, %s, %s, %s, %s);

-- prioritize: Set the priority of waiting documents by hand.
SELECT fairlane.prioritize(%s::text[], %s::smallint, %s, %s);

-- reprioritize: Give some waiting documents of a customer the priority that they would have now.
SELECT changed, next FROM fairlane.reprioritize(%s, %s, %s, %s, %s);

-- reset: Reset a customer as if it was never seen.
SELECT fairlane.reset_customer(%s, %s);

-- forget: Erase some of a customer's documents, or the customer if none is left.
SELECT * FROM fairlane.forget(%s, %s, %s);

-- put_record: Set or remove a record.
SELECT fairlane.put_record(%s, %s, %s, %s);

-- absorb_arrivals: Put documents that arrived inside callers' transactions into their lanes.
SELECT fairlane.settle_arrivals();

-- rules: The current rules.
SELECT version, body FROM fairlane.rules ORDER BY version DESC LIMIT 1;

-- customer: One customer with its terms and counts; whether something has arrived that is not counted yet.
SELECT q.is_behind, q.now_ms, r.version, r.body, c.counter, c.updated_ms, c.resets, c.parts, coalesce(c.terms_version, 0),
       (SELECT t.body FROM fairlane.terms AS t WHERE t.customer = c.number ORDER BY t.version DESC LIMIT 1),
       n.waiting, n.running, n.done, n.failed, n.cancelled, n.ready_ms, n.documents, n.bytes,
       (SELECT u.usual FROM fairlane.usuals AS u WHERE u.customer = c.number ORDER BY u.revision DESC LIMIT 1)
FROM (SELECT fairlane.is_behind() AS is_behind, fairlane.now_ms(%s) AS now_ms) AS q
CROSS JOIN (SELECT version, body FROM fairlane.rules ORDER BY version DESC LIMIT 1) AS r
LEFT JOIN fairlane.customers AS c ON c.id = %s
CROSS JOIN LATERAL (
  SELECT coalesce(sum(waiting), 0)::bigint AS waiting, coalesce(sum(running), 0)::bigint AS running,
         coalesce(sum(done), 0)::bigint AS done, coalesce(sum(failed), 0)::bigint AS failed,
         coalesce(sum(cancelled), 0)::bigint AS cancelled, min(ready_ms) AS ready_ms,
         coalesce(sum(documents), 0)::bigint AS documents, coalesce(sum(bytes), 0)::bigint AS bytes
  FROM fairlane.lanes AS l WHERE l.customer = c.number
) AS n;

-- customers: Customers by id with their terms and counts, a page; whether something has arrived that is not counted yet.
SELECT q.is_behind, q.now_ms, r.version, r.body, c.id, c.counter, c.updated_ms, c.resets, c.parts, c.terms_version,
       (SELECT t.body FROM fairlane.terms AS t WHERE t.customer = c.number ORDER BY t.version DESC LIMIT 1),
       n.waiting, n.running, n.done, n.failed, n.cancelled, n.ready_ms, n.documents, n.bytes,
       (SELECT u.usual FROM fairlane.usuals AS u WHERE u.customer = c.number ORDER BY u.revision DESC LIMIT 1)
FROM (SELECT fairlane.is_behind() AS is_behind, fairlane.now_ms(%s) AS now_ms) AS q
CROSS JOIN (SELECT version, body FROM fairlane.rules ORDER BY version DESC LIMIT 1) AS r
CROSS JOIN (SELECT * FROM fairlane.customers WHERE id > %s ORDER BY id LIMIT %s) AS c
CROSS JOIN LATERAL (
  SELECT coalesce(sum(waiting), 0)::bigint AS waiting, coalesce(sum(running), 0)::bigint AS running,
         coalesce(sum(done), 0)::bigint AS done, coalesce(sum(failed), 0)::bigint AS failed,
         coalesce(sum(cancelled), 0)::bigint AS cancelled, min(ready_ms) AS ready_ms,
         coalesce(sum(documents), 0)::bigint AS documents, coalesce(sum(bytes), 0)::bigint AS bytes
  FROM fairlane.lanes AS l WHERE l.customer = c.number
) AS n ORDER BY c.id;

-- document: A document as a snapshot.
SELECT * FROM fairlane.snapshots WHERE id = %s;

-- documents: A page of documents between two numbers as snapshots, newest first.
SELECT s.* FROM (
  SELECT number FROM fairlane.documents WHERE number < %(before)s
    AND (%(floor)s::bigint IS NULL OR number >= %(floor)s)
  ORDER BY number DESC LIMIT %(inner_limit)s::bigint
) AS n CROSS JOIN LATERAL (
  SELECT * FROM fairlane.snapshots AS s WHERE s.number = n.number
    AND (%(state)s::text IS NULL OR s.state = %(state)s) AND (%(kind)s::text IS NULL OR s.kind = %(kind)s)
    AND (%(reason)s::text IS NULL OR strpos(s.reason, %(reason)s) > 0)
    AND (%(since_ms)s::bigint IS NULL OR s.submitted_ms >= %(since_ms)s)
    AND (%(until_ms)s::bigint IS NULL OR s.submitted_ms < %(until_ms)s) OFFSET 0
) AS s ORDER BY n.number DESC LIMIT %(limit)s;

-- documents_of_customer: A page of a customer's documents as snapshots, newest first.
SELECT s.* FROM (
  SELECT number FROM fairlane.documents
  WHERE customer = (SELECT number FROM fairlane.customer_terms WHERE id = %(customer)s) AND number < %(before)s
    AND (%(floor)s::bigint IS NULL OR number >= %(floor)s)
  ORDER BY number DESC LIMIT %(inner_limit)s::bigint
) AS n CROSS JOIN LATERAL (
  SELECT * FROM fairlane.snapshots AS s WHERE s.number = n.number
    AND (%(state)s::text IS NULL OR s.state = %(state)s) AND (%(kind)s::text IS NULL OR s.kind = %(kind)s)
    AND (%(reason)s::text IS NULL OR strpos(s.reason, %(reason)s) > 0)
    AND (%(since_ms)s::bigint IS NULL OR s.submitted_ms >= %(since_ms)s)
    AND (%(until_ms)s::bigint IS NULL OR s.submitted_ms < %(until_ms)s) OFFSET 0
) AS s ORDER BY n.number DESC LIMIT %(limit)s;

-- documents_at_work: A page of documents of one state that have not ended as snapshots, newest first.
SELECT s.* FROM (
  SELECT number FROM (SELECT number, state FROM fairlane.work UNION ALL SELECT number, state FROM fairlane.arrivals) AS waiting_or_running
  WHERE state = %(state)s AND number < %(before)s
    AND (%(floor)s::bigint IS NULL OR number >= %(floor)s)
  ORDER BY number DESC LIMIT %(inner_limit)s::bigint
) AS n CROSS JOIN LATERAL (
  SELECT * FROM fairlane.snapshots AS s WHERE s.number = n.number
    AND (%(state)s::text IS NULL OR s.state = %(state)s) AND (%(kind)s::text IS NULL OR s.kind = %(kind)s)
    AND (%(reason)s::text IS NULL OR strpos(s.reason, %(reason)s) > 0)
    AND (%(since_ms)s::bigint IS NULL OR s.submitted_ms >= %(since_ms)s)
    AND (%(until_ms)s::bigint IS NULL OR s.submitted_ms < %(until_ms)s) OFFSET 0
) AS s ORDER BY n.number DESC LIMIT %(limit)s;

-- documents_done: A page of documents that are done as snapshots, newest first.
SELECT s.* FROM (
  SELECT number FROM fairlane.endings WHERE state = %(state)s AND number < %(before)s
    AND (%(floor)s::bigint IS NULL OR number >= %(floor)s)
  ORDER BY number DESC LIMIT %(inner_limit)s::bigint
) AS n CROSS JOIN LATERAL (
  SELECT * FROM fairlane.snapshots AS s WHERE s.number = n.number
    AND (%(state)s::text IS NULL OR s.state = %(state)s) AND (%(kind)s::text IS NULL OR s.kind = %(kind)s)
    AND (%(reason)s::text IS NULL OR strpos(s.reason, %(reason)s) > 0)
    AND (%(since_ms)s::bigint IS NULL OR s.submitted_ms >= %(since_ms)s)
    AND (%(until_ms)s::bigint IS NULL OR s.submitted_ms < %(until_ms)s) OFFSET 0
) AS s ORDER BY n.number DESC LIMIT %(limit)s;

-- documents_unhappy: A page of failed or cancelled documents as snapshots, newest first, however many others there are.
SELECT s.* FROM (
  SELECT number FROM fairlane.endings
  WHERE state IN ('failed', 'cancelled') AND state = %(state)s AND number < %(before)s
    AND (%(floor)s::bigint IS NULL OR number >= %(floor)s)
  ORDER BY number DESC LIMIT %(inner_limit)s::bigint
) AS n CROSS JOIN LATERAL (
  SELECT * FROM fairlane.snapshots AS s WHERE s.number = n.number
    AND (%(state)s::text IS NULL OR s.state = %(state)s) AND (%(kind)s::text IS NULL OR s.kind = %(kind)s)
    AND (%(reason)s::text IS NULL OR strpos(s.reason, %(reason)s) > 0)
    AND (%(since_ms)s::bigint IS NULL OR s.submitted_ms >= %(since_ms)s)
    AND (%(until_ms)s::bigint IS NULL OR s.submitted_ms < %(until_ms)s) OFFSET 0
) AS s ORDER BY n.number DESC LIMIT %(limit)s;

-- floor_of_documents: The number of the last document that is examined for one page.
SELECT number FROM fairlane.documents WHERE number < %(before)s ORDER BY number DESC LIMIT 1 OFFSET %(examined)s;

-- floor_of_customer: The same among a customer's documents.
SELECT number FROM fairlane.documents
WHERE customer = (SELECT number FROM fairlane.customer_terms WHERE id = %(customer)s) AND number < %(before)s
ORDER BY number DESC LIMIT 1 OFFSET %(examined)s;

-- floor_at_work: The same among documents that have not ended.
SELECT number FROM (SELECT number, state FROM fairlane.work UNION ALL SELECT number, state FROM fairlane.arrivals) AS waiting_or_running
WHERE number < %(before)s ORDER BY number DESC LIMIT 1 OFFSET %(examined)s;

-- floor_of_done: The same among documents that have ended.
SELECT number FROM fairlane.endings WHERE number < %(before)s ORDER BY number DESC LIMIT 1 OFFSET %(examined)s;

-- floor_of_unhappy: The same among failed or cancelled documents.
SELECT number FROM fairlane.endings
WHERE state IN ('failed', 'cancelled') AND state = %(state)s AND number < %(before)s
ORDER BY number DESC LIMIT 1 OFFSET %(examined)s;

-- body: The payload and the result of a document.
SELECT d.payload, e.result FROM fairlane.documents AS d LEFT JOIN fairlane.endings AS e ON e.number = d.number WHERE d.id = %s;

-- parts: The parts into which a document was split last, with their results.
SELECT s.*, e.result FROM fairlane.documents AS d JOIN fairlane.wholes AS o ON o.number = d.number
JOIN fairlane.parts AS p ON p.whole = o.number AND p.number >= o.parts_from
CROSS JOIN LATERAL (SELECT * FROM fairlane.snapshots AS i WHERE i.number = p.number OFFSET 0) AS s
LEFT JOIN fairlane.endings AS e ON e.number = p.number WHERE d.id = %s ORDER BY p.number;

-- outlook: What is ahead of a waiting document, and what may hold it; first whether uncounted documents have arrived.
SELECT q.is_behind, fairlane.now_ms(%s), w.priority, w.state, q.ready, q.lanes, q.busy_ms, q.taken, c.paused, c.cap,
       (SELECT coalesce(sum(l.running), 0)::bigint FROM fairlane.lanes AS l WHERE l.customer = d.customer),
       (SELECT count(*) FROM fairlane.work AS o WHERE o.customer = d.customer AND o.kind = d.kind AND o.priority = w.priority
          AND o.state = 'ready'),
       (SELECT count(*) FROM fairlane.work AS o WHERE o.customer = d.customer AND o.kind = d.kind AND o.priority = w.priority
          AND o.state = 'ready' AND o.number < d.number),
       k.running_max, k.rate, k.burst, k.running, k.tokens, k.tokens_ms
FROM fairlane.documents AS d JOIN fairlane.customer_terms AS c ON c.number = d.customer CROSS JOIN fairlane.queue AS q
LEFT JOIN fairlane.work AS w ON w.number = d.number
LEFT JOIN LATERAL (SELECT * FROM fairlane.kinds AS o WHERE o.kind = d.kind ORDER BY o.revision DESC LIMIT 1) AS k ON true
WHERE d.id = %s;

-- totals: The counts from which rates are made; first whether uncounted documents have arrived.
SELECT is_behind, busy_ms, taken, ready FROM fairlane.queue;

-- kind: A kind's limit, what runs of it, and its bucket.
SELECT k.running_max, k.rate, k.burst, coalesce(k.version, 0),
       CASE WHEN k.version > 0 THEN k.running ELSE fairlane.running_of(n.kind) END, k.tokens, k.tokens_ms
FROM (SELECT %s::text AS kind) AS n
LEFT JOIN LATERAL (SELECT * FROM fairlane.kinds AS o WHERE o.kind = n.kind ORDER BY o.revision DESC LIMIT 1) AS k ON true;

-- kinds: Kinds that have, or had, a limit, a page by name.
SELECT kind, running_max, rate, burst, version, running, tokens, tokens_ms FROM fairlane.kinds
WHERE version > 0 AND kind > %s ORDER BY kind LIMIT %s;

-- ready_kinds: The kinds that have a competing head, by skipping through the index; first whether uncounted documents arrived.
WITH RECURSIVE names AS (
  (SELECT kind FROM fairlane.lanes WHERE start IS NOT NULL AND kind > %s ORDER BY kind LIMIT 1)
  UNION ALL
  SELECT (SELECT l.kind FROM fairlane.lanes AS l WHERE l.start IS NOT NULL AND l.kind > n.kind ORDER BY l.kind LIMIT 1)
  FROM names AS n WHERE n.kind IS NOT NULL
)
SELECT a.is_behind, k.kind, k.oldest_ms FROM (SELECT fairlane.is_behind() AS is_behind) AS a
LEFT JOIN (
  SELECT o.kind, o.oldest_ms FROM names AS n CROSS JOIN LATERAL (
    SELECT * FROM fairlane.kinds AS i WHERE i.kind = n.kind ORDER BY i.revision DESC LIMIT 1) AS o
  WHERE o.first_head IS NOT NULL AND NOT o.is_blocked
) AS k ON true LIMIT %s;

-- feed_floor: Up to which number the feed was purged, and whether documents have arrived that are not in it yet.
SELECT changes_floor, is_behind FROM fairlane.queue;

-- changes: Lines of the feed, in the order of commits.
SELECT f.number, f.at_ms, f.what, (SELECT c.id FROM fairlane.customer_terms AS c WHERE c.number = f.customer),
       (SELECT d.id FROM fairlane.documents AS d WHERE d.number = f.document), f.token, f.note
FROM fairlane.changes AS f WHERE f.number > %s ORDER BY f.number LIMIT %s;

-- is_work_ready: Whether a claim may find something, and in how many milliseconds a delayed document is due or a rate allows a start.
SELECT q.is_behind OR CASE
         WHEN g.kinds IS NULL THEN EXISTS (
           SELECT FROM fairlane.kinds AS k
           WHERE k.oldest_head IS NOT NULL AND NOT k.is_blocked AND (k.oldest_ms, k.oldest_head) >= (q.ages_floor, q.ages_head))
         ELSE EXISTS (SELECT FROM unnest(g.kinds) AS n (kind) CROSS JOIN LATERAL (
           SELECT * FROM fairlane.kinds AS k WHERE k.kind = n.kind ORDER BY k.revision DESC LIMIT 1) AS o
           WHERE o.first_head IS NOT NULL AND NOT o.is_blocked)
       END,
       least((SELECT w.ready_ms FROM fairlane.work AS w WHERE w.state = 'delayed' AND w.ready_ms >= q.delayed_floor
              ORDER BY w.ready_ms, w.number LIMIT 1),
             CASE WHEN g.kinds IS NULL THEN (
               SELECT min(k.opens_ms) FROM fairlane.kinds AS k WHERE k.opens_ms >= q.opens_next AND k.first_head IS NOT NULL)
             ELSE (SELECT min(o.opens_ms) FROM unnest(g.kinds) AS n (kind) CROSS JOIN LATERAL (
               SELECT * FROM fairlane.kinds AS k WHERE k.kind = n.kind ORDER BY k.revision DESC LIMIT 1) AS o
               WHERE o.first_head IS NOT NULL)
             END) - fairlane.now_ms(NULL)
FROM fairlane.queue AS q CROSS JOIN (SELECT %s::text[] AS kinds) AS g;

-- record: A record.
SELECT group_name, key, value, version FROM fairlane.records WHERE group_name = %s AND key = %s;

-- records: The records of a group by key, a page.
SELECT group_name, key, value, version FROM fairlane.records WHERE group_name = %s AND key > %s ORDER BY key LIMIT %s;

-- pack_queue: The queue's own counters.
SELECT q.clocks, q.usual, q.busy_ms, q.taken, q.ready, q.ticked_ms, CASE WHEN n.is_called THEN n.last_value ELSE 0 END, q.last_change,
       q.last_record
FROM fairlane.queue AS q CROSS JOIN fairlane.numbers AS n;

-- pack_dispatches: How many documents were taken, by set of kinds.
SELECT kinds, number FROM fairlane.dispatches;

-- pack_kinds: Kinds that have a limit or a clock that moved, by name.
SELECT kind, running_max, rate, burst, version, tokens, tokens_ms, clocks FROM fairlane.kinds
WHERE kind > %s AND (version > 0 OR clocks <> '{0,0,0,0,0,0,0,0,0}') ORDER BY kind LIMIT %s;

-- pack_customers: Customers by id with their terms and counts of ended documents.
SELECT c.id, c.counter, c.updated_ms, c.resets, c.parts, c.terms_version,
       (SELECT t.body FROM fairlane.terms AS t WHERE t.customer = c.number ORDER BY t.version DESC LIMIT 1), n.done, n.failed, n.cancelled,
       (SELECT u.usual FROM fairlane.usuals AS u WHERE u.customer = c.number ORDER BY u.revision DESC LIMIT 1)
FROM (SELECT * FROM fairlane.customers WHERE id > %s ORDER BY id LIMIT %s) AS c
CROSS JOIN LATERAL (
  SELECT coalesce(sum(done), 0)::bigint AS done, coalesce(sum(failed), 0)::bigint AS failed,
         coalesce(sum(cancelled), 0)::bigint AS cancelled
  FROM fairlane.lanes AS l WHERE l.customer = c.number
) AS n ORDER BY c.id;

-- pack_documents: Documents with all that is stored of them, oldest first.
SELECT s.*, d.digest, d.weight, d.resets, d.payload, e.result, r.root,
       coalesce((SELECT f.descendants FROM fairlane.families AS f WHERE f.root = coalesce(r.root, d.number)), 0),
       coalesce((SELECT o.parts_from FROM fairlane.wholes AS o WHERE o.number = d.number), 0)
FROM (SELECT number FROM fairlane.documents WHERE number > %s ORDER BY number LIMIT %s) AS page
JOIN fairlane.snapshots AS s ON s.number = page.number JOIN fairlane.documents AS d ON d.number = page.number
LEFT JOIN fairlane.endings AS e ON e.number = page.number LEFT JOIN fairlane.descendants AS r ON r.number = page.number
ORDER BY page.number;

-- pack_lanes: The tags of lanes by customer, kind and priority, as they are if no kind is at its limit.
SELECT p.* FROM (
  SELECT c.id, l.kind, l.priority, l.start,
         CASE WHEN l.start IS NULL OR q.dispatch = 'strict' THEN 0 WHEN k.is_blocked THEN greatest(q.clocks[l.priority], l.cross_finish)
              ELSE greatest(l.cross_tag, k.floors[l.priority]) END,
         CASE WHEN v.is_level THEN 0 ELSE l.finish END AS finish, CASE WHEN v.is_level THEN 0 ELSE l.cross_finish END AS cross_finish
  FROM fairlane.customer_terms AS c JOIN fairlane.lanes AS l ON l.customer = c.number CROSS JOIN fairlane.queue AS q
  CROSS JOIN LATERAL (SELECT * FROM fairlane.kinds AS o WHERE o.kind = l.kind ORDER BY o.revision DESC LIMIT 1) AS k
  CROSS JOIN LATERAL (
    SELECT l.finish <= k.clocks[l.priority] AND l.cross_finish <= q.clocks[l.priority] AS is_level) AS v
  WHERE (c.id, l.kind, l.priority) > (%s, %s, %s)
) AS p WHERE p.start IS NOT NULL OR p.finish > 0 OR p.cross_finish > 0 ORDER BY p.id, p.kind, p.priority LIMIT %s;

-- pack_records: Records by group and key.
SELECT group_name, key, value, version FROM fairlane.records WHERE (group_name, key) > (%s, %s) ORDER BY group_name, key LIMIT %s;

-- unpack_queue: Replace the queue's counters and rules by another queue's.
SELECT fairlane.unpack_queue(%s, %s, %s, %s::bigint[], %s, %s, %s, %s, %s, ROW(%s, %s, %s, %s, %s)::fairlane.limits, %s::bigint[],
                             %s, %s, %s::bigint[], %s, %s, %s, %s);

-- unpack_dispatches: Set how many documents a set of kinds was given.
SELECT fairlane.unpack_dispatches(%s::text[], %s);

-- unpack_kind: Add a kind from another store.
SELECT fairlane.unpack_kind(%s, %s, %s, %s, %s, %s, %s, %s::bigint[]);

-- unpack_customer: Add a customer from another store.
SELECT fairlane.unpack_customer(%s, %s, %s, %s, %s::bigint[], %s, %s, %s, %s, %s, %s, %s::bigint[], %s,
                                ROW(%s, %s, %s, %s, %s)::fairlane.limits, %s, %s, %s, %s);

-- unpack_documents: Add documents from another store.
SELECT fairlane.unpack_documents(%s::jsonb);

-- unpack_lanes: Set the tags of lanes from another store.
SELECT fairlane.unpack_lanes(%s::text[], %s::text[], %s::smallint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[]);

-- unpack_records: Add records from another store.
SELECT fairlane.unpack_records(%s::text[], %s::text[], %s::text[], %s::bigint[]);

-- server_ms: The server's clock.
SELECT fairlane.now_ms(NULL);

-- index_names: The indexes of the schema.
SELECT indexname FROM pg_indexes WHERE schemaname = %s;

-- open_transactions: Sessions and prepared transactions that keep old row versions of this database for long, oldest first.
SELECT o.who, o.state, extract(epoch FROM clock_timestamp() - o.since)::float8 FROM (
  SELECT format('session %%s of user %%s (%%s)', pid, usename, coalesce(nullif(application_name, ''), host(client_addr), 'local')) AS who,
         coalesce(state, 'active') AS state, xact_start AS since
  FROM pg_stat_activity
  WHERE datname = current_database() AND pid <> pg_backend_pid() AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
    AND backend_type = 'client backend'
  UNION ALL
  SELECT format('prepared transaction %%s of user %%s', gid, owner), 'prepared', prepared FROM pg_prepared_xacts
  WHERE database = current_database()
) AS o WHERE o.since < clock_timestamp() - make_interval(secs => %s) ORDER BY o.since;

-- rewrite_payload: Replace texts that are still what they were, while the queue is locked.
UPDATE fairlane.documents AS d SET payload = t.after
FROM (SELECT fairlane.settle_arrivals()) AS q, unnest(%s::bigint[], %s::text[], %s::text[]) AS t (number, before, after)
WHERE d.number = t.number AND d.payload = t.before RETURNING 1;

-- rewrite_result: Replace texts that are still what they were, while the queue is locked.
UPDATE fairlane.endings AS d SET result = t.after
FROM (SELECT fairlane.settle_arrivals()) AS q, unnest(%s::bigint[], %s::text[], %s::text[]) AS t (number, before, after)
WHERE d.number = t.number AND d.result = t.before RETURNING 1;

-- rewrite_reason: Replace texts that are still what they were, while the queue is locked.
UPDATE fairlane.endings AS d SET reason = t.after
FROM (SELECT fairlane.settle_arrivals()) AS q, unnest(%s::bigint[], %s::text[], %s::text[]) AS t (number, before, after)
WHERE d.number = t.number AND d.reason = t.before RETURNING 1;

-- rewrite_digest: Replace texts that are still what they were, while the queue is locked.
UPDATE fairlane.documents AS d SET digest = t.after
FROM (SELECT fairlane.settle_arrivals()) AS q, unnest(%s::bigint[], %s::text[], %s::text[]) AS t (number, before, after)
WHERE d.number = t.number AND d.digest = t.before RETURNING 1;

-- rewrite_note: Replace texts that are still what they were, while the queue is locked.
UPDATE fairlane.changes AS d SET note = t.after
FROM (SELECT fairlane.settle_arrivals()) AS q, unnest(%s::bigint[], %s::text[], %s::text[]) AS t (number, before, after)
WHERE d.number = t.number AND d.note = t.before RETURNING 1;
