-- Claim: up to `limit` documents in dispatch order, each with a lease, a fresh token and one more attempt counted.
--
-- ARGV: now, worker, limit, lease, due at most, how many kinds (-1: all), then kind and attempts of each.
local now, worker, limit, kinds_count = now_of(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[6])
local lease_ends = now + tonumber(ARGV[4])

-- Delayed documents that are due join their lanes first; that is whole in itself, so it is written before the rest is read.
local due = call('ZRANGEBYSCORE', DELAYED, '-inf', now, 'LIMIT', 0, ARGV[5])
if #due > 0 then
  local numbers = {}
  for place, member in ipairs(due) do
    numbers[place] = tonumber(member)
  end
  load_documents(numbers)
  for _, number in ipairs(numbers) do
    local one = document(number)
    leave_place(one)
    one.moving[STATE] = 'ready'
    touched_documents[number] = one
    join(one, one.moving[READY])
  end
  flush()
end

local kinds, attempts_of = {}, {}
if kinds_count < 0 then
  kinds = call('SMEMBERS', KINDS)
end
for place = 1, kinds_count do
  kinds[place] = ARGV[5 + 2 * place]
  attempts_of[kinds[place]] = tonumber(ARGV[6 + 2 * place])
end

local served, served_list, capped = {}, {}, {} -- lanes that had a turn in this round, customers that may have no more

-- -- heads in the order of an index, without those that this round has made out of date --

local function parsed_turn(member, kind)
  local owner = tonumber(string.sub(member, 35))
  local priority = tonumber(string.sub(member, 1, 1))
  return {order = string.sub(member, 1, 33), owner = owner, priority = priority, kind = kind, head = tonumber(string.sub(member, 18, 33))}
end

local function parsed_age(member, kind)
  local owner = tonumber(string.sub(member, 36))
  local priority = tonumber(string.sub(member, 34, 34))
  return {order = string.sub(member, 1, 32), owner = owner, priority = priority, kind = kind, head = tonumber(string.sub(member, 17, 32))}
end

-- Read together what serving these heads will need.
local function look_ahead(heads)
  local numbers, owners, names = {}, {}, {}
  for place, head in ipairs(heads) do
    head.name = lane_name(head.owner, head.priority, head.kind)
    numbers[place], owners[place], names[place] = head.head, head.owner, head.name
  end
  load_documents(numbers)
  load_customers(owners)
  for place, record in ipairs(read_many(LANES, names)) do
    local head = heads[place]
    if not lanes[head.name] then
      opened_lane(head.name, head.owner, head.priority, head.kind, record)
    end
  end
end

local function stream(index, parsed, size)
  local streams = {}
  for place, kind in ipairs(kinds) do
    streams[place] = {kind = kind, key = prefix .. index .. kind, parsed = parsed, size = size, at = 0, read = 0, heads = {}}
  end
  return streams
end

local function advance(one)
  one.at = one.at + 1
  if one.at > #one.heads then
    local members = call('ZRANGE', one.key, one.read, one.read + one.size - 1)
    one.read, one.at, one.heads = one.read + #members, 1, {}
    for place, member in ipairs(members) do
      one.heads[place] = one.parsed(member, one.kind)
    end
    if #members > 0 then
      look_ahead(one.heads)
    end
  end
  one.current = one.heads[one.at]
end

local function first_of(streams)
  local best
  for _, one in ipairs(streams) do
    if not one.is_begun then
      one.is_begun = true
      advance(one)
    end
    while one.current and (served[one.current.name] or capped[one.current.owner]) do
      advance(one)
    end
    if one.current and (not best or one.current.order < best.order) then
      best = one.current
    end
  end
  return best and lanes[best.name], best and best.order
end

-- -- a heap of the next heads of lanes that were served --

local heap = {}

local function push(entry)
  local at = #heap + 1
  heap[at] = entry
  while at > 1 do
    local parent = floor(at / 2)
    if heap[parent].order <= heap[at].order then
      break
    end
    heap[parent], heap[at] = heap[at], heap[parent]
    at = parent
  end
end

