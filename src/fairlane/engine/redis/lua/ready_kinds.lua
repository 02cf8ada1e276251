-- Ready kinds: the kinds that have a competing head, in order, those above a kind. ARGV: that kind, limit.
local members, oldest, names, reply = call('ZRANGE', firsts_key(0), 0, -1, 'WITHSCORES'), {}, {}, {}
for at = 1, #members, 2 do
  local name = sub(members[at], 17)
  if name > ARGV[1] then
    names[#names + 1], oldest[name] = name, tonumber(members[at + 1])
  end
end
table.sort(names)
for at = 1, min(#names, tonumber(ARGV[2])) do
  reply[at] = {names[at], oldest[names[at]]}
end
return reply
