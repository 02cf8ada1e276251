-- Records: the values of a group by key, those after a key; or one of them. ARGV: group, 1 for one key, key, limit.
local group, keys = ARGV[1], {ARGV[3]}
if ARGV[2] ~= '1' then
  keys = call('ZRANGEBYLEX', prefix .. 'record-keys:' .. group, ARGV[3] == '' and '-' or '(' .. ARGV[3], '+', 'LIMIT', 0, ARGV[4])
end
local reply = {}
for at, record in ipairs(read_many(prefix .. 'records:' .. group, keys)) do
  if record then
    local version, value = decode(record)
    reply[#reply + 1] = {keys[at], value, version}
  end
end
return reply
