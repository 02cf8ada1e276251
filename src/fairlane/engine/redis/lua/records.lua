-- Records: the values of a group by key, those after a key; or one of them. ARGV: group, by key, after, limit.
local group = prefix .. 'records:' .. ARGV[1]
local keys = {ARGV[3]}
if ARGV[2] ~= '1' then
  keys = call('ZRANGEBYLEX', prefix .. 'record-keys:' .. ARGV[1], ARGV[3] == '' and '-' or '(' .. ARGV[3], '+', 'LIMIT', 0, ARGV[4])
end
local answer = {}
for place, record in ipairs(read_many(group, keys)) do
  if record then
    local version, value = opened_values(record)
    answer[#answer + 1] = {keys[place], value, version}
  end
end
return answer
