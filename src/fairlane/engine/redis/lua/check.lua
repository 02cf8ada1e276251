-- Check: one check of a customer without a document. ARGV: now, customer, cost.
if rules.frozen then
  return frozen_error()
end
local now, id, cost = now_of(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local owner = call('HGET', OWNERS, id) or new_customer(id)
local customer = customer_of(owner)
local policy = policy_of(customer)
check(policy, customer, now, step_of(cost, weight_of(customer)))
changed_customers[owner] = true
local counter = customer.counter
local priority = priority_of(policy, counter)
log(now, 'checked', owner, nil, nil, format(
  '{"cost": %d, "counter": %d, "priority": %d, "policy": %d, "terms": %d}',
  cost, counter, priority, rules.version, customer.terms_version
))
flush()
return {priority, counter, now, rules.version, customer.terms_version}
