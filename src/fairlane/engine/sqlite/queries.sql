-- read_queue: The queue's own counters.
SELECT last_number, last_change, changes_floor, last_record, tunings, uncounted, busy_ms, ticked_ms, usual FROM queue;

-- write_queue: Write the queue's own counters.
UPDATE queue SET last_number = ?, last_change = ?, changes_floor = ?, last_record = ?, tunings = ?, uncounted = ?, busy_ms = ?,
       ticked_ms = ?, usual = ?;

-- read_queue_and_rules: The queue's own counters, and the rules that hold now.
SELECT last_number, last_change, changes_floor, last_record, tunings, uncounted, busy_ms, ticked_ms, usual, version, body
FROM queue JOIN rules ORDER BY version DESC LIMIT 1;

-- read_dispatches: How many documents were dispatched to workers that ask for a set of kinds.
SELECT count FROM dispatches WHERE kinds = ?;

-- write_dispatches: Write how many were dispatched for a set of kinds.
INSERT INTO dispatches (kinds, count) VALUES (?, ?) ON CONFLICT DO UPDATE SET count = excluded.count;

-- pack_dispatches: How many were dispatched for every set of kinds.
SELECT kinds, count FROM dispatches WHERE count > 0;

-- pack_kinds: A page of the kinds that have a limit, or a clock that moved.
SELECT kind FROM kinds
WHERE kind > ? AND (version > 0 OR clocks <> '[0, 0, 0, 0, 0, 0, 0, 0, 0]') ORDER BY kind LIMIT ?;

-- read_kind: A kind.
SELECT clocks, limits, version, running, tokens, tokens_ms, blocked, floors, priority, start, cross_tag, head, ready_ms, oldest
FROM kinds WHERE kind = ?;

