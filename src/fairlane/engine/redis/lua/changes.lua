-- Changes: lines of the feed after a number, in order, some at a time. ARGV: after, limit, lines to look at.
--
-- Answers the floor, the number after which to go on (0: there is no more), then the lines.
local after, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local first = math.max(after + 1, queue.feed_first)
local lines = call('LRANGE', FEED, first - queue.feed_first, first - queue.feed_first + tonumber(ARGV[3]) - 1)
local answer = {queue.feed_floor, 0}
local names, numbers, wanted = {}, {}, {}
for place, text in ipairs(lines) do
  lines[place] = text ~= '' and cmsgpack.unpack(text)
  local number = lines[place] and lines[place][4]
  if number and not wanted[number] then
    wanted[number], numbers[#numbers + 1] = true, number
  end
end
load_documents(numbers)

local function name_of(owner)
  if names[owner] == nil then
    local record = call('HGET', CUSTOMERS, owner)
    names[owner] = record and cmsgpack.unpack(record)[NAME]
  end
  return names[owner]
end

for place, line in ipairs(lines) do
  local owner = line and line[3]
  if line and (not owner or name_of(owner)) then -- lines of a forgotten customer are not there
    local one = line[4] and document(line[4])
    answer[#answer + 1] = {
      first + place - 1, line[1], line[2], owner and name_of(owner), one and one.moving[ID] or false, line[5], line[6],
    }
    if #answer - 2 == limit then
      return answer
    end
  end
end
answer[2] = first + #lines - 1 < queue.last_change and first + #lines - 1 or 0
return answer
