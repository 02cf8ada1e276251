-- Pack: rows of a queue that moves to another store, in order, some at a time. ARGV: part, then what that part needs.

-- Where the queue's own counters stand.
local function pack_queue()
  local clocks = {}
  for priority = 1, 9 do
    clocks[priority] = queue[CLOCK + priority]
  end
  return {
    call('HGET', prefix .. 'rules', rules[VERSION]), rules[VERSION], clocks, queue[DISPATCHES], queue[LAST_NUMBER],
    queue[LAST_CHANGE], queue[LAST_RECORD],
  }
end

-- Customers after an id. ARGV: id, limit.
local function pack_customers()
  local answer = {}
  local names = call('ZRANGEBYLEX', prefix .. 'names', ARGV[2] == '' and '-' or '(' .. ARGV[2], '+', 'LIMIT', 0, ARGV[3])
  for at, owner in ipairs(read_many(NUMBERS, names)) do
    local customer = customer_of(owner)
    answer[at] = {
      customer[NAME], customer[COUNTER], customer[UPDATED], customer[RESET_AT], customer[RESETS],
      customer[TERMS] and customer[TERMS].json, customer[TERMS_VERSION], customer[DONE], customer[FAILED], customer[CANCELLED],
    }
  end
  return answer
end

-- Documents after a number: the number after which to go on (0: there is no more), then rows. ARGV: number, numbers to look at.
local function pack_documents()
  local first, places = tonumber(ARGV[2]) + 1, {}
  local last = min(queue[LAST_NUMBER], first + tonumber(ARGV[3]) - 1)
  for number = first, last do
    places[#places + 1] = format('%016d', number)
  end
  load_documents(places)
  local answer = {last < queue[LAST_NUMBER] and last or 0}
  local payloads, results = read_places(PAYLOADS, places), read_places(RESULTS, places)
  for at, place in ipairs(places) do
    local one = document(place)
    if one then
      local row = snapshot(one)
      local part, size = fixed(one), #row
      row[size + 1], row[size + 2], row[size + 3] = part[DIGEST], part[WEIGHT], part[MADE_RESETS]
      row[size + 4], row[size + 5] = payloads[at], results[at]
      answer[#answer + 1] = row
    end
  end
  return answer
end

-- Lanes with tags of some customers: the last of these customers (nothing: there is no more), then lanes in any order of theirs.
-- ARGV: ( or [ and the customer to begin after or with, or -; how many customers.
local function pack_lanes()
  local names = call('ZRANGEBYLEX', prefix .. 'names', ARGV[2], '+', 'LIMIT', 0, ARGV[3])
  local answer = {#names == tonumber(ARGV[3]) and names[#names] or ''}
  for at, owner in ipairs(read_many(NUMBERS, names)) do
    for _, lane in ipairs(lanes_of(owner)) do
      if lane.start or lane.finish > 0 then
        answer[#answer + 1] = {names[at], lane.kind, lane.priority, lane.start, lane.finish}
      end
    end
  end
  return answer
end

-- Records after a group and key. ARGV: group, key, limit; a limit only: from the beginning.
local function pack_records()
  local answer, limit, is_begun = {}, tonumber(ARGV[#ARGV]), #ARGV > 2
  for _, group in ipairs(call('ZRANGEBYLEX', prefix .. 'groups', is_begun and '[' .. ARGV[2] or '-', '+')) do
    local after = is_begun and group == ARGV[2] and '(' .. ARGV[3] or '-'
    local keys = call('ZRANGEBYLEX', prefix .. 'record-keys:' .. group, after, '+', 'LIMIT', 0, limit - #answer)
    for at, record in ipairs(read_many(prefix .. 'records:' .. group, keys)) do
      local version, value = opened_values(record)
      answer[#answer + 1] = {group, keys[at], value, version}
    end
    if #answer == limit then
      break
    end
  end
  return answer
end

local parts = {
  queue = pack_queue, customers = pack_customers, documents = pack_documents, lanes = pack_lanes, records = pack_records,
}
return parts[ARGV[1]]()
