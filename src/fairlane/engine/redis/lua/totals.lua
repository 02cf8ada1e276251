-- Totals: how long something has waited that could be taken; documents taken and ready, by priority.
return {queue[BUSY], {unpack(queue, TAKEN + 1, TAKEN + 9)}, {unpack(queue, READY_IN + 1, READY_IN + 9)}}
