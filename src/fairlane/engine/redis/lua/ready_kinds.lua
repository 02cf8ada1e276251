-- Ready kinds: the kinds that have a competing head, in order, those above a kind. ARGV: that kind, limit.
local kinds, reply = {}, {}
for _, kind in ipairs(call('SMEMBERS', prefix .. 'kinds')) do
  if kind > ARGV[1] then
    kinds[#kinds + 1] = kind
  end
end
table.sort(kinds)
for _, kind in ipairs(kinds) do
  local oldest = call('ZRANGE', ages_key(kind), 0, 0, 'WITHSCORES')
  if oldest[2] then
    reply[#reply + 1] = {kind, tonumber(oldest[2])}
  end
  if #reply == tonumber(ARGV[2]) then
    break
  end
end
return reply
