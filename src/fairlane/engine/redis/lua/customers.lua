-- Customers: one by its id, or those after an id by id; what is stored of each, for Python to look at.
--
-- ARGV: now, 1 for one, its id or the id after which to begin, limit.
local now, names = now_of(ARGV[1]), {ARGV[3]}
if ARGV[2] ~= '1' then
  names = call('ZRANGEBYLEX', prefix .. 'names', ARGV[3] == '' and '-' or '(' .. ARGV[3], '+', 'LIMIT', 0, ARGV[4])
end
local answer = {now, rules[VERSION], call('HGET', prefix .. 'rules', rules[VERSION])}
for _, name in ipairs(names) do
  local owner = call('HGET', NUMBERS, name)
  if owner then
    local customer, oldest = opened_customer(call('HGET', CUSTOMERS, owner)), false
    local lanes = call('SMEMBERS', prefix .. 'lanes-of:' .. owner)
    for at, rest in ipairs(lanes) do
      lanes[at] = owner .. ':' .. rest
    end
    for first = 1, #lanes, ARGUMENTS_MAX do
      for _, lane in ipairs(call('HMGET', LANES, unpack(lanes, first, min(first + ARGUMENTS_MAX - 1, #lanes)))) do
        local _, ready = opened_values(lane)
        oldest = ready and min(oldest or tonumber(ready), tonumber(ready)) or oldest
      end
    end
    answer[#answer + 1] = {
      name, customer[COUNTER], customer[UPDATED], customer[RESET_AT], customer[RESETS], customer[WAITING], customer[RUNNING],
      customer[DONE], customer[FAILED], customer[CANCELLED], oldest, customer[TERMS_VERSION],
      customer[TERMS] and customer[TERMS].json,
    }
  end
end
return answer
