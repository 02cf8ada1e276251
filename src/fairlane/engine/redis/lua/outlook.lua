-- Outlook: what is ahead of a waiting document; false if it does not wait. ARGV: now, id.
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
local oldest = call('ZRANGE', ages_key(values.kind), 0, 0, 'WITHSCORES')
return {
  now, ahead, queue[READY_IN + priority] - own_ready, queue[LANES_IN + priority] - (own_ready > 0 and 1 or 0),
  call('ZLEXCOUNT', key, '-', '(' .. document.seq), is_blocked(customer_of(owner)) and 1 or 0, queue[DISPATCHES],
  queue[PACE + 1], queue[PACE + 2], queue[PACE + 3], queue[PACE + 4],
  oldest[2] and tonumber(oldest[2]) or false,
}
