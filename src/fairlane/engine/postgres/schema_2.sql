-- Version 2 of a Fairlane schema: the same tables; functions pass on types with other names, and claims read a view.

-- What one document's change of state does to its lane's counts; ready: it joins (1) or leaves (-1) those that may be claimed.
ALTER TYPE fairlane.shift RENAME TO lane_change;

-- The new state of a document that leaves its worker, or ends.
ALTER TYPE fairlane.move RENAME TO transition;

-- A turn that a claim has dispatched.
CREATE TYPE fairlane.turn AS (number bigint, customer text, is_open boolean);

-- A lane that competes, with its head; `turns` counts those it got in a claim.
CREATE VIEW fairlane.competing AS
  SELECT l.customer, c.id AS name, l.kind, l.priority, l.head, l.ready_ms, w.cost, l.start, l.finish, c.weight, c.cap, 0 AS turns
  FROM fairlane.lanes AS l
  JOIN fairlane.customers AS c ON c.number = l.customer JOIN fairlane.work AS w ON w.number = l.head
  WHERE l.start IS NOT NULL;
