-- Purge: forget old changes and then documents that ended as long ago, at most `limit` of each. ARGV: now, age, limit.
local before, limit = now_of(ARGV[1]) - tonumber(ARGV[2]), tonumber(ARGV[3])
local BLOCK = 500

-- Lines that a forgotten customer left, empty or not yet emptied, are not there: they go along and are not counted.
local function is_there(line)
  local owner = line[LINE_OWNER]
  return not owner or customers[owner] or call('HEXISTS', CUSTOMERS, owner) == 1
end

local trimmed, passed, last, is_young = 0, 0, 0, false
repeat
  local lines = call('LRANGE', FEED, passed, passed + BLOCK - 1)
  for _, text in ipairs(lines) do
    local line = text ~= '' and {opened_values(text)}
    if line and is_there(line) then
      if line[LINE_AT] > before or trimmed == limit then
        is_young = true
        break
      end
      trimmed, last = trimmed + 1, passed + 1
    end
    passed = passed + 1
  end
until is_young or #lines < BLOCK

local ended = {}
if trimmed < limit then
  ended = call('ZRANGEBYSCORE', prefix .. 'endings', '-inf', before, 'LIMIT', 0, limit)
end
load_documents(ended)
for _, place in ipairs(ended) do
  local one = document(place)
  leave_place(one)
  erase(one)
end
if last > 0 then
  queue[FEED_FLOOR] = queue[FEED_FIRST] + last - 1
  queue[FEED_FIRST] = queue[FEED_FIRST] + last
end
if last > 0 or #ended > 0 then
  flush()
  if last > 0 then
    call('LTRIM', FEED, last, -1)
  end
end
return {#ended, trimmed}
