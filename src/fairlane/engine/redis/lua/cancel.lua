-- Cancel: documents that have not ended end as cancelled; answers the places of those that did. ARGV: now, then ids.
local now = now_of(ARGV[1])
local cancelled = {}
for place = 2, #ARGV do
  local one = document_by_id(ARGV[place])
  local state = one and one[STATE]
  if state == 'ready' or state == 'delayed' or state == 'running' then
    finish(one, 'cancelled', now)
    cancelled[#cancelled + 1] = place - 1
  end
end
if #cancelled > 0 then
  flush()
end
return cancelled
