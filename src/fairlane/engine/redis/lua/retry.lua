-- Retry: a failed document becomes ready with fresh attempts, for its customer with a check. ARGV: now, id, 1 for its customer.
-- Returns whether it was failed; or which limit would be exceeded.
if rules.frozen then
  return frozen_error()
end
local now, document, is_by_customer = now_of(ARGV[1]), document_by_id(ARGV[2]), ARGV[3] == '1'
if not document or document.state ~= 'failed' then
  return 0
end
local owner, values = document.owner, fixed(document)
local customer = customer_of(owner)
local limits = limits_of(customer)
local refusal = is_by_customer and over_limit(limits, 'retries_max', document.id, values.retries, 1)
  or over_limit(limits, 'waiting_max', customer.id, customer.waiting, 1)
if refusal then
  return refusal
end

leave_state(document)
move_count(document, 'ready', now)
local note = false
if is_by_customer then
  values.retries = values.retries + 1
  note = check_again(document, now)
end
document.attempts, document.worker, document.ended, document.reason = 0, false, false, false
queue_up(document, now, false)
change(document)
log(now, 'revived', owner, document.seq, document.token, note)
flush()
return 1
