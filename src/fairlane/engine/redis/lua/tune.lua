-- Tune: other terms for a customer, under the next version; 0 and no change if the version is not the current one.
--
-- ARGV: now, customer, version, JSON, weight, cap, paused, interval, reset, has depths, depths.
local now, name, version = now_of(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local owner = call('HGET', NUMBERS, name)
if version ~= (owner and customer_of(owner)[TERMS_VERSION] or 0) then
  return 0
end
owner = owner or new_customer(name)
local customer = customer_of(owner)
local was_blocked = is_blocked(customer)
local terms = {
  weight = tonumber(ARGV[5]), cap = tonumber(ARGV[6]) or false, paused = ARGV[7] == '1', interval = tonumber(ARGV[8]) or false,
  reset = ARGV[9] ~= '' and ARGV[9], depths = false, json = ARGV[4],
}
if ARGV[10] == '1' then
  terms.depths = {}
  for place = 11, #ARGV do
    terms.depths[place - 10] = tonumber(ARGV[place])
  end
end
customer[TERMS], customer[TERMS_VERSION], customer[PACKED] = terms, version + 1, false
touched_customers[owner] = true
gate(owner, was_blocked)
add('HSET', prefix .. 'terms-of:' .. owner, version + 1, ARGV[4])
log(now, 'tuned', owner, nil, nil, ARGV[4])
flush()
return version + 1
