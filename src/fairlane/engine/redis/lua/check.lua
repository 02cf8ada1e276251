-- Check: one check of a customer without a document.
local now, name, cost = now_of(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local owner = owner_by_name(name) or new_customer(name)
local customer = customer_of(owner)
local policy = policy_of(customer)
check(policy, customer, now, step_of(cost, weight_of(customer)))
touched_customers[owner] = true
local counter = customer[COUNTER]
local priority = level(policy, counter)
log(now, 'checked', owner, nil, nil, format(
  '{"cost": %.0f, "counter": %.0f, "priority": %d, "policy": %.0f, "terms": %.0f}',
  cost, counter, priority, queue.rules.version, customer[TERMS_VERSION]
))
flush()
return {priority, counter, now, queue.rules.version, customer[TERMS_VERSION]}
