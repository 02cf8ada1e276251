-- Reclaim: documents whose lease ran out go back to their lane, or fail if their attempts are spent. ARGV: now, limit.
local now = now_of(ARGV[1])
local expired = call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', 0, ARGV[2])
load_documents(expired)
load_customers_of(expired)
local ended = {}
for at, seq in ipairs(expired) do
  local document = document_of(seq)
  ended[at] = document
  if document.attempts >= document.attempts_max then
    finish(document, 'failed', now, format(
      'the worker stopped or died: its lease ran out on attempt %d of %d', document.attempts, document.attempts_max
    ))
  else
    requeue(document, 'expired', now, 0)
  end
end
end_families(ended, now)
if #expired > 0 then
  flush()
end
return #expired
