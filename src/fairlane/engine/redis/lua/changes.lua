-- Changes: lines of the feed after a number, in order, some at a time. ARGV: after, limit, lines to look at.
--
-- Answers the floor, the number after which to go on (0: there is no more), then the lines.
local limit, first = tonumber(ARGV[2]), max(tonumber(ARGV[1]) + 1, queue[FEED_FIRST])
local offset = first - queue[FEED_FIRST]
local lines = call('LRANGE', FEED, offset, offset + tonumber(ARGV[3]) - 1)
local answer = {queue[FEED_FLOOR], 0}
local names, places, seen = {}, {}, {}
for at, text in ipairs(lines) do
  lines[at] = text ~= '' and {opened_values(text)}
  local place = lines[at] and lines[at][LINE_PLACE]
  if place and not seen[place] then
    seen[place], places[#places + 1] = true, place
  end
end
load_documents(places)

local function name_of(owner)
  if names[owner] == nil then
    local record = call('HGET', CUSTOMERS, owner)
    names[owner] = record and opened_customer(record)[NAME]
  end
  return names[owner]
end

for at, line in ipairs(lines) do
  local owner = line and line[LINE_OWNER]
  if line and (not owner or name_of(owner)) then -- lines of a forgotten customer are not there
    local one = line[LINE_PLACE] and document(line[LINE_PLACE])
    answer[#answer + 1] = {
      first + at - 1, line[LINE_AT], line[LINE_WHAT], owner and name_of(owner), one and one[ID] or false, line[LINE_TOKEN],
      line[LINE_NOTE],
    }
    if #answer - 2 == limit then
      return answer
    end
  end
end
local last = first + #lines - 1
answer[2] = last < queue[LAST_CHANGE] and last or 0
return answer
