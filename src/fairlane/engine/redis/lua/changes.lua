-- Changes: lines of the feed after a number, in order, some at a time. ARGV: after, limit, lines to read.
--
-- Returns the floor, the number after which to go on (0: there is no more), then the lines.
local limit, first = tonumber(ARGV[2]), max(tonumber(ARGV[1]) + 1, queue[FEED_FIRST])
local offset = first - queue[FEED_FIRST]
local lines = call('LRANGE', FEED, offset, offset + tonumber(ARGV[3]) - 1)
local seqs, seen = {}, {}
for at, text in ipairs(lines) do
  lines[at] = decode_line(text)
  local seq = lines[at] and lines[at].seq
  if seq and not seen[seq] then
    seen[seq], seqs[#seqs + 1] = true, seq
  end
end
load_documents(seqs)

-- Return the id of a line's customer: nil without one, false if the customer was forgotten.
local ids = {}
local function customer_id(owner)
  if owner and ids[owner] == nil then
    local record = call('HGET', CUSTOMERS, owner)
    ids[owner] = record and decode_customer(record).id
  end
  return ids[owner or '']
end

local reply = {queue[FEED_FLOOR], 0}
for at, line in ipairs(lines) do
  local id = line and customer_id(line.owner)
  if line and id ~= false then -- lines of a forgotten customer are hidden before they are swept
    local document = line.seq and document_of(line.seq)
    reply[#reply + 1] = {
      first + at - 1, line.at, line.what, id or false, document and document.id or false, line.token, line.note,
    }
    if #reply - 2 == limit then
      return reply
    end
  end
end
local last = first + #lines - 1
reply[2] = last < queue[LAST_CHANGE] and last or 0
return reply
