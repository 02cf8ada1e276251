-- Documents: snapshots, newest first, below a number; those of a customer, or all, that match a filter; or one by its id.
--
-- ARGV: id, customer or all; which id or customer; then of a filter, empty where it does not matter: state, kind, part of the
-- reason, submitted since, submitted until; below which number; limit; how many to examine.
-- Returns the number below which to go on (0: there is no more), then the snapshots.
local by, subject, state, kind, reason = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

if by == 'id' then
  local document = document_by_id(subject)
  return {0, document and snapshot(document) or nil}
end

local since, until_ = tonumber(ARGV[6]), tonumber(ARGV[7])
local limit, left = tonumber(ARGV[9]), tonumber(ARGV[10])
local below = min(tonumber(ARGV[8]) or queue[LAST_NUMBER] + 1, queue[LAST_NUMBER] + 1)
local reply = {0}

local function matches(document)
  if state ~= '' and document.state ~= state then
    return false
  elseif reason ~= '' and not (document.reason and string.find(document.reason, reason, 1, true)) then
    return false
  elseif kind == '' and not since and not until_ then
    return true
  end
  local values = fixed(document)
  return (kind == '' or values.kind == kind) and (not since or values.submitted >= since)
    and (not until_ or values.submitted < until_)
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

-- Return up to `count` numbers below a number as seqs, highest first; pieces in which nothing is left are passed over.
local function numbers_below(count)
  local seqs, number, piece = {}, below - 1, nil
  while number >= 1 and #seqs < count do
    local seq = seq_of(number)
    if piece ~= piece_of(seq) then
      piece = piece_of(seq)
      if call('EXISTS', DOCUMENTS .. piece) == 0 then
        number = tonumber(piece .. string.rep('0', #seq - #piece)) - 1
        piece, left = nil, left - 1
      end
    end
    if piece then
      seqs[#seqs + 1] = seq
      number = number - 1
    elseif left <= #seqs then
      break
    end
  end
  below = number + 1
  return seqs
end

local owner = by == 'customer' and call('HGET', OWNERS, subject)
if by == 'customer' and not owner then
  return reply
end
local index = (owner or state == 'failed' or state == 'cancelled') and prefix .. (owner and 'documents-of:' .. owner or state)

-- Return the next seqs to examine, highest first, and move `below`: from an index, those that run (which are few), or simply
-- every number.
local function next_seqs(count)
  local seqs
  if index then
    seqs = call('ZREVRANGEBYSCORE', index, below - 1, '-inf', 'LIMIT', 0, count)
    below = #seqs < count and 1 or tonumber(seqs[#seqs])
  elseif state == 'running' then
    seqs = running_below()
    below = 1
  else
    seqs = numbers_below(count)
  end
  return seqs
end

while below > 1 and left > 0 do
  local seqs = next_seqs(min(left, max(limit, 20)))
  left = left - #seqs
  load_documents(seqs)
  for _, seq in ipairs(seqs) do
    local document = document_of(seq)
    if document and matches(document) then
      reply[#reply + 1] = snapshot(document)
      if #reply > limit then
        reply[1] = tonumber(seq)
        return reply
      end
    end
  end
end
reply[1] = below > 1 and below or 0
return reply
