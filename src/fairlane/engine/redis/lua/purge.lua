-- Purge: forget old changes and then documents that ended as long ago, at most `limit` of each. ARGV: now, age, limit.
local before, limit = now_of(ARGV[1]) - tonumber(ARGV[2]), tonumber(ARGV[3])

-- Lines that a forgotten customer left, empty or not yet emptied, are not there: they go along and are not counted.
local function is_there(line)
  return not line[3] or call('HEXISTS', CUSTOMERS, line[3]) == 1
end

local trimmed, passed, last = 0, 0, 0
while trimmed < limit do
  local lines = call('LRANGE', FEED, passed, passed + 499)
  local is_young = false
  for _, text in ipairs(lines) do
    local line = text ~= '' and cmsgpack.unpack(text)
    if line and is_there(line) then
      if line[1] > before or trimmed == limit then
        is_young = true
        break
      end
      trimmed, last = trimmed + 1, passed + 1
    end
    passed = passed + 1
  end
  if is_young or #lines < 500 then
    break
  end
end

local ended = {}
if trimmed < limit then
  for place, member in ipairs(call('ZRANGEBYSCORE', ENDINGS, '-inf', before, 'LIMIT', 0, limit)) do
    ended[place] = tonumber(member)
  end
end
load_documents(ended)
for _, number in ipairs(ended) do
  local one = document(number)
  leave_place(one)
  erase(one)
end
if last > 0 then
  queue.feed_floor = queue.feed_first + last - 1
  queue.feed_first = queue.feed_first + last
end
if last > 0 or #ended > 0 then
  flush()
  if last > 0 then
    call('LTRIM', FEED, last, -1)
  end
end
return {#ended, trimmed}