-- write_kind: Write a kind.
INSERT INTO kinds (kind, clocks, limits, version, running, tokens, tokens_ms, blocked, floors, priority, start, cross_tag, head,
       ready_ms, oldest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET clocks = excluded.clocks, limits = excluded.limits, version = excluded.version, running = excluded.running,
       tokens = excluded.tokens, tokens_ms = excluded.tokens_ms, blocked = excluded.blocked, floors = excluded.floors,
       priority = excluded.priority, start = excluded.start, cross_tag = excluded.cross_tag, head = excluded.head,
       ready_ms = excluded.ready_ms, oldest = excluded.oldest;

-- read_limited_kinds: The kinds that have, or had, a limit.
SELECT kind FROM kinds INDEXED BY kinds_limited WHERE limits IS NOT NULL;

-- page_limited_kinds: A page of them.
SELECT kind FROM kinds INDEXED BY kinds_limited WHERE limits IS NOT NULL AND kind > ? ORDER BY kind LIMIT ?;

-- page_kinds: A page of all kinds.
SELECT kind FROM kinds WHERE kind > ? ORDER BY kind LIMIT ?;

-- kinds_in_turn: The kinds that are not at their limit, by their first lanes in the order of ordinary turns.
SELECT priority, cross_tag, head, kind FROM kinds INDEXED BY kinds_by_turn
WHERE head IS NOT NULL AND blocked = 0 ORDER BY priority, cross_tag, head;

-- kind_in_turn: One of those kinds.
SELECT priority, cross_tag, head, kind FROM kinds WHERE kind = ? AND head IS NOT NULL AND blocked = 0;

-- kind_in_age: One of those kinds, by its head that was ready first.
SELECT ready_ms, oldest, kind FROM kinds WHERE kind = ? AND oldest IS NOT NULL AND blocked = 0;

-- kinds_in_age: The same kinds by their heads that were ready first.
SELECT ready_ms, oldest, kind FROM kinds INDEXED BY kinds_by_age
WHERE oldest IS NOT NULL AND blocked = 0 ORDER BY ready_ms, oldest;

-- count_running_of_kind: How many documents of a kind run.
SELECT count(*) FROM documents INDEXED BY documents_running WHERE state = 'running' AND kind = ?;

-- read_usual: What attempts of a customer usually take.
SELECT finish FROM lanes WHERE customer = ? AND part = 2 AND kind = '' AND priority = 0 AND number = 0;

-- write_usual: Write what attempts of a customer usually take.
INSERT INTO lanes (customer, part, kind, priority, number, finish) VALUES (?, 2, '', 0, 0, ?)
ON CONFLICT DO UPDATE SET finish = excluded.finish;

-- read_priority: A priority's clock, its ready documents and their lanes.
SELECT clock, ready, lanes, taken FROM priorities WHERE priority = ?;

-- read_priorities: The number of ready documents of every priority, of their lanes, and of those that were taken.
SELECT ready, lanes, taken FROM priorities ORDER BY priority;

-- write_priority: Write a priority's clock and counts.
UPDATE priorities SET clock = ?, ready = ?, lanes = ?, taken = ? WHERE priority = ?;

-- read_rules_version: The version of the rules that hold now.
SELECT max(version) FROM rules;

-- read_rules: The rules that hold now.
SELECT version, body FROM rules ORDER BY version DESC LIMIT 1;

-- add_rules: Add a version of the rules.
INSERT INTO rules (version, since_ms, body) VALUES (?, ?, ?);

-- read_customer: A customer by id.
SELECT * FROM customers WHERE id = ?;

-- read_customers: A page of customers by id.
SELECT * FROM customers WHERE id > ? ORDER BY id LIMIT ?;

-- add_customer: Insert a customer that was never seen.
INSERT INTO customers (id, busy_most) VALUES (?, 0);

-- write_customer: Write a customer's counter, and how many of its documents wait or run at most.
UPDATE customers SET counter = ?, updated_ms = ?, resets = ?, parts = ?, busy_most = ? WHERE number = ?;

-- read_terms: The terms that hold for a customer now.
SELECT version, body FROM terms WHERE customer = ? ORDER BY version DESC LIMIT 1;

-- add_terms: Add a version of a customer's terms.
INSERT INTO terms (customer, version, since_ms, body) VALUES (?, ?, ?, ?);

-- delete_customer: Delete the row of a forgotten customer.
DELETE FROM customers WHERE number = ?;

-- delete_terms: Delete the terms of a forgotten customer.
DELETE FROM terms WHERE customer = ?;

-- delete_lanes: Delete the lanes of a forgotten customer.
DELETE FROM lanes WHERE customer = ?;

-- delete_changes: Delete the lines of the feed about a forgotten customer.
DELETE FROM changes WHERE customer = ?;

-- read_key: The document that an idempotency key belongs to.
SELECT number, digest, (SELECT id FROM documents AS d WHERE d.number = k.number) FROM keys AS k WHERE customer = ? AND key = ?;

-- add_key: Insert an idempotency key and its document.
INSERT INTO keys (customer, key, number, digest) VALUES (?, ?, ?, ?);

-- delete_key: Delete the idempotency key of a deleted document.
DELETE FROM keys WHERE customer = ? AND key = ?;

-- add_document: Insert a document with its check.
INSERT INTO documents (number, id, customer, customer_id, kind, state, priority, counter, checked_ms, policy_version, terms_version,
       weight, resets, cost, key, ready_ms, attempts, attempts_max, token, bytes, root, checked_priority, no_better_than, by_hand,
       whole)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?, ?, ?);

-- add_payload: Insert a document's payload.
INSERT INTO payloads (number, body) VALUES (?, ?);

-- add_result: Insert a document's result.
INSERT INTO results (number, body) VALUES (?, ?);

-- add_change: Append a line to the feed.
INSERT INTO changes (number, at_ms, what, customer, document, token, note) VALUES (?, ?, ?, ?, ?, ?, ?);

-- read_receipt: The receipt of a document.
SELECT id, number, customer_id, checked_priority, counter, checked_ms, policy_version, terms_version FROM snapshots
WHERE number = ?;

