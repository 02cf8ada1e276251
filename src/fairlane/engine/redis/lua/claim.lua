-- Claim: up to `limit` documents in dispatch order, each with a lease, a fresh token and one more attempt counted.
--
-- ARGV: now, worker, limit, lease, due at most, how many kinds (-1: all), then kind and attempts of each.
local now, worker, limit, kinds_count = now_of(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[6])
local lease_ends = now + tonumber(ARGV[4])
local lease_text = as_text(lease_ends)

-- Delayed documents that are due join their lanes first; that is whole in itself, so it is written before the rest is read.
local due = call('ZRANGEBYSCORE', DELAYED, '-inf', now, 'LIMIT', 0, ARGV[5])
if #due > 0 then
  load_documents(due)
  for _, place in ipairs(due) do
    local one = document(place)
    leave_place(one)
    one.moving[STATE] = 'ready'
    touch(one)
    join(lane_for(one), place, one.moving[READY])
  end
  flush()
  touched_documents, touched_lanes, adds, drops = {}, {}, {}, {}
end

local kinds, attempts_of = {}, {}
if kinds_count < 0 then
  kinds = call('SMEMBERS', KINDS)
end
for place = 1, kinds_count do
  kinds[place] = ARGV[5 + 2 * place]
  attempts_of[kinds[place]] = tonumber(ARGV[6 + 2 * place])
end

-- Lanes that had a turn in this round stand here and no longer in the indexes, which are as they were until the flush; so do
-- customers that may have no more.
local served, served_list, capped = {}, {}, {}

-- -- heads in the order of an index --

-- An index, read some heads at a time: their places, owners, lanes' names, and what they are ordered by, side by side.
local function stream(key, kind, size)
  return {key = key, kind = kind, size = size, at = 0, count = 0, read = 0}
end

-- Read some heads, and together with them all that serving them will need.
local function read_heads(one)
  local kind, members = one.kind, call('ZRANGE', one.key, one.read, one.read + one.size - 1, 'WITHSCORES')
  local places, owners, names, orders, count = {}, {}, {}, {}, #members / 2
  for at = 1, count do
    local member = members[2 * at - 1]
    local owner = sub(member, 18)
    places[at], owners[at], names[at] = sub(member, 1, 16), owner, owner .. ':' .. sub(member, 17, 17) .. kind
    orders[at] = tonumber(members[2 * at])
  end
  one.at, one.count, one.read = 1, count, one.read + count
  one.places, one.owners, one.names, one.orders = places, owners, names, orders
  load_documents(places)
  load_customers(owners)
  local records = read_many(LANES, names)
  for at = 1, count do
    if not lanes[names[at]] then
      opened_lane(owners[at], tonumber(sub(members[2 * at - 1], 17, 17)), kind, names[at], records[at])
    end
  end
end

-- Whether a head comes before another one, by its order (a start tag, or since when it is ready) and then by its number.
local function is_before(order, place, other_order, other_place)
  return order < other_order or (order == other_order and place < other_place)
end

-- The first head of several indexes, one a kind, that this round has not made out of date: its lane, order and place.
local function first_of(streams)
  local lane, order, place
  for _, one in ipairs(streams) do
    local at = one.at
    while at == 0 or (at <= one.count and (served[one.names[at]] or capped[one.owners[at]])) do
      at = at + 1
      if at > one.count then
        read_heads(one)
        at = 1
      end
    end
    one.at = at
    if at <= one.count and (not lane or is_before(one.orders[at], one.places[at], order, place)) then
      lane, order, place = lanes[one.names[at]], one.orders[at], one.places[at]
    end
  end
  return lane, order, place
end

-- -- a heap of the next heads of lanes that were served, of the priority that is served now --

local heap = {}

local function push(lane)
  local at, start, place = #heap + 1, lane.start, lane.head
  while at > 1 do
    local parent = (at - at % 2) / 2
    local above = heap[parent]
    if not is_before(start, place, above.start, above.place) then
      break
    end
    heap[at], at = above, parent
  end
  heap[at] = {start = start, place = place, lane = lane}
end

local function pop()
  local last = table.remove(heap)
  local size = #heap
  if size == 0 then
    return
  end
  local at = 1
  while true do
    local child = 2 * at
    if child > size then
      break
    end
    local below, right = heap[child], heap[child + 1]
    if right and is_before(right.start, right.place, below.start, below.place) then
      child, below = child + 1, right
    end
    if not is_before(below.start, below.place, last.start, last.place) then
      break
    end
    heap[at], at = below, child
  end
  heap[at] = last
