-- Take over: a running claim gets another worker, the next token and a lease of its own; returns it in a list, which is empty if
-- the claim was lost.
--
-- ARGV: now, id, token, worker, lease.
local now, worker = now_of(ARGV[1]), ARGV[4]
local document = document_by_id(ARGV[2])
if not document or document.state ~= 'running' or document.token ~= tonumber(ARGV[3]) then
  return {}
end
local seq, owner, lease_ends = document.seq, document.owner, now + tonumber(ARGV[5])
local priority, kind = place_of(document)
document.token, document.worker, document.lease = document.token + 1, worker, lease_ends
change(document)
write('ZADD', LEASES, as_text(lease_ends), seq)
log(now, 'taken_over', owner, seq, document.token, worker)
local claims = {{
  document.id, document.token, tonumber(seq), customer_of(owner).id, kind, priority, call('HGET', PAYLOADS .. piece_of(seq), seq),
  document.attempts, document.attempts_max, lease_ends, 0, 0,
}}
flush()
return claims