local function pop()
  local last = table.remove(heap)
  if #heap == 0 then
    return
  end
  heap[1] = last
  local at = 1
  while true do
    local child = 2 * at
    if heap[child + 1] and heap[child + 1].order < heap[child].order then
      child = child + 1
    end
    if not heap[child] or heap[at].order <= heap[child].order then
      return
    end
    heap[child], heap[at] = heap[at], heap[child]
    at = child
  end
end

-- -- whose turn it is --

local turns, ages = stream('turns:', parsed_turn, math.min(limit + 4, 128)), nil

local function first_in_turn()
  local lane, order = first_of(turns)
  while heap[1] and (heap[1].lane.order ~= heap[1].order or capped[heap[1].lane.owner]) do
    pop()
  end
  if heap[1] and (not order or heap[1].order < order) then
    return heap[1].lane
  end
  return lane
end

local function longest_ready()
  ages = ages or stream('ages:', parsed_age, 8)
  local best, order = first_of(ages)
  for _, lane in ipairs(served_list) do
    if lane.head and not capped[lane.owner] then
      local own = format('%016.0f%016.0f', lane.ready, lane.head)
      if not order or own < order then
        best, order = lane, own
      end
    end
  end
  return best
end

-- The lane's turn is paid for, and the document behind its head moves up.
local function pay(lane, number, ready, step)
  local start = lane.start
  if not served[lane.name] then
    served[lane.name], served_list[#served_list + 1], touched_lanes[lane.name] = lane, lane, lane
  end
  leave(lane, number, ready)
  if queue.rules.dispatch == 'fair' then
    queue.clocks[lane.priority] = math.max(queue.clocks[lane.priority], start)
    lane.finish = start + step
    lane.start = lane.head and lane.finish
  end
  lane.order = false
  if lane.head then
    lane.order = format('%d%016.0f%016.0f', lane.priority, lane.start, lane.head)
    push({order = lane.order, lane = lane})
  end
end

local every = queue.rules.dispatch == 'fair' and queue.rules.every or 0
local before, claims, numbers = queue.dispatches, {}, {}

local function claim(lane, is_open)
  local one = document(lane.head)
  local moving, owner = one.moving, lane.owner
  local customer = customer_of(owner)
  queue.dispatches = queue.dispatches + 1
  pay(lane, one.number, moving[READY], step_of(moving[COST], weight_of(customer)))
  moving[STATE], moving[TOKEN], moving[ATTEMPTS] = 'running', moving[TOKEN] + 1, moving[ATTEMPTS] + 1
  moving[ATTEMPTS_MAX] = attempts_of[lane.kind] or 3
  moving[WORKER], moving[LEASE] = worker, lease_ends
  touched_documents[one.number] = one
  write('ZADD', LEASES, lease_ends, padded(one.number))
  customer[WAITING], customer[RUNNING] = customer[WAITING] - 1, customer[RUNNING] + 1
  touched_customers[owner] = true
  if is_blocked(customer) then
    gate(owner, false)
    capped[owner] = true
  end
  log(now, 'claimed', owner, one.number, moving[TOKEN], worker)
  claims[#claims + 1] = {
    moving[ID], moving[TOKEN], one.number, customer[NAME], lane.kind, lane.priority, false, moving[ATTEMPTS],
    moving[ATTEMPTS_MAX], lease_ends, queue.dispatches, is_open and 1 or 0,
  }
  numbers[#numbers + 1] = one.number
end

while #claims < limit do
  local is_open = every > 0 and math.fmod(queue.dispatches + 1, every) == 0
  local lane
  if is_open then
    lane = longest_ready()
  else
    lane = first_in_turn()
  end
  if not lane then
    break
  end
  claim(lane, is_open)
end
if #claims == 0 then
  return claims
end

-- How fast documents were taken lately, from two marks that move along.
local PACE_MS, pace = 60000, queue.pace
local age = now - pace[3]
if age < 0 or age > 2 * PACE_MS then
  queue.pace = {now, before, now, before}
elseif age > PACE_MS then
  queue.pace = {pace[3], pace[4], now, before}
end
for place, payload in ipairs(read_many(PAYLOADS, numbers)) do
  claims[place][7] = payload
end
flush()
return claims
