-- Reset: the customer is as never seen; its documents are not touched. ARGV: now, customer.
if rules.frozen then
  return frozen_error()
end
local now, owner = now_of(ARGV[1]), call('HGET', OWNERS, ARGV[2])
if owner then
  local customer = customer_of(owner)
  customer.counter, customer.updated, customer.parts, customer.stored = 0, false, false, false
  changed_customers[owner] = true
  log(now, 'reset', owner)
  flush()
end
return 0
