-- Retry: a failed document becomes ready with fresh attempts, for its customer with a check; one whose parts are not done waits for
-- them again, and these are ready. ARGV: now, id, 1 for its customer.
-- Returns whether it was failed, and no part of a document that is kept; or which limit would be exceeded.
if rules.frozen then
  return frozen_error()
end
local now, document, is_by_customer = now_of(ARGV[1]), document_by_id(ARGV[2]), ARGV[3] == '1'
if not document or document.state ~= 'failed' then
  return 0
end
local owner, values = document.owner, fixed(document)
if values.whole and document_by_id(values.whole) then
  return 0
end
local customer = customer_of(owner)
local limits = limits_of(customer)
local refusal = is_by_customer and over_limit(limits, 'retries_max', document.id, values.retries, 1)
  or over_limit(limits, 'waiting_max', customer.id, customer.waiting, 1)
if refusal then
  return refusal
end

-- Let a document that ended wait again.
local function revive(revived, note)
  leave_state(revived)
  move_count(revived, 'ready', now)
  revived.attempts, revived.worker, revived.ended, revived.reason = 0, false, false, false
  if fixed(revived).parts_left > 0 then
    wait_for_parts(revived)
  else
    queue_up(revived, now, false)
  end
  change(revived)
  log(now, 'revived', owner, revived.seq, revived.token, note)
end

local note = false
if is_by_customer then
  values.retries = values.retries + 1
  note = check_again(document, now)
end
revive(document, note)
local revived = {document}
for _, whole in ipairs(revived) do -- which grows
  for _, part in ipairs(fixed(whole).parts_left > 0 and parts_left_of(whole) or {}) do
    revive(part, false)
    revived[#revived + 1] = part
  end
end
flush()
return 1
