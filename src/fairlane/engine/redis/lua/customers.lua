-- Customers: one by its id, or those after an id by id, as they are stored.
--
-- ARGV: now, 1 for one customer, its id or the id after which to begin, limit.
local now, ids = now_of(ARGV[1]), {ARGV[3]}
if ARGV[2] ~= '1' then
  ids = call('ZRANGEBYLEX', prefix .. 'names', ARGV[3] == '' and '-' or '(' .. ARGV[3], '+', 'LIMIT', 0, ARGV[4])
end

-- Return since when the oldest head of a customer's lanes is ready, or false.
local function oldest_ready(owner)
  local names, oldest = call('SMEMBERS', prefix .. 'lanes-of:' .. owner), false
  for at, rest in ipairs(names) do
    names[at] = owner .. ':' .. rest
  end
  for _, record in ipairs(read_many(LANES, names)) do
    local _, ready = decode(record)
    oldest = ready and min(oldest or tonumber(ready), tonumber(ready)) or oldest
  end
  return oldest
end

local reply = {now, rules.version, call('HGET', prefix .. 'rules', rules.version)}
for _, id in ipairs(ids) do
  local owner = call('HGET', OWNERS, id)
  if owner then
    local customer = customer_of(owner)
    reply[#reply + 1] = {
      id, customer.counter, customer.updated, customer.resets, customer.parts, customer.waiting, customer.running,
      customer.done, customer.failed, customer.cancelled, oldest_ready(owner), customer.documents, customer.bytes,
      customer.usual ~= NO_USUAL and customer.usual, customer.terms_version, customer.terms and customer.terms.json,
    }
  end
end
return reply
