-- Documents: snapshots, newest first, below a number; those of a customer, in a state, all, or one by its id.
--
-- ARGV: id, customer or all; which id or customer; state; below which number; limit; how many to look at.
-- Answers the number below which to go on (0: there is no more), then the snapshots.
local by, subject, state, limit, looks = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[5]), tonumber(ARGV[6])
local last = queue[LAST_NUMBER] + 1
local before = ARGV[4] == '' and last or min(tonumber(ARGV[4]), last)
local answer = {0}

local function show(one)
  answer[#answer + 1] = snapshot(one)
end

if by == 'id' then
  local one = document_by_id(subject)
  if one then
    show(one)
  end
  return answer
end

-- What to look at, highest number first: what an index has, what runs (which is not much), or simply every number.
local function places_below()
  local owner = by == 'customer' and call('HGET', NUMBERS, subject)
  local places = {}
  if by == 'customer' and not owner then
    return places
  elseif owner or state == 'failed' or state == 'cancelled' then
    local index = prefix .. (owner and 'documents-of:' .. owner or state)
    return call('ZREVRANGEBYSCORE', index, before - 1, '-inf', 'LIMIT', 0, looks)
  elseif state == 'running' then
    for _, place in ipairs(call('ZRANGE', LEASES, 0, -1)) do
      if tonumber(place) < before then
        places[#places + 1] = place
      end
    end
    table.sort(places, function(one, other) return one > other end)
    looks = #places + 1
    return places
  end
  for number = before - 1, max(1, before - looks), -1 do
    places[#places + 1] = format('%016d', number)
  end
  return places
end

local places = places_below()
load_documents(places)
for _, place in ipairs(places) do
  local one = document(place)
  if one and (state == '' or one[STATE] == state) then
    show(one)
    if #answer > limit then
      return answer
    end
  end
end
answer[1] = #places >= looks and tonumber(places[#places]) or 0
return answer
