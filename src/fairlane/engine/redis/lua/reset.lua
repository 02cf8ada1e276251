-- Reset: the customer stands as never seen; its documents are not touched. ARGV: now, customer.
local now, owner = now_of(ARGV[1]), call('HGET', NUMBERS, ARGV[2])
if owner then
  local customer = customer_of(owner)
  customer[COUNTER], customer[UPDATED], customer[RESET_AT], customer[PACKED] = 0, false, false, false
  touched_customers[owner] = true
  log(now, 'reset', owner)
  flush()
end
return 0