-- read_source: The check that a document made from this one inherits, and the first document of its family.
SELECT customer_id, coalesce(checked_priority, priority), counter, policy_version, terms_version, coalesce(root, number),
       priority, no_better_than, by_hand
FROM documents WHERE id = ?;

-- read_family: How many documents came out of one.
SELECT descendants FROM families WHERE root = ?;

-- add_to_family: Count documents that came out of one.
INSERT INTO families (root, descendants, kept) VALUES (?1, ?2, ?2 + 1)
ON CONFLICT DO UPDATE SET descendants = descendants + ?2, kept = kept + ?2;

-- leave_family: Count a document no longer that is gone.
UPDATE families SET kept = kept - 1 WHERE root = ? RETURNING kept;

-- delete_family: Delete a family of which nothing is left.
DELETE FROM families WHERE root = ?;

-- unpack_family: Count one more document of a family that comes from another store.
INSERT INTO families (root, descendants, kept) VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET kept = kept + 1;

-- read_uncounted: Up to which number documents are not counted yet.
SELECT uncounted FROM queue;

-- read_uncounted_documents: Documents that are not counted yet, newest first, with their payloads and results.
SELECT number, customer, kind, priority, (SELECT body FROM payloads AS p WHERE p.number = d.number),
       (SELECT body FROM results AS r WHERE r.number = d.number)
FROM documents AS d WHERE number <= ? AND bytes IS NULL ORDER BY number DESC LIMIT ?;

-- write_bytes: Write what a document takes.
UPDATE documents SET bytes = ? WHERE number = ?;

-- read_lane: A lane, and what attempts of its customer usually take.
SELECT (SELECT finish FROM lanes AS u WHERE u.customer = ?1 AND u.part = 2 AND u.kind = '' AND u.priority = 0 AND u.number = 0),
       head, ready_ms, start, cross_tag, finish, cross_finish, waiting, running, done, failed, cancelled,
       coalesce(documents, 0), coalesce(bytes, 0)
FROM lanes
WHERE customer = ?1 AND part = 0 AND kind = ?2 AND priority = ?3 AND number = 0;

-- read_lanes: All lanes of a customer.
SELECT kind, priority, head, ready_ms, start, cross_tag, finish, cross_finish, waiting, running, done, failed, cancelled,
       coalesce(documents, 0), coalesce(bytes, 0)
FROM lanes
WHERE customer = ? AND part = 0;

-- count_documents: How many documents of a customer wait, run and have ended, when its oldest head became ready, what is kept.
SELECT coalesce(sum(waiting), 0), coalesce(sum(running), 0), coalesce(sum(done), 0), coalesce(sum(failed), 0),
       coalesce(sum(cancelled), 0), min(ready_ms), coalesce(sum(documents), 0), coalesce(sum(bytes), 0)
FROM lanes WHERE customer = ? AND part = 0;

-- level_lanes: Let every lane start from the clocks; under strict every start tag is 0.
UPDATE lanes SET finish = level.clock, cross_finish = level.cross_clock,
       start = CASE WHEN lanes.start IS NOT NULL THEN CASE WHEN ?1 THEN 0 ELSE level.clock END END,
       cross_tag = CASE WHEN ?1 THEN 0 ELSE level.cross_clock END
FROM (SELECT k.kind, p.priority, p.clock AS cross_clock, json_extract(k.clocks, '$[' || (p.priority - 1) || ']') AS clock
      FROM kinds AS k JOIN priorities AS p) AS level
WHERE lanes.part = 0 AND lanes.kind <> '' AND level.kind = lanes.kind AND level.priority = lanes.priority;

-- drop_floors: Forget the floors of all kinds.
UPDATE kinds SET floors = NULL;

-- write_lane: Write a lane.
INSERT INTO lanes (customer, part, kind, priority, number, competing, head, ready_ms, start, cross_tag, finish, cross_finish,
       waiting, running, done, failed, cancelled, documents, bytes)
