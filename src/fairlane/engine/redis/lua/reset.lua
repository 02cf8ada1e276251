-- Reset: the customer stands as never seen; its documents are not touched. ARGV: now, customer.
local now, owner = now_of(ARGV[1]), owner_by_name(ARGV[2])
if owner then
  local customer = customer_of(owner)
  customer[COUNTER], customer[UPDATED], customer[RESET_AT] = 0, false, false
  touched_customers[owner] = true
  log(now, 'reset', owner)
  flush()
end
return 0