end

-- -- whose turn it is --

local priority, turns, ages = 0, {}, nil

-- Go on to the next priority that has lanes; what was served of it before, in open turns, competes too.
local function next_priority()
  repeat
    priority = priority + 1
  until priority > 9 or queue[LANES_IN + priority] > 0
  turns, heap = {}, {}
  if priority > 9 then
    return false
  end
  for place, kind in ipairs(kinds) do
    turns[place] = stream(prefix .. 'turns:' .. DIGIT[priority] .. kind, kind, min(limit + 2, 128))
  end
  for _, lane in ipairs(served_list) do
    if lane.priority == priority and lane.head and not capped[lane.owner] then
      push(lane)
    end
  end
  return true
end

local function first_in_turn()
  while priority <= 9 do
    local lane, order, place = first_of(turns)
    local top = heap[1]
    while top and (top.lane.head ~= top.place or capped[top.lane.owner]) do
      pop()
      top = heap[1]
    end
    if top and (not lane or is_before(top.start, top.place, order, place)) then
      return top.lane
    elseif lane then
      return lane
    elseif not next_priority() then
      return nil
    end
  end
end

local function longest_ready()
  if not ages then
    ages = {}
    for place, kind in ipairs(kinds) do
      ages[place] = stream(prefix .. 'ages:' .. kind, kind, 8)
    end
  end
  local best, ready, place = first_of(ages)
  for _, lane in ipairs(served_list) do
    if lane.head and not capped[lane.owner] and (not best or is_before(tonumber(lane.ready), lane.head, ready, place)) then
      best, ready, place = lane, tonumber(lane.ready), lane.head
    end
  end
  return best
end

-- The lane's turn is paid for, and the document behind its head moves up.
local function pay(lane, step)
  local start = lane.start
  if not served[lane.name] then
    served[lane.name], served_list[#served_list + 1], touched_lanes[lane.name] = lane, lane, lane
  end
  leave(lane, lane.head, lane.ready)
  if not is_strict then
    local at = CLOCK + lane.priority
    queue[at] = max(queue[at], start)
    lane.finish = start + step
    lane.start = lane.head and lane.finish
  end
  if lane.head and lane.priority == priority then
    push(lane)
  end
end

local every = is_strict and 0 or queue[EVERY]
local before, claims, places = queue[DISPATCHES], {}, {}

local function claim(lane, is_open)
  local one, owner = document(lane.head), lane.owner
  local moving, customer = one.moving, customer_of(owner)
  queue[DISPATCHES] = queue[DISPATCHES] + 1
  pay(lane, step_of(moving[COST], weight_of(customer)))
  moving[STATE], moving[TOKEN], moving[ATTEMPTS] = 'running', moving[TOKEN] + 1, moving[ATTEMPTS] + 1
  moving[ATTEMPTS_MAX], moving[WORKER], moving[LEASE] = attempts_of[lane.kind] or ATTEMPTS_DEFAULT, worker, lease_ends
  touch(one)
  add('ZADD', LEASES, lease_text, one.place)
  customer[WAITING], customer[RUNNING] = customer[WAITING] - 1, customer[RUNNING] + 1
  touched_customers[owner] = true
  if is_blocked(customer) then
    gate(owner, false)
    capped[owner] = true
  end
  log(now, 'claimed', owner, one.place, moving[TOKEN], worker)
  places[#places + 1] = one.place
  claims[#places] = {
    moving[ID], moving[TOKEN], tonumber(one.place), customer[NAME], lane.kind, lane.priority, false, moving[ATTEMPTS],
    moving[ATTEMPTS_MAX], lease_ends, queue[DISPATCHES], is_open and 1 or 0,
  }
end

next_priority()
while #places < limit do
  local is_open = every > 0 and fmod(queue[DISPATCHES] + 1, every) == 0
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
if #places == 0 then
  return claims
end

-- How fast documents were taken lately, from two marks that move along.
local PACE_MS = 60000
local age = now - queue[PACE + 3]
if age < 0 or age > PACE_MS then
  if age < 0 or age > 2 * PACE_MS then
    queue[PACE + 1], queue[PACE + 2] = now, before
  else
    queue[PACE + 1], queue[PACE + 2] = queue[PACE + 3], queue[PACE + 4]
  end
  queue[PACE + 3], queue[PACE + 4] = now, before
end
for at, payload in ipairs(read_many(PAYLOADS, places)) do
  claims[at][7] = payload
end
flush()
return claims
