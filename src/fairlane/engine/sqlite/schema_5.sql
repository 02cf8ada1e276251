-- Version 5 of a Fairlane file: documents that are split into parts and wait for them.

ALTER TABLE documents ADD COLUMN whole TEXT;                      -- the id of the document that it is a part of
ALTER TABLE documents ADD COLUMN parts_from INTEGER NOT NULL DEFAULT 0;  -- the number of its first part: they follow each other
ALTER TABLE documents ADD COLUMN parts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE documents ADD COLUMN parts_left INTEGER NOT NULL DEFAULT 0;  -- those that are not done

DROP VIEW moving;
CREATE VIEW moving AS
  SELECT number, id, customer, kind, state, priority, token, attempts, attempts_max, cost, weight, resets, key,
         lease_ms, bytes, root, customer_id, coalesce(rechecked_ms, checked_ms) AS checked_ms, claimed_ms, paid, whole, parts_left
  FROM documents;
DROP VIEW snapshots;
CREATE VIEW snapshots AS
  SELECT id, number, customer_id, kind, state, coalesce(checked_priority, priority) AS checked_priority, counter,
         coalesce(rechecked_ms, checked_ms) AS checked_ms, policy_version, terms_version, cost, key, ready_ms, attempts,
         attempts_max, token, worker, lease_ms, ended_ms, reason, priority, no_better_than, by_hand, claimed_ms,
         coalesce(bytes, 0) AS bytes, retries, checked_ms AS submitted_ms, whole, parts, parts_left, customer
  FROM documents;
