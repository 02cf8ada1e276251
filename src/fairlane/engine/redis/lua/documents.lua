-- Documents: snapshots, newest first, below a number; those of a customer, in a state, all, or one by its id.
--
-- ARGV: id, customer or all; which id or customer; state; below which number; limit; how many to read.
-- Returns the number below which to go on (0: there is no more), then the snapshots.
local by, subject, state, limit, scan = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[5]), tonumber(ARGV[6])
local below = min(tonumber(ARGV[4]) or queue[LAST_NUMBER] + 1, queue[LAST_NUMBER] + 1)
local reply = {0}

if by == 'id' then
  local document = document_by_id(subject)
  reply[2] = document and snapshot(document) or nil
  return reply
end

-- Return the seqs of running documents below a number, highest first.
local function running_below()
  local seqs = {}
  for _, seq in ipairs(call('ZRANGE', LEASES, 0, -1)) do
    if tonumber(seq) < below then
      seqs[#seqs + 1] = seq
    end
  end
  table.sort(seqs, function(seq, other) return seq > other end)
  return seqs
end

-- Return the seqs to read, highest first: those of an index, those that run (which are few), or simply every number.
local function seqs_below()
  local owner, seqs = by == 'customer' and call('HGET', OWNERS, subject), {}
  if by == 'customer' and not owner then
    return seqs
  elseif owner or state == 'failed' or state == 'cancelled' then
    local index = prefix .. (owner and 'documents-of:' .. owner or state)
    return call('ZREVRANGEBYSCORE', index, below - 1, '-inf', 'LIMIT', 0, scan)
  elseif state == 'running' then
    seqs = running_below()
    scan = #seqs + 1 -- these are all there are
    return seqs
  end
  for number = below - 1, max(1, below - scan), -1 do
    seqs[#seqs + 1] = seq_of(number)
  end
  return seqs
end

local seqs = seqs_below()
load_documents(seqs)
for _, seq in ipairs(seqs) do
  local document = document_of(seq)
  if document and (state == '' or document.state == state) then
    reply[#reply + 1] = snapshot(document)
    if #reply > limit then
      return reply
    end
  end
end
reply[1] = #seqs >= scan and tonumber(seqs[#seqs]) or 0
return reply
