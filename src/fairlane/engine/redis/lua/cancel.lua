-- Cancel: documents that have not ended end as cancelled, with their parts; returns which of the ids did. ARGV: now, then ids.
if rules.frozen then
  return frozen_error()
end
local now = now_of(ARGV[1])
local cancelled, ended = {}, {}
for at = 2, #ARGV do
  local document = document_by_id(ARGV[at])
  local state = document and document.state
  if state == 'ready' or state == 'delayed' or state == 'running' then
    finish(document, 'cancelled', now)
    cancelled[#cancelled + 1], ended[#ended + 1] = at - 1, document
  end
end
end_families(ended, now)
if #cancelled > 0 then
  flush()
end
return cancelled
