-- server: The server's version, encoding, role and durability settings.
SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_setting('server_encoding'),
       pg_is_in_recovery(), current_setting('fsync'), current_setting('synchronous_commit'),
       current_setting('full_page_writes');

-- schema_exists: Whether the schema exists and holds a queue; from the catalogues, because to_regclass may be stale.
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s),
       EXISTS (SELECT FROM pg_class AS t JOIN pg_namespace AS n ON n.oid = t.relnamespace
               WHERE n.nspname = %s AND t.relname = 'version');

-- schema_version: The version of the schema.
SELECT version FROM fairlane.version;

-- write_schema_version: Write the version of the schema.
WITH gone AS (DELETE FROM fairlane.version) INSERT INTO fairlane.version (version) VALUES (%s);

-- migration_lock: Let one process at a time create or upgrade this schema.
SELECT pg_advisory_xact_lock(hashtext('fairlane'), hashtext(%s));

-- create_schema: Create the schema.
CREATE SCHEMA IF NOT EXISTS fairlane;

-- first_rules: Write the default rules.
WITH first AS (INSERT INTO fairlane.rules (version, since_ms, body) VALUES (%s, 0, %s))
INSERT INTO fairlane.queue (rules_version, interval_ms, depths, reset, dispatch, open_turn_every)
VALUES (%s, %s, %s::bigint[], %s, %s, %s);

-- check: Check a customer without a document.
SELECT * FROM fairlane.check_customer(%s, %s, %s);

