-- Outlook: what is needed to tell what stands before a waiting document. ARGV: now, id.
local now, one = now_of(ARGV[1]), document_by_id(ARGV[2])
local state = one and one.moving[STATE]
if state ~= 'ready' and state ~= 'delayed' then
  return false
end
local part, owner = fixed(one), one.moving[OWNER]
local priority = part[PRIORITY]
local key = prefix .. 'ready:' .. lane_name(owner, priority, part[KIND])
local own_ready = call('ZCARD', key)
local ahead = 0
for other = 1, priority - 1 do
  ahead = ahead + queue.ready[other]
end
return {
  now, ahead, queue.ready[priority] - own_ready, queue.lanes[priority] - (own_ready > 0 and 1 or 0),
  call('ZCOUNT', key, '-inf', format('(%.0f', one.number)), is_blocked(customer_of(owner)) and 1 or 0, queue.dispatches,
  queue.pace[1], queue.pace[2], queue.pace[3], queue.pace[4],
}
