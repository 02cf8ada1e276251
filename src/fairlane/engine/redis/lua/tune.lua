-- Tune: replace a customer's terms; returns their new version, or 0 if the version is not current.
--
-- ARGV: now, customer, version, JSON, weight, cap, paused, interval, reset, five limits, has depths, depths.
if rules.frozen then
  return frozen_error()
end
local now, id, version = now_of(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local owner = call('HGET', OWNERS, id)
if version ~= (owner and customer_of(owner).terms_version or 0) then
  return 0
end
owner = owner or new_customer(id)
local customer = customer_of(owner)
local was_blocked = is_blocked(customer)
customer.terms_version, customer.stored = version + 1, false
customer.terms = {
  weight = tonumber(ARGV[5]), cap = tonumber(ARGV[6]) or false, paused = ARGV[7] == '1', interval = tonumber(ARGV[8]) or false,
  reset = ARGV[9] ~= '' and ARGV[9], limits = decode_limits(unpack(ARGV, 10, 14)),
  depths = ARGV[15] == '1' and numbers_from(16), json = ARGV[4],
}
changed_customers[owner] = true
update_blocked(owner, was_blocked)
write('HSET', prefix .. 'terms-of:' .. owner, version + 1, ARGV[4])
log(now, 'tuned', owner, nil, nil, ARGV[4])
flush()
return version + 1
