-- Version 2 of a Fairlane file: lanes in the order of turns and by age over all kinds, for claims that take all.

CREATE INDEX lanes_by_turn_of_all ON lanes (priority, start, head) WHERE start IS NOT NULL;
CREATE INDEX lanes_by_age_of_all ON lanes (ready_ms, head, priority) WHERE start IS NOT NULL;
