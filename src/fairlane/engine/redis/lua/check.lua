-- Check: one check of a customer without a document. ARGV: now, customer, cost.
local now, name, cost = now_of(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local owner = call('HGET', NUMBERS, name) or new_customer(name)
local customer = customer_of(owner)
local policy = policy_of(customer)
check(policy, customer, now, step_of(cost, weight_of(customer)))
touched_customers[owner] = true
local counter = customer[COUNTER]
local priority = level(policy, counter)
log(now, 'checked', owner, nil, nil, format(
  '{"cost": %d, "counter": %d, "priority": %d, "policy": %d, "terms": %d}',
  cost, counter, priority, rules[VERSION], customer[TERMS_VERSION]
))
flush()
return {priority, counter, now, rules[VERSION], customer[TERMS_VERSION]}