-- submit_one: Submit one document.
SELECT fairlane.submit_one(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- submit: Submit documents, all or none.
SELECT * FROM fairlane.submit(%s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::text[], %s::bigint[],
                              %s::text[], %s, %s);

-- claim: Claim documents in dispatch order.
SELECT * FROM fairlane.claim(%s, %s, %s, %s::text[], %s::int[], %s, %s);

-- extend: Extend leases; returns the ordinals of lost claims.
SELECT fairlane.extend(%s::bigint[], %s::text[], %s::bigint[], %s, %s);

-- settle: End claims with their outcomes; returns the ordinals of lost ones.
SELECT fairlane.settle(%s::bigint[], %s::text[], %s::bigint[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s);

-- reclaim: Take back documents whose lease ran out.
SELECT fairlane.reclaim(%s, %s);

-- cancel: Cancel documents that have not ended.
SELECT fairlane.cancel(%s::text[], %s);

-- retry: Give a failed document fresh attempts.
SELECT fairlane.retry(%s, %s);

-- purge: Remove old changes, then documents that ended.
SELECT * FROM fairlane.purge(%s, %s, %s);

-- configure: Replace the rules.
SELECT fairlane.configure(%s, %s, %s, %s::bigint[], %s, %s, %s, %s, %s);

-- tune: Replace a customer's terms.
SELECT fairlane.tune(%s, %s, %s, %s, %s, %s, %s, %s::bigint[], %s, %s);

-- reset: Reset a customer as if it was never seen.
SELECT fairlane.reset_customer(%s, %s);

-- forget: Erase some of a customer's documents, or the customer if none is left.
SELECT fairlane.forget(%s, %s, %s);

-- put_record: Set or remove a record.
SELECT fairlane.put_record(%s, %s, %s, %s);

-- absorb_arrivals: Put documents that arrived inside callers' transactions into their lanes.
SELECT fairlane.settle_arrivals();

-- rules: The current rules.
SELECT version, body FROM fairlane.rules ORDER BY version DESC LIMIT 1;

-- customer: One customer with its terms and counts; whether something has arrived that is not counted yet.
SELECT q.is_behind, q.now_ms, r.version, r.body, c.counter, c.updated_ms, c.reset_ms, c.resets, coalesce(c.terms_version, 0),
       (SELECT t.body FROM fairlane.terms AS t WHERE t.customer = c.number ORDER BY t.version DESC LIMIT 1),
       n.waiting, n.running, n.done, n.failed, n.cancelled, n.ready_ms
FROM (SELECT EXISTS (SELECT FROM fairlane.arrivals) AS is_behind, fairlane.now_ms(%s) AS now_ms) AS q
CROSS JOIN (SELECT version, body FROM fairlane.rules ORDER BY version DESC LIMIT 1) AS r
LEFT JOIN fairlane.customers AS c ON c.id = %s
CROSS JOIN LATERAL (
  SELECT coalesce(sum(waiting), 0)::bigint AS waiting, coalesce(sum(running), 0)::bigint AS running,
         coalesce(sum(done), 0)::bigint AS done, coalesce(sum(failed), 0)::bigint AS failed,
         coalesce(sum(cancelled), 0)::bigint AS cancelled, min(ready_ms) AS ready_ms
  FROM fairlane.lanes AS l WHERE l.customer = c.number
) AS n;

-- customers: Customers by id with their terms and counts, a page; whether something has arrived that is not counted yet.
SELECT q.is_behind, q.now_ms, r.version, r.body, c.id, c.counter, c.updated_ms, c.reset_ms, c.resets, c.terms_version,
       (SELECT t.body FROM fairlane.terms AS t WHERE t.customer = c.number ORDER BY t.version DESC LIMIT 1),
       n.waiting, n.running, n.done, n.failed, n.cancelled, n.ready_ms
FROM (SELECT EXISTS (SELECT FROM fairlane.arrivals) AS is_behind, fairlane.now_ms(%s) AS now_ms) AS q
CROSS JOIN (SELECT version, body FROM fairlane.rules ORDER BY version DESC LIMIT 1) AS r
CROSS JOIN (SELECT * FROM fairlane.customers WHERE id > %s ORDER BY id LIMIT %s) AS c
CROSS JOIN LATERAL (
  SELECT coalesce(sum(waiting), 0)::bigint AS waiting, coalesce(sum(running), 0)::bigint AS running,
         coalesce(sum(done), 0)::bigint AS done, coalesce(sum(failed), 0)::bigint AS failed,
         coalesce(sum(cancelled), 0)::bigint AS cancelled, min(ready_ms) AS ready_ms
  FROM fairlane.lanes AS l WHERE l.customer = c.number
) AS n ORDER BY c.id;

-- document: A document as a snapshot.
SELECT * FROM fairlane.snapshots WHERE id = %s;

-- documents: Documents as snapshots, newest first.
SELECT * FROM fairlane.snapshots WHERE number < %s ORDER BY number DESC LIMIT %s;

-- documents_of_customer: A customer's documents as snapshots, newest first.
SELECT * FROM fairlane.snapshots
WHERE customer_number = (SELECT number FROM fairlane.customers WHERE id = %s) AND (%s::text IS NULL OR state = %s)
  AND number < %s ORDER BY number DESC LIMIT %s;

-- documents_at_work: Documents of one state that have not ended as snapshots, newest first.
SELECT s.* FROM (
  SELECT number FROM (SELECT number, state FROM fairlane.work UNION ALL SELECT number, state FROM fairlane.arrivals) AS waiting_or_running
  WHERE state = %s AND number < %s ORDER BY number DESC LIMIT %s
) AS w JOIN fairlane.snapshots AS s ON s.number = w.number ORDER BY s.number DESC;

-- documents_done: Documents that are done as snapshots, newest first.
SELECT s.* FROM (
  SELECT number FROM fairlane.endings WHERE state = %s AND number < %s ORDER BY number DESC LIMIT %s
) AS e JOIN fairlane.snapshots AS s ON s.number = e.number ORDER BY s.number DESC;

-- documents_unhappy: Failed or cancelled documents as snapshots, newest first, however many others there are.
SELECT s.* FROM (
  SELECT number FROM fairlane.endings WHERE state IN ('failed', 'cancelled') AND state = %s AND number < %s
  ORDER BY number DESC LIMIT %s
) AS e JOIN fairlane.snapshots AS s ON s.number = e.number ORDER BY s.number DESC;

-- body: The payload and the result of a document.
SELECT d.payload, e.result FROM fairlane.documents AS d LEFT JOIN fairlane.endings AS e ON e.number = d.number WHERE d.id = %s;

-- outlook: What is ahead of a waiting document; first whether uncounted documents have arrived.
SELECT EXISTS (SELECT FROM fairlane.arrivals), fairlane.now_ms(%s), d.priority, w.state, q.ready, q.lanes, q.dispatches,
       q.pace_from_ms, q.pace_from_dispatches, q.pace_mid_ms, q.pace_mid_dispatches, c.paused, c.cap,
       (SELECT coalesce(sum(l.running), 0)::bigint FROM fairlane.lanes AS l WHERE l.customer = d.customer),
       (SELECT count(*) FROM fairlane.work AS o WHERE o.customer = d.customer AND o.kind = d.kind AND o.priority = d.priority
          AND o.state = 'ready'),
       (SELECT count(*) FROM fairlane.work AS o WHERE o.customer = d.customer AND o.kind = d.kind AND o.priority = d.priority
          AND o.state = 'ready' AND o.number < d.number),
       (SELECT min(l.ready_ms) FROM fairlane.lanes AS l WHERE l.kind = d.kind AND l.start IS NOT NULL)
FROM fairlane.documents AS d JOIN fairlane.customers AS c ON c.number = d.customer CROSS JOIN fairlane.queue AS q
LEFT JOIN fairlane.work AS w ON w.number = d.number WHERE d.id = %s;

-- feed_floor: Up to which number the feed was purged, and whether documents have arrived that are not in it yet.
SELECT changes_floor, EXISTS (SELECT FROM fairlane.arrivals) FROM fairlane.queue;

-- changes: Lines of the feed, in the order of commits.
SELECT f.number, f.at_ms, f.what, (SELECT c.id FROM fairlane.customers AS c WHERE c.number = f.customer),
       (SELECT d.id FROM fairlane.documents AS d WHERE d.number = f.document), f.token, f.note
FROM fairlane.changes AS f WHERE f.number > %s ORDER BY f.number LIMIT %s;

-- is_work_ready: Whether a claim may find something, and in how many milliseconds the next delayed document is due.
SELECT EXISTS (SELECT FROM fairlane.arrivals)
         OR EXISTS (SELECT FROM fairlane.lanes WHERE start IS NOT NULL AND (%s::text[] IS NULL OR kind = ANY (%s::text[]))),
       (SELECT ready_ms FROM fairlane.work WHERE state = 'delayed' ORDER BY ready_ms, number LIMIT 1) - fairlane.now_ms(NULL);

-- record: A record.
SELECT group_name, key, value, version FROM fairlane.records WHERE group_name = %s AND key = %s;

-- records: The records of a group by key, a page.
SELECT group_name, key, value, version FROM fairlane.records WHERE group_name = %s AND key > %s ORDER BY key LIMIT %s;

-- pack_queue: The queue's own counters.
SELECT q.clocks, q.dispatches, CASE WHEN n.is_called THEN n.last_value ELSE 0 END, q.last_change, q.last_record
FROM fairlane.queue AS q CROSS JOIN fairlane.numbers AS n;

-- pack_customers: Customers by id with their terms and counts of ended documents.
SELECT c.id, c.counter, c.updated_ms, c.reset_ms, c.resets, c.terms_version,
       (SELECT t.body FROM fairlane.terms AS t WHERE t.customer = c.number ORDER BY t.version DESC LIMIT 1), n.done, n.failed, n.cancelled
FROM (SELECT * FROM fairlane.customers WHERE id > %s ORDER BY id LIMIT %s) AS c
CROSS JOIN LATERAL (
  SELECT coalesce(sum(done), 0)::bigint AS done, coalesce(sum(failed), 0)::bigint AS failed,
         coalesce(sum(cancelled), 0)::bigint AS cancelled
  FROM fairlane.lanes AS l WHERE l.customer = c.number
) AS n ORDER BY c.id;

-- pack_documents: Documents with all that is stored of them, oldest first.
SELECT s.*, d.digest, d.weight, d.resets, d.payload, e.result
FROM (SELECT number FROM fairlane.documents WHERE number > %s ORDER BY number LIMIT %s) AS page
JOIN fairlane.snapshots AS s ON s.number = page.number JOIN fairlane.documents AS d ON d.number = page.number
LEFT JOIN fairlane.endings AS e ON e.number = page.number ORDER BY page.number;

-- pack_lanes: The tags of lanes by customer, kind and priority.
SELECT c.id, l.kind, l.priority, l.start, l.finish FROM fairlane.customers AS c JOIN fairlane.lanes AS l ON l.customer = c.number
WHERE (c.id, l.kind, l.priority) > (%s, %s, %s) AND (l.start IS NOT NULL OR l.finish > 0)
ORDER BY c.id, l.kind, l.priority LIMIT %s;

-- pack_records: Records by group and key.
SELECT group_name, key, value, version FROM fairlane.records WHERE (group_name, key) > (%s, %s) ORDER BY group_name, key LIMIT %s;

-- unpack_queue: Replace the queue's counters and rules by another queue's.
SELECT fairlane.unpack_queue(%s, %s, %s, %s::bigint[], %s, %s, %s, %s, %s::bigint[], %s, %s, %s, %s);

-- unpack_customer: Add a customer from another store.
SELECT fairlane.unpack_customer(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::bigint[], %s, %s, %s, %s);

-- unpack_documents: Add documents from another store.
SELECT fairlane.unpack_documents(%s::jsonb);

-- unpack_lanes: Set the tags of lanes from another store.
SELECT fairlane.unpack_lanes(%s::text[], %s::text[], %s::smallint[], %s::bigint[], %s::bigint[]);

-- unpack_records: Add records from another store.
SELECT fairlane.unpack_records(%s::text[], %s::text[], %s::text[], %s::bigint[]);

-- server_ms: The server's clock.
SELECT fairlane.now_ms(NULL);

-- index_names: The indexes of the schema.
SELECT indexname FROM pg_indexes WHERE schemaname = %s;
