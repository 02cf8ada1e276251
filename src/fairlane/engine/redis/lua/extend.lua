-- Extend: longer leases, never shorter ones; returns which of the claims were lost.
--
-- ARGV: now, lease, then seq, id and token of each claim.
local lease_ends = now_of(ARGV[1]) + tonumber(ARGV[2])
local seqs, lost = {}, {}
for at = 3, #ARGV, 3 do
  seqs[#seqs + 1] = ARGV[at]
end
load_documents(seqs)
for index, seq in ipairs(seqs) do
  local document, id, token = document_of(seq), ARGV[3 * index + 1], tonumber(ARGV[3 * index + 2])
  if not document or document.state ~= 'running' or document.id ~= id or document.token ~= token then
    lost[#lost + 1] = index
  elseif document.lease < lease_ends then
    document.lease = lease_ends
    change(document)
    write('ZADD', LEASES, lease_ends, seq)
  end
end
if next(changed_documents) then
  flush()
end
return lost
