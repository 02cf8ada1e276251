-- Prioritize: set the priority of waiting documents by hand; returns which of the ids wait.
--
-- ARGV: now, priority, by whom as JSON, then ids.
if rules.frozen then
  return frozen_error()
end
local now, priority = now_of(ARGV[1]), tonumber(ARGV[2])
local waiting = {}
for at = 4, #ARGV do
  local document = document_by_id(ARGV[at])
  if document and COUNT_OF[document.state] == 'waiting' then
    waiting[#waiting + 1] = at - 3
    local values = fixed(document)
    if values.priority ~= priority or not values.by_hand then
      values.by_hand = true
      change_priority(document, priority, ARGV[3], now)
      flush()
      begin_writes()
    end
  end
end
return waiting
