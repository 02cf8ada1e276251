-- Version 3 of a Fairlane file: limits of customers, and what each of them keeps.

ALTER TABLE documents ADD COLUMN bytes INTEGER;         -- of its payload, its result and their files; NULL: not counted yet
ALTER TABLE documents ADD COLUMN root INTEGER;          -- the first document of its family; NULL: itself
ALTER TABLE documents ADD COLUMN retries INTEGER NOT NULL DEFAULT 0;  -- by its customer
ALTER TABLE documents ADD COLUMN rechecked_ms INTEGER;  -- the check of the last such retry; NULL: that of its submission

-- What is kept of a lane's documents.
ALTER TABLE lanes ADD COLUMN documents INTEGER;
ALTER TABLE lanes ADD COLUMN bytes INTEGER;

-- No more documents of the customer wait or run than this: counted up with each that is added, and again over all lanes only
-- when it would reach the customer's limit. NULL: to be counted.
ALTER TABLE customers ADD COLUMN busy_most INTEGER;

-- A document and everything that came out of it: how many have come, and how many of all are left.
CREATE TABLE families (root INTEGER PRIMARY KEY, descendants INTEGER NOT NULL, kept INTEGER NOT NULL);

-- Documents up to this number were stored by an older version, and what they take is not counted yet.
ALTER TABLE queue ADD COLUMN uncounted INTEGER NOT NULL DEFAULT 0;
UPDATE queue SET uncounted = last_number;

DROP VIEW moving;
CREATE VIEW moving AS
  SELECT number, id, customer, kind, state, priority, token, attempts, attempts_max, cost, weight, resets, key,
         lease_ms, bytes, root, customer_id
  FROM documents;
DROP VIEW snapshots;
CREATE VIEW snapshots AS
  SELECT id, number, customer_id, kind, state, priority, counter, coalesce(rechecked_ms, checked_ms) AS checked_ms,
         policy_version, terms_version, cost, key, ready_ms, attempts, attempts_max, token, worker, lease_ms, ended_ms, reason,
         coalesce(bytes, 0) AS bytes, retries, checked_ms AS submitted_ms, customer
  FROM documents;
