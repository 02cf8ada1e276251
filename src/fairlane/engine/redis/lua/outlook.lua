-- Outlook: what is ahead of a waiting document, and what holds it up; false if it does not wait. ARGV: now, id.
local now, document = now_of(ARGV[1]), document_by_id(ARGV[2])
local state = document and document.state
if state ~= 'ready' and state ~= 'delayed' then
  return false
end
local values, owner = fixed(document), document.owner
local priority, ahead = values.priority, 0
local key = prefix .. 'ready:' .. lane_name(owner, priority, values.kind)
local own_ready = call('ZCARD', key)
for other = 1, priority - 1 do
  ahead = ahead + queue[READY_IN + other]
end
return {
  now, priority, ahead, queue[READY_IN + priority] - own_ready, queue[LANES_IN + priority] - (own_ready > 0 and 1 or 0),
  call('ZLEXCOUNT', key, '-', '(' .. document.seq), hold_of(customer_of(owner)) or limit_reached(kind_of(values.kind), now),
  queue[BUSY], {unpack(queue, TAKEN + 1, TAKEN + 9)}, {unpack(queue, READY_IN + 1, READY_IN + 9)},
}
