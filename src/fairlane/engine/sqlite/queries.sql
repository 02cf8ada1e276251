-- read_queue: Where the queue's own counters stand.
SELECT dispatches, last_number, last_change, changes_floor, last_record, tunings,
       pace_from_ms, pace_from_dispatches, pace_mid_ms, pace_mid_dispatches
FROM queue;

-- write_queue: The queue's own counters after this transaction.
UPDATE queue SET dispatches = ?, last_number = ?, last_change = ?, changes_floor = ?, last_record = ?, tunings = ?,
       pace_from_ms = ?, pace_from_dispatches = ?, pace_mid_ms = ?, pace_mid_dispatches = ?;

-- read_queue_and_rules: Where the queue's own counters stand, and the rules that hold now.
SELECT dispatches, last_number, last_change, changes_floor, last_record, tunings,
       pace_from_ms, pace_from_dispatches, pace_mid_ms, pace_mid_dispatches, version, body
FROM queue JOIN rules ORDER BY version DESC LIMIT 1;

-- read_priority: A priority's clock and what is ready in it.
SELECT clock, ready, lanes FROM priorities WHERE priority = ?;

-- read_priorities: What is ready in every priority, and in how many lanes.
SELECT ready, lanes FROM priorities ORDER BY priority;

-- write_priority: One priority after this transaction.
UPDATE priorities SET clock = ?, ready = ?, lanes = ? WHERE priority = ?;

-- rules_version: The version of the rules that hold now.
SELECT max(version) FROM rules;

-- rules_body: The rules that hold now.
SELECT version, body FROM rules ORDER BY version DESC LIMIT 1;

-- add_rules: Another version of the rules.
INSERT INTO rules (version, since_ms, body) VALUES (?, ?, ?);

-- account_by_id: A customer, by its id.
SELECT * FROM customers WHERE id = ?;

-- accounts_after: Customers by id, a page.
SELECT * FROM customers WHERE id > ? ORDER BY id LIMIT ?;

-- add_account: A customer seen for the first time.
INSERT INTO customers (id) VALUES (?);

-- write_account: A customer after this transaction.
UPDATE customers SET counter = ?, updated_ms = ?, reset_ms = ?, resets = ? WHERE number = ?;

-- read_terms: The terms that hold for a customer now.
SELECT version, body FROM terms WHERE customer = ? ORDER BY version DESC LIMIT 1;

-- add_terms: Another version of a customer's terms.
INSERT INTO terms (customer, version, since_ms, body) VALUES (?, ?, ?, ?);

-- drop_account: A customer is forgotten: its row.
DELETE FROM customers WHERE number = ?;

-- drop_terms: A customer is forgotten: its terms.
DELETE FROM terms WHERE customer = ?;

-- drop_lanes: A customer is forgotten: its lanes.
DELETE FROM lanes WHERE customer = ?;

-- drop_changes: A customer is forgotten: its lines of the feed.
DELETE FROM changes WHERE customer = ?;

-- known_key: The document that an idempotency key belongs to.
SELECT number, digest, (SELECT id FROM documents AS d WHERE d.number = k.number) FROM keys AS k WHERE customer = ? AND key = ?;

-- add_key: An idempotency key and its document.
INSERT INTO keys (customer, key, number, digest) VALUES (?, ?, ?, ?);

-- drop_key: The key goes with its document.
DELETE FROM keys WHERE customer = ? AND key = ?;

-- add_document: A document with the check that made it.
INSERT INTO documents (number, id, customer, customer_id, kind, state, priority, counter, checked_ms, policy_version, terms_version,
       weight, resets, cost, key, ready_ms, attempts, attempts_max, token)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0);

-- add_payload: What was handed in.
INSERT INTO payloads (number, body) VALUES (?, ?);

-- add_result: What came out.
INSERT INTO results (number, body) VALUES (?, ?);

-- add_change: A line of the feed.
INSERT INTO changes (number, at_ms, what, customer, document, token, note) VALUES (?, ?, ?, ?, ?, ?, ?);

