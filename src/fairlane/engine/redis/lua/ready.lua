-- Ready: whether a claim may find a document, and in how many milliseconds the next delayed one is due or the rate of a kind allows
-- another start (-1: neither will).
--
-- ARGV: kinds; one that is empty stands for all.
local now, first = now_of(''), call('ZRANGE', DELAYED, 0, 0, 'WITHSCORES')[2]
local due_in = first and max(0, tonumber(first) - now) or -1
local is_asked = {}
for _, name in ipairs(ARGV) do
  is_asked[name] = true
end
for _, kind in ipairs(limited_kinds()) do
  if kind.blocked and (is_asked[''] or is_asked[kind.name]) and call('EXISTS', ages_key(kind.name)) == 1 then
    local starts_in = next_start(kind) - now
    if not limit_reached(kind, now) then
      due_in = 0 -- the next claim unblocks it
    elseif starts_in > 0 then
      due_in = due_in < 0 and starts_in or min(due_in, starts_in)
    end
  end
end
if due_in == 0 then
  return {1, 0}
elseif is_asked[''] then
  return {call('EXISTS', firsts_key(0)), due_in}
end
for _, name in ipairs(ARGV) do
  local kind = limited_kind(name)
  if not (kind and kind.blocked) and call('EXISTS', ages_key(name)) == 1 then
    return {1, due_in}
  end
end
return {0, due_in}
