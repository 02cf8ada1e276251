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
    one[STATE] = 'ready'
    touch(one)
    join(lane_for(one), place, one[READY])
  end
  flush()
  touched_documents, touched_lanes, adds, drops = {}, {}, {}, {}
end

local kinds, attempts_of = {}, {}
if kinds_count < 0 then
  kinds = call('SMEMBERS', prefix .. 'kinds')
end
for place = 1, kinds_count do
  kinds[place] = ARGV[5 + 2 * place]
  attempts_of[kinds[place]] = tonumber(ARGV[6 + 2 * place])
end

-- Lanes that had a turn in this round stand here and no longer in the indexes, which are as they were until the flush; so do
-- customers that may have no more.
local served, served_list, capped = {}, {}, {}

-- -- heads in the order of an index --

-- An index, read some heads at a time: their places, owners, lanes' names, and what they are ordered by, side by side. Where
-- most of them will be served, their documents and customers are read along.
local function stream(key, kind, size, is_loaded)
  return {key = key, kind = kind, size = size, is_loaded = is_loaded, at = 0, count = 0, read = 0}
end

-- Read some heads.
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
  one.members, one.places, one.owners, one.names, one.orders = members, places, owners, names, orders
  if one.is_loaded then
    load_documents(places)
    load_customers(owners)
  end
end

-- Whether a head comes before another one, by its order (a start tag, or since when it is ready) and then by its number.
local function is_before(order, place, other_order, other_place)
  return order < other_order or (order == other_order and place < other_place)
end

-- The first head of several indexes, one a kind, that this round has not made out of date: its index, order and place.
local function first_of(streams)
  local best, order, place
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
    if at <= one.count and (not best or is_before(one.orders[at], one.places[at], order, place)) then
      best, order, place = one, one.orders[at], one.places[at]
    end
  end
  return best, order, place
end

-- The lane of the head at which an index stands. Its start tag is asked for only where the index does not tell it.
local function lane_at(one, start)
  local at = one.at
  local name, place = one.names[at], one.places[at]
  local lane = lanes[name]
  if lane then
    return lane
  end
  local priority = tonumber(sub(one.members[2 * at - 1], 17, 17))
  if not start then
    start = tonumber(call('ZSCORE', turns_key(priority, one.kind), one.members[2 * at - 1]))
  end
  return opened_lane(one.owners[at], priority, one.kind, name, place, document(place)[READY], start)
end

-- -- a heap of the next heads of lanes that were served, of the priority that is served now --

-- Most lanes have one turn in a round, so they go into the heap only when the first of them might be next.
local heap, pending, pending_start = {}, {}, nil

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

local function push_later(lane)
  pending[#pending + 1] = lane
  pending_start = min(pending_start or lane.start, lane.start)
end

local function push_pending()
  for _, lane in ipairs(pending) do
    if lane.start then -- it may have been emptied or blocked since
      push(lane)
    end
  end
  pending, pending_start = {}, nil
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
  turns, heap, pending, pending_start = {}, {}, {}, nil
  if priority > 9 then
    return false
  end
  for place, kind in ipairs(kinds) do
    turns[place] = stream(turns_key(priority, kind), kind, min(limit + 2, 128), true)
  end
  for _, lane in ipairs(served_list) do
    if lane.priority == priority and lane.head and not capped[lane.owner] then
      push_later(lane)
    end
  end
  return true
end

local function first_in_turn()
  while priority <= 9 do
    local first, order, place = first_of(turns)
    if pending_start and not (first and order < pending_start) then
      push_pending()
    end
    local top = heap[1]
    while top and (top.lane.head ~= top.place or capped[top.lane.owner]) do
      pop()
      top = heap[1]
    end
    if top and (not first or is_before(top.start, top.place, order, place)) then
      return top.lane
    elseif first then
      return lane_at(first, order)
    elseif not next_priority() then
      return nil
    end
  end
end

local function longest_ready()
  if not ages then
    ages = {}
    for place, kind in ipairs(kinds) do
      ages[place] = stream(ages_key(kind), kind, 8, false)
    end
  end
  local first, ready, place = first_of(ages)
  local best
  for _, lane in ipairs(served_list) do
    if lane.head and not capped[lane.owner] and (not place or is_before(tonumber(lane.ready), lane.head, ready, place)) then
      best, ready, place = lane, tonumber(lane.ready), lane.head
    end
  end
  return best or first and lane_at(first)
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
    push_later(lane)
  end
end

local every = is_strict and 0 or rules[EVERY]
local before, claims, places = queue[DISPATCHES], {}, {}
local CLAIM_SIZE = 12 -- values a claim, one behind the other: a table of each would cost more than the claim

local function claim(lane, is_open)
  local one, owner = document(lane.head), lane.owner
  local customer = customer_of(owner)
  queue[DISPATCHES] = queue[DISPATCHES] + 1
  pay(lane, step_of(one[COST], weight_of(customer)))
  one[STATE], one[TOKEN], one[ATTEMPTS] = 'running', one[TOKEN] + 1, one[ATTEMPTS] + 1
  one[ATTEMPTS_MAX], one[WORKER], one[LEASE] = attempts_of[lane.kind] or ATTEMPTS_DEFAULT, worker, lease_ends
  touch(one)
  add('ZADD', LEASES, lease_text, one[PLACE])
  customer[WAITING], customer[RUNNING] = customer[WAITING] - 1, customer[RUNNING] + 1
  touched_customers[owner] = true
  if is_blocked(customer) then
    gate(owner, false)
    capped[owner] = true
  end
  log(now, 'claimed', owner, one[PLACE], one[TOKEN], worker)
  places[#places + 1] = one[PLACE]
  local at = CLAIM_SIZE * #places
  claims[at - 11], claims[at - 10], claims[at - 9], claims[at - 8] = one[ID], one[TOKEN], tonumber(one[PLACE]), customer[NAME]
  claims[at - 7], claims[at - 6], claims[at - 5], claims[at - 4] = lane.kind, lane.priority, false, one[ATTEMPTS]
  claims[at - 3], claims[at - 2], claims[at - 1] = one[ATTEMPTS_MAX], lease_ends, queue[DISPATCHES]
  claims[at] = is_open and 1 or 0
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
for at, payload in ipairs(read_places(PAYLOADS, places)) do
  claims[CLAIM_SIZE * at - 5] = payload
end
flush()
return claims
