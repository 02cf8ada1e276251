-- Take over: running claims get another worker, the next token and a lease of its own, in order; returns those that were not lost.
--
-- ARGV: now, worker, lease, then id and token of each claim.
local now, worker = now_of(ARGV[1]), ARGV[2]
local lease_ends, claims = now + tonumber(ARGV[3]), {}
for at = 4, #ARGV, 2 do
  local document = document_by_id(ARGV[at])
  if document and document.state == 'running' and document.token == tonumber(ARGV[at + 1]) then
    local seq, owner = document.seq, document.owner
    local priority, kind = place_of(document)
    document.token, document.worker, document.lease = document.token + 1, worker, lease_ends
    change(document)
    write('ZADD', LEASES, as_text(lease_ends), seq)
    log(now, 'taken_over', owner, seq, document.token, worker)
    claims[#claims + 1] = {
      document.id, document.token, tonumber(seq), customer_of(owner).id, kind, priority,
      call('HGET', PAYLOADS .. piece_of(seq), seq), document.attempts, document.attempts_max, lease_ends, 0, 0,
    }
  end
end
if next(claims) then
  flush()
end
return claims