VALUES (?, 0, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET competing = excluded.competing, head = excluded.head, ready_ms = excluded.ready_ms,
       start = excluded.start, cross_tag = excluded.cross_tag, finish = excluded.finish, cross_finish = excluded.cross_finish,
       waiting = excluded.waiting, running = excluded.running, done = excluded.done, failed = excluded.failed,
       cancelled = excluded.cancelled, documents = excluded.documents, bytes = excluded.bytes;

-- write_lane_tags: Write a lane whose head is the same, and competes as before.
UPDATE lanes SET start = ?, cross_tag = ?, finish = ?, cross_finish = ?, waiting = ?, running = ?, done = ?, failed = ?,
       cancelled = ?, documents = ?, bytes = ?
WHERE customer = ? AND part = 0 AND kind = ? AND priority = ? AND number = 0;

-- write_lane_counts: Write the counts of a lane whose position in the indexes did not change.
UPDATE lanes SET waiting = ?, running = ?, done = ?, failed = ?, cancelled = ?, documents = ?, bytes = ?
WHERE customer = ? AND part = 0 AND kind = ? AND priority = ? AND number = 0;

-- join_lane: Insert a ready document into its lane.
INSERT INTO lanes (customer, part, kind, priority, number, ready_ms) VALUES (?, 1, ?, ?, ?, ?);

-- leave_lane: Delete a document from its lane.
DELETE FROM lanes WHERE customer = ? AND part = 1 AND kind = ? AND priority = ? AND number = ?;

-- ready_kinds: A page of the kinds of which a head competes, and since when the one that was ready first is.
SELECT kind, ready_ms FROM kinds WHERE oldest IS NOT NULL AND blocked = 0 AND kind > ? ORDER BY kind LIMIT ?;

-- heads_by_turn: The competing heads of one kind, in the order of ordinary turns.
SELECT priority, start, cross_tag, head, customer FROM lanes INDEXED BY lanes_by_turn
WHERE kind = ? AND start IS NOT NULL ORDER BY priority, start, cross_tag, head;

-- next_start: The next priority and start tag of a kind.
SELECT priority, start FROM lanes INDEXED BY lanes_by_turn
WHERE kind = ? AND start IS NOT NULL AND (priority, start) > (?, ?) ORDER BY priority, start LIMIT 1;

-- heads_below_floor: The heads of one start tag whose cross tag counts as the floor, by number.
SELECT priority, start, ?, head, customer FROM lanes INDEXED BY lanes_by_number
WHERE kind = ? AND priority = ? AND start = ? AND cross_tag <= ? ORDER BY head;

-- heads_above_floor: The heads of one start tag whose cross tag counts as it is.
SELECT priority, start, cross_tag, head, customer FROM lanes INDEXED BY lanes_by_turn
WHERE kind = ? AND priority = ? AND start = ? AND cross_tag > ? ORDER BY cross_tag, head;

-- heads_by_age: The competing heads of one kind, longest ready first.
SELECT ready_ms, head, customer, priority FROM lanes INDEXED BY lanes_by_age
WHERE kind = ? AND competing = 1 ORDER BY ready_ms, head;

-- first_by_age: The first of them.
SELECT ready_ms, head FROM lanes INDEXED BY lanes_by_age WHERE kind = ? AND competing = 1 ORDER BY ready_ms, head LIMIT 1;

-- next_in_lane: The documents of a lane after a number.
SELECT number, ready_ms FROM lanes
WHERE customer = ? AND part = 1 AND kind = ? AND priority = ? AND number > ? ORDER BY number LIMIT ?;

-- count_in_lane: How many documents of a lane come before a number.
SELECT count(*) FROM lanes WHERE customer = ? AND part = 1 AND kind = ? AND priority = ? AND number < ?;

-- read_for_claim: The columns of a document that a claim needs (a subquery costs half of a join here).
SELECT id, customer_id, cost, token, attempts, ready_ms, (SELECT body FROM payloads AS p WHERE p.number = d.number) FROM documents AS d
WHERE number = ?;

-- start_document: Lease a ready document to a worker.
UPDATE documents SET state = 'running', token = ?, attempts = ?, attempts_max = ?, worker = ?, lease_ms = ?, claimed_ms = ?, paid = ?
WHERE number = ? AND state = 'ready';

-- extend_lease: Extend a lease, unless the claim was lost.
UPDATE documents SET lease_ms = max(lease_ms, ?) WHERE number = ? AND id = ? AND state = 'running' AND token = ? RETURNING number;

-- take_over_document: Give a running document to another worker under the next token, unless the claim was lost.
UPDATE documents SET token = token + 1, worker = ?, lease_ms = ? WHERE id = ? AND state = 'running' AND token = ?
RETURNING customer, number, customer_id, kind, priority, (SELECT body FROM payloads AS p WHERE p.number = documents.number),
          attempts, attempts_max;

-- finish_document: End a running document as done, unless the claim was lost.
UPDATE documents SET state = 'done', ended_ms = ?, bytes = bytes + ?, lease_ms = NULL, reason = NULL
WHERE number = ? AND id = ? AND state = 'running' AND token = ?
RETURNING customer, kind, priority, claimed_ms, paid, bytes IS NOT NULL, whole;

-- read_claimed_document: A running document, unless the claim was lost.
SELECT * FROM moving WHERE number = ? AND id = ? AND state = 'running' AND token = ?;

-- read_document: The columns of a document that a change of its state needs.
SELECT * FROM moving WHERE id = ?;

-- read_due_documents: Delayed documents that are due.
SELECT number, customer, kind, priority, ready_ms FROM documents
WHERE state = 'delayed' AND ready_ms <= ? ORDER BY ready_ms, number LIMIT ?;

-- read_expired_documents: Running documents whose lease has expired.
SELECT * FROM moving WHERE state = 'running' AND lease_ms <= ? ORDER BY lease_ms, number LIMIT ?;

-- ready_document: Make a delayed document ready.
UPDATE documents SET state = 'ready' WHERE number = ? AND state = 'delayed';

-- requeue_document: Make a running document wait again.
UPDATE documents SET state = ?, ready_ms = ?, attempts = ?, lease_ms = NULL WHERE number = ? AND state = 'running' AND token = ?;

-- payload_bytes: How many bytes a payload takes.
SELECT length(CAST(body AS BLOB)) FROM payloads WHERE number = ?;

-- replace_payload: Replace a document's payload.
UPDATE payloads SET body = ? WHERE number = ?;

-- continue_document: Make a running document wait as another kind.
UPDATE documents SET kind = ?, state = ?, ready_ms = ?, bytes = bytes + ?, parts = ?, parts_left = ?, attempts = 0, lease_ms = NULL
WHERE number = ? AND state = 'running' AND token = ?;

-- write_first_part: Write the number of a document's first part.
UPDATE documents SET parts_from = ? WHERE id = ?;

-- count_part: Count a part that is done; a document that failed with another one at that moment may wait for its parts again.
UPDATE documents SET parts_left = parts_left - 1 WHERE id = ? AND parts_left > 0
RETURNING number, customer, kind, priority, token, parts_left = 0 AND state = 'delayed';

-- join_document: Make a document ready whose parts are done.
UPDATE documents SET state = 'ready', ready_ms = ? WHERE number = ? AND state = 'delayed' AND token = ?;

-- parts_to_cancel: The parts of a document that have not ended.
SELECT m.* FROM documents AS d JOIN moving AS m ON m.number >= d.parts_from AND m.number < d.parts_from + d.parts
WHERE d.number = ? AND m.whole = d.id AND m.state IN ('ready', 'delayed', 'running') ORDER BY m.number;

-- parts_to_revive: The parts of a document that are not done.
SELECT m.* FROM documents AS d JOIN moving AS m ON m.number >= d.parts_from AND m.number < d.parts_from + d.parts
WHERE d.number = ? AND m.whole = d.id AND m.state <> 'done' ORDER BY m.number;

-- read_parts: The parts into which a document was split last, with their results.
SELECT s.*, (SELECT body FROM results AS r WHERE r.number = s.number)
FROM documents AS d JOIN snapshots AS s ON s.number >= d.parts_from AND s.number < d.parts_from + d.parts
WHERE d.id = ? AND s.whole = d.id ORDER BY s.number;

-- is_kept: Whether there is a document with that id.
SELECT 1 FROM documents WHERE id = ?;

-- end_document: End a document as failed or cancelled, if its state and token did not change.
UPDATE documents SET state = ?, ended_ms = ?, lease_ms = NULL, reason = ? WHERE number = ? AND state = ? AND token = ?;

-- revive_document: Give a failed document another round of attempts.
UPDATE documents SET state = ?, ready_ms = ?, attempts = 0, worker = NULL, ended_ms = NULL, reason = NULL
WHERE number = ? AND state = ? AND token = ?;

-- write_check: Replace the check of a document that is checked again.
UPDATE documents SET checked_priority = ?, counter = ?, rechecked_ms = ?, policy_version = ?, terms_version = ?, weight = ?,
       resets = ?, retries = retries + ?, priority = ?
WHERE number = ?;

-- write_priority_of_document: Give a waiting document another priority.
UPDATE documents SET checked_priority = coalesce(checked_priority, priority), priority = ?, by_hand = ? WHERE number = ?;

-- waiting_documents: Waiting documents of a customer by number, those above one.
SELECT s.*, (SELECT resets FROM documents AS d WHERE d.number = s.number) FROM snapshots AS s WHERE s.customer = ?1 AND s.state IN ('ready', 'delayed') AND s.number > ?2
ORDER BY s.number LIMIT ?3;

-- correct_cost: Correct a document's cost.
UPDATE documents SET cost = ? WHERE number = ?;

-- read_oldest_changes: The oldest lines of the feed.
SELECT number, at_ms FROM changes ORDER BY number LIMIT ?;

-- trim_changes: Delete the oldest lines of the feed.
DELETE FROM changes WHERE number <= ?;

-- read_ended_documents: Documents that ended up to a time, oldest first; parts only after their whole is gone.
SELECT m.* FROM documents AS d JOIN moving AS m ON m.number = d.number
WHERE d.ended_ms IS NOT NULL AND d.ended_ms <= ?
  AND (d.whole IS NULL OR NOT EXISTS (SELECT 1 FROM documents AS w WHERE w.id = d.whole)) ORDER BY d.ended_ms, d.number LIMIT ?;

-- read_documents_to_forget: Documents of a customer, oldest first.
SELECT * FROM moving WHERE customer = ? ORDER BY number LIMIT ?;

-- delete_document: Delete a document's row.
DELETE FROM documents WHERE number = ?;

-- delete_progress: Delete the progress that was reported for a document.
DELETE FROM records WHERE group_name = 'progress' AND key = (SELECT id FROM documents WHERE number = ?);

-- delete_attempts: Delete the details of a document's failed attempts.
DELETE FROM records WHERE group_name = 'attempts' AND key > (SELECT id || ':' FROM documents WHERE number = ?1)
  AND key < (SELECT id || ';' FROM documents WHERE number = ?1);

-- delete_old_attempts: Delete the details of failed attempts between two keys.
DELETE FROM records WHERE group_name = 'attempts' AND key > ? AND key <= ?;

-- delete_payload: Delete a document's payload.
DELETE FROM payloads WHERE number = ?;

-- delete_result: Delete a document's result.
DELETE FROM results WHERE number = ?;

-- read_snapshot: A document by id, as a snapshot.
SELECT * FROM snapshots WHERE id = ?;

-- page_documents: A page of documents between two numbers, newest first.
SELECT * FROM snapshots WHERE number < ?1 AND number >= ?2
  AND (?4 IS NULL OR state = ?4) AND (?5 IS NULL OR kind = ?5) AND (?6 IS NULL OR instr(reason, ?6) > 0)
  AND (?7 IS NULL OR submitted_ms >= ?7) AND (?8 IS NULL OR submitted_ms < ?8)
ORDER BY number DESC LIMIT ?3;

-- page_failed_documents: A page of failed or cancelled documents, newest first, through their own index.
SELECT * FROM snapshots WHERE state IN ('failed', 'cancelled') AND state = ?4 AND number < ?1 AND number >= ?2
  AND (?5 IS NULL OR kind = ?5) AND (?6 IS NULL OR instr(reason, ?6) > 0)
  AND (?7 IS NULL OR submitted_ms >= ?7) AND (?8 IS NULL OR submitted_ms < ?8)
ORDER BY number DESC LIMIT ?3;

-- page_running_documents: A page of running documents, newest first; the plus signs make SQLite use the index of leases.
SELECT * FROM snapshots WHERE state = 'running' AND +number < ?1 AND +number >= ?2
  AND (?4 IS NULL OR state = ?4) AND (?5 IS NULL OR kind = ?5) AND (?6 IS NULL OR instr(reason, ?6) > 0)
  AND (?7 IS NULL OR submitted_ms >= ?7) AND (?8 IS NULL OR submitted_ms < ?8)
ORDER BY +number DESC LIMIT ?3;

-- page_documents_of_customer: A page of a customer's documents, newest first.
SELECT * FROM snapshots WHERE customer = ?9 AND number < ?1 AND number >= ?2
  AND (?4 IS NULL OR state = ?4) AND (?5 IS NULL OR kind = ?5) AND (?6 IS NULL OR instr(reason, ?6) > 0)
  AND (?7 IS NULL OR submitted_ms >= ?7) AND (?8 IS NULL OR submitted_ms < ?8)
ORDER BY number DESC LIMIT ?3;

-- floor_of_documents: The number of the last document that is examined for one page.
SELECT number FROM documents WHERE number < ? ORDER BY number DESC LIMIT 1 OFFSET ?;

-- floor_of_failed_documents: The same among failed or cancelled documents.
SELECT number FROM documents WHERE state IN ('failed', 'cancelled') AND state = ? AND number < ?
ORDER BY number DESC LIMIT 1 OFFSET ?;

-- floor_of_customer: The same among a customer's documents.
SELECT number FROM documents WHERE customer = ? AND number < ? ORDER BY number DESC LIMIT 1 OFFSET ?;

-- read_body: A document's payload and result.
SELECT p.body, r.body FROM documents AS d JOIN payloads AS p ON p.number = d.number
LEFT JOIN results AS r ON r.number = d.number WHERE d.id = ?;

-- read_changes: Lines of the feed after a number, in the order of commits.
SELECT ch.number, ch.at_ms, ch.what, c.id, d.id, ch.token, ch.note
FROM changes AS ch LEFT JOIN customers AS c ON c.number = ch.customer LEFT JOIN documents AS d ON d.number = ch.document
WHERE ch.number > ? ORDER BY ch.number LIMIT ?;

-- has_head: Whether a head of this kind competes.
SELECT 1 FROM kinds WHERE kind = ? AND oldest IS NOT NULL AND blocked = 0;

-- has_any_head: Whether any head competes.
SELECT 1 FROM kinds INDEXED BY kinds_by_age WHERE oldest IS NOT NULL AND blocked = 0 LIMIT 1;

-- data_version: A number that changes when another connection has committed.
PRAGMA data_version;

-- read_next_due: When the next delayed document is due.
SELECT min(ready_ms) FROM documents WHERE state = 'delayed';

-- read_record: A record.
SELECT group_name, key, value, version FROM records WHERE group_name = ? AND key = ?;

-- read_records: A page of a group's records by key.
SELECT group_name, key, value, version FROM records WHERE group_name = ? AND key > ? ORDER BY key LIMIT ?;

-- write_record: Set a record.
INSERT INTO records (group_name, key, value, version) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET value = excluded.value, version = excluded.version;

-- delete_record: Delete a record.
DELETE FROM records WHERE group_name = ? AND key = ?;

-- pack_clocks: The clocks of all priorities.
SELECT clock FROM priorities ORDER BY priority;

-- pack_documents: Whole documents after a number, for another store.
SELECT s.*, d.weight, d.resets, (SELECT digest FROM keys AS k WHERE k.customer = d.customer AND k.key = d.key),
       (SELECT body FROM payloads AS p WHERE p.number = d.number), (SELECT body FROM results AS r WHERE r.number = d.number),
       d.root, coalesce((SELECT descendants FROM families AS f WHERE f.root = coalesce(d.root, d.number)), 0), d.parts_from
FROM documents AS d JOIN snapshots AS s ON s.number = d.number WHERE d.number > ? ORDER BY d.number LIMIT ?;

-- pack_lanes: Tags of lanes by customer, kind and priority, for another store; CROSS JOIN keeps customers the outer loop.
SELECT c.id, l.kind, l.priority, l.start, l.cross_tag, l.finish, l.cross_finish
FROM customers AS c CROSS JOIN lanes AS l ON l.customer = c.number AND l.part = 0 CROSS JOIN kinds AS k ON k.kind = l.kind
WHERE (c.id, l.kind, l.priority) > (?, ?, ?) AND (l.start IS NOT NULL
  OR l.finish > json_extract(k.clocks, '$[' || (l.priority - 1) || ']')
  OR l.cross_finish > (SELECT clock FROM priorities AS p WHERE p.priority = l.priority))
ORDER BY c.id, l.kind, l.priority LIMIT ?;

-- pack_records: Records by group and key, for another store.
SELECT group_name, key, value, version FROM records WHERE (group_name, key) > (?, ?) ORDER BY group_name, key LIMIT ?;

-- delete_rules: Delete the rules, to be replaced by those of another store.
DELETE FROM rules;

-- unpack_document: Insert a document that comes from another store.
INSERT INTO documents (number, id, customer, customer_id, kind, state, priority, counter, checked_ms, policy_version, terms_version,
       weight, resets, cost, key, ready_ms, attempts, attempts_max, token, worker, lease_ms, ended_ms, reason, checked_priority,
       no_better_than, by_hand, claimed_ms, bytes, retries, rechecked_ms, root, whole, parts, parts_left, parts_from)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- journal_mode: The journal mode of the file.
PRAGMA journal_mode;

-- synchronous: How a commit is synced to the disk.
PRAGMA synchronous;

-- read_index_names: The names of all indexes.
SELECT name FROM sqlite_schema WHERE type = 'index';

-- quick_check: The first damaged page, or ok.
PRAGMA quick_check(1);

-- fence_queue: Raise the numbers of changes and records, when a backup is restored.
UPDATE queue SET last_change = last_change + ?, last_record = last_record + ?;

-- fence_documents: Raise the tokens of documents that may be claimed again, when a backup is restored.
UPDATE documents SET token = token + ? WHERE state <> 'done';

-- schema_mark: The version of the schema, and the oldest program that may use it.
PRAGMA user_version;

-- rewrite_payload: Replace a payload if it is still what it was.
UPDATE payloads SET body = ? WHERE number = ? AND body = ? RETURNING 1;

-- rewrite_result: Replace a result if it is still what it was.
UPDATE results SET body = ? WHERE number = ? AND body = ? RETURNING 1;

-- rewrite_reason: Replace a reason if it is still what it was.
UPDATE documents SET reason = ? WHERE number = ? AND reason = ? RETURNING 1;

-- rewrite_digest: Replace the digest of a document's idempotency key if it is still what it was.
UPDATE keys SET digest = ? WHERE (customer, key) = (SELECT d.customer, d.key FROM documents AS d WHERE d.number = ?) AND digest = ?
RETURNING 1;

-- rewrite_note: Replace the note of a line of the feed if it is still what it was.
UPDATE changes SET note = ? WHERE number = ? AND note = ? RETURNING 1;