-- read_receipt: The receipt of a document that is already there.
SELECT id, number, customer_id, priority, counter, checked_ms, policy_version, terms_version FROM documents WHERE number = ?;

-- read_source: What a document made from this one inherits.
SELECT customer_id, priority, counter, policy_version, terms_version FROM documents WHERE id = ?;

-- read_lane: One lane.
SELECT head, ready_ms, start, finish, waiting, running, done, failed, cancelled FROM lanes
WHERE customer = ? AND part = 0 AND kind = ? AND priority = ? AND number = 0;

-- lanes_of: The lanes of one customer.
SELECT kind, priority, head, ready_ms, start, finish, waiting, running, done, failed, cancelled FROM lanes
WHERE customer = ? AND part = 0;

-- counts_of: How many of a customer's documents wait, run and have ended, and since when its longest-ready head waits.
SELECT coalesce(sum(waiting), 0), coalesce(sum(running), 0), coalesce(sum(done), 0), coalesce(sum(failed), 0),
       coalesce(sum(cancelled), 0), min(ready_ms)
FROM lanes WHERE customer = ? AND part = 0;

-- competing_lanes: Every lane that competes.
SELECT customer, kind, priority FROM lanes WHERE start IS NOT NULL;

-- write_lane: One lane after this transaction.
INSERT INTO lanes (customer, part, kind, priority, number, head, ready_ms, start, finish, waiting, running, done, failed,
       cancelled)
