-- Reclaim: documents whose lease ran out go back to their lane, or fail if their attempts are spent. ARGV: now, limit.
local now = now_of(ARGV[1])
local expired = call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', 0, ARGV[2])
load_documents(expired)
load_customers_of(expired)
for _, place in ipairs(expired) do
  local one = document(place)
  if one[ATTEMPTS] >= one[ATTEMPTS_MAX] then
    finish(one, 'failed', now, format(
      'the worker stopped or died: its lease ran out on attempt %d of %d', one[ATTEMPTS], one[ATTEMPTS_MAX]
    ))
  else
    come_back(one, 'expired', now, 0)
  end
end
if #expired > 0 then
  flush()
end
return #expired