VALUES (?, 0, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET head = excluded.head, ready_ms = excluded.ready_ms, start = excluded.start,
       finish = excluded.finish, waiting = excluded.waiting, running = excluded.running, done = excluded.done,
       failed = excluded.failed, cancelled = excluded.cancelled;

-- write_lane_counts: One lane whose place in the order of turns did not change.
UPDATE lanes SET waiting = ?, running = ?, done = ?, failed = ?, cancelled = ?
WHERE customer = ? AND part = 0 AND kind = ? AND priority = ? AND number = 0;

-- join_lane: A ready document takes its place in its lane.
INSERT INTO lanes (customer, part, kind, priority, number, ready_ms) VALUES (?, 1, ?, ?, ?, ?);

-- leave_lane: A document is no longer in its lane.
DELETE FROM lanes WHERE customer = ? AND part = 1 AND kind = ? AND priority = ? AND number = ?;

-- next_kind: The next kind that has a lane which competes.
SELECT kind FROM lanes INDEXED BY lanes_by_turn WHERE start IS NOT NULL AND kind > ? ORDER BY kind LIMIT 1;

-- heads_by_turn: The heads of one kind that compete, in the order of ordinary turns.
SELECT priority, start, head, customer, kind FROM lanes INDEXED BY lanes_by_turn
WHERE kind = ? AND start IS NOT NULL ORDER BY priority, start, head;

-- heads_by_age: The heads of one kind that compete, longest ready first.
SELECT ready_ms, head, customer, kind, priority FROM lanes INDEXED BY lanes_by_age
WHERE kind = ? AND start IS NOT NULL ORDER BY ready_ms, head;

-- next_in_lane: The documents of a lane behind a number.
SELECT number, ready_ms FROM lanes
WHERE customer = ? AND part = 1 AND kind = ? AND priority = ? AND number > ? ORDER BY number LIMIT ?;

-- count_in_lane: How many documents of a lane go before a number.
SELECT count(*) FROM lanes WHERE customer = ? AND part = 1 AND kind = ? AND priority = ? AND number < ?;

-- read_for_claim: What a worker needs of a document (a subquery costs half of a join here).
SELECT id, customer_id, cost, token, attempts, (SELECT body FROM payloads AS p WHERE p.number = d.number) FROM documents AS d
WHERE number = ?;

-- start_document: A ready document is lent to a worker.
UPDATE documents SET state = 'running', token = ?, attempts = ?, attempts_max = ?, worker = ?, lease_ms = ?
WHERE number = ? AND state = 'ready';

-- extend_lease: A longer lease, if the claim still holds.
UPDATE documents SET lease_ms = max(lease_ms, ?) WHERE number = ? AND id = ? AND state = 'running' AND token = ? RETURNING number;

-- finish_document: A running document is done, if the claim still holds.
UPDATE documents SET state = 'done', ended_ms = ?, lease_ms = NULL, reason = NULL
WHERE number = ? AND id = ? AND state = 'running' AND token = ? RETURNING customer, kind, priority;

-- read_held: A document whose claim still holds.
SELECT * FROM moving WHERE number = ? AND id = ? AND state = 'running' AND token = ?;

-- read_moving: What is needed of a document to change its state.
SELECT * FROM moving WHERE id = ?;

-- due_documents: Delayed documents whose time has come.
SELECT number, customer, kind, priority, ready_ms FROM documents
WHERE state = 'delayed' AND ready_ms <= ? ORDER BY ready_ms, number LIMIT ?;

-- expired_documents: Running documents whose lease ran out.
SELECT * FROM moving WHERE state = 'running' AND lease_ms <= ? ORDER BY lease_ms, number LIMIT ?;

-- ready_document: A delayed document takes its place in its lane.
UPDATE documents SET state = 'ready' WHERE number = ? AND state = 'delayed';

-- return_document: A running document waits again.
UPDATE documents SET state = ?, ready_ms = ?, attempts = ?, lease_ms = NULL WHERE number = ? AND state = 'running' AND token = ?;

-- end_document: A document that has not ended ends.
UPDATE documents SET state = ?, ended_ms = ?, lease_ms = NULL, reason = ? WHERE number = ? AND state = ? AND token = ?;

-- revive_document: A failed document gets another round of attempts.
UPDATE documents SET state = 'ready', ready_ms = ?, attempts = 0, worker = NULL, ended_ms = NULL, reason = NULL
WHERE number = ? AND state = 'failed' AND token = ?;

-- correct_cost: The cost turned out to be another one.
UPDATE documents SET cost = ? WHERE number = ?;

-- oldest_changes: The oldest lines of the feed.
SELECT number, at_ms FROM changes ORDER BY number LIMIT ?;

-- trim_changes: The oldest lines of the feed go.
DELETE FROM changes WHERE number <= ?;

-- ended_documents: Documents that ended up to a time, oldest first.
SELECT number, customer, key FROM documents WHERE ended_ms IS NOT NULL AND ended_ms <= ? ORDER BY ended_ms, number LIMIT ?;

-- documents_to_forget: A customer's documents, oldest first.
SELECT * FROM moving WHERE customer = ? ORDER BY number LIMIT ?;

-- drop_document: A document is forgotten: its row.
DELETE FROM documents WHERE number = ?;

-- drop_progress: A document is forgotten: what was reported of it.
DELETE FROM records WHERE group_name = 'progress' AND key = (SELECT id FROM documents WHERE number = ?);

-- drop_payload: A document is forgotten: what was handed in.
DELETE FROM payloads WHERE number = ?;

-- drop_result: A document is forgotten: what came out.
DELETE FROM results WHERE number = ?;

-- one_document: A document as a snapshot.
SELECT * FROM snapshots WHERE id = ?;

-- documents_page: Documents as snapshots, newest first.
SELECT * FROM snapshots WHERE number < ? ORDER BY number DESC LIMIT ?;

-- documents_page_of_state: Documents of one state as snapshots, newest first.
SELECT * FROM snapshots WHERE state = ? AND number < ? ORDER BY number DESC LIMIT ?;

-- documents_page_unhappy: Failed or cancelled documents as snapshots, newest first, however many others there are.
SELECT * FROM snapshots WHERE state IN ('failed', 'cancelled') AND state = ? AND number < ? ORDER BY number DESC LIMIT ?;

-- documents_page_running: Running documents as snapshots, newest first; the plus keeps to the index of leases.
SELECT * FROM snapshots WHERE state = 'running' AND state = ? AND +number < ? ORDER BY +number DESC LIMIT ?;

-- documents_page_of_customer: A customer's documents as snapshots, newest first.
SELECT * FROM snapshots
WHERE customer = ?1 AND (?2 IS NULL OR state = ?2) AND number < ?3 ORDER BY number DESC LIMIT ?4;

-- read_body: What was handed in and what came out.
SELECT p.body, r.body FROM documents AS d JOIN payloads AS p ON p.number = d.number
LEFT JOIN results AS r ON r.number = d.number WHERE d.id = ?;

-- changes_after: Lines of the feed, in the order they were committed.
SELECT ch.number, ch.at_ms, ch.what, c.id, d.id, ch.token, ch.note
FROM changes AS ch LEFT JOIN customers AS c ON c.number = ch.customer LEFT JOIN documents AS d ON d.number = ch.document
WHERE ch.number > ? ORDER BY ch.number LIMIT ?;

-- any_head: Whether a head of this kind competes.
SELECT 1 FROM lanes INDEXED BY lanes_by_turn WHERE kind = ? AND start IS NOT NULL LIMIT 1;

-- oldest_head: Since when the longest-ready head of this kind is ready; NULL if none competes.
SELECT min(ready_ms) FROM lanes INDEXED BY lanes_by_age WHERE kind = ? AND start IS NOT NULL;

-- data_version: A number that changes when another connection has committed.
PRAGMA data_version;

-- next_due: When the next delayed document is due.
SELECT min(ready_ms) FROM documents WHERE state = 'delayed';

-- one_record: A record.
SELECT group_name, key, value, version FROM records WHERE group_name = ? AND key = ?;

-- records_after: The records of a group by key, a page.
SELECT group_name, key, value, version FROM records WHERE group_name = ? AND key > ? ORDER BY key LIMIT ?;

-- put_record: A record's new value.
INSERT INTO records (group_name, key, value, version) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET value = excluded.value, version = excluded.version;

-- drop_record: A record is removed.
DELETE FROM records WHERE group_name = ? AND key = ?;

-- pack_clocks: The clocks of all priorities.
SELECT clock FROM priorities ORDER BY priority;

-- pack_documents: Documents with everything that is known of them, oldest first.
SELECT s.id, s.number, s.customer_id, s.kind, s.state, s.priority, s.counter, s.checked_ms, s.policy_version, s.terms_version,
       s.cost, s.key, s.ready_ms, s.attempts, s.attempts_max, s.token, s.worker, s.lease_ms, s.ended_ms, s.reason,
       s.weight, s.resets, (SELECT digest FROM keys AS k WHERE k.customer = s.customer AND k.key = s.key),
       (SELECT body FROM payloads AS p WHERE p.number = s.number), (SELECT body FROM results AS r WHERE r.number = s.number)
FROM documents AS s WHERE s.number > ? ORDER BY s.number LIMIT ?;

-- pack_lanes: The tags of lanes by customer, kind and priority.
SELECT c.id, l.kind, l.priority, l.start, l.finish FROM customers AS c JOIN lanes AS l ON l.customer = c.number AND l.part = 0
WHERE (c.id, l.kind, l.priority) > (?, ?, ?) AND (l.start IS NOT NULL OR l.finish > 0)
ORDER BY c.id, l.kind, l.priority LIMIT ?;

-- pack_records: Records by group and key.
SELECT group_name, key, value, version FROM records WHERE (group_name, key) > (?, ?) ORDER BY group_name, key LIMIT ?;

-- drop_rules: The rules of this queue make room for those of the one that moves in.
DELETE FROM rules;

-- unpack_document: A document that comes from another store.
INSERT INTO documents (number, id, customer, customer_id, kind, state, priority, counter, checked_ms, policy_version, terms_version,
       weight, resets, cost, key, ready_ms, attempts, attempts_max, token, worker, lease_ms, ended_ms, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- journal_mode: How the file is written.
PRAGMA journal_mode;

-- synchronous: Whether a commit waits for the disk.
PRAGMA synchronous;

-- index_names: The indexes that are there.
SELECT name FROM sqlite_schema WHERE type = 'index';

-- quick_check: Whether every page is whole.
PRAGMA quick_check(1);
