-- What every verb shares: exact arithmetic, records that are read once, and one flush that writes everything at the end.
-- What only some need, to move documents from one state to another, stands in moving.lua.
--
-- Laws:
-- A script reads, checks and decides first; `flush` writes. An error before it leaves nothing behind, and its first write is
-- one that a full server refuses, so a full server refuses all of it.
-- Numbers are doubles here: whole numbers below 2^53 only, and products that could be larger are split.
-- What names things is text: documents by their number in 16 digits (`place`), so that text is in the order of numbers;
-- customers by their number (`owner`). Making text of numbers is what costs most here, so it is done once.

local call, pack, unpack_one, format, sub = redis.call, cmsgpack.pack, cmsgpack.unpack_one, string.format, string.sub
local fmod, max, min = math.fmod, math.max, math.min

local STEP, COUNTER_FLOOR = 1000, -1000000000000 -- thousandths
local ATTEMPTS_DEFAULT, NO_CHECK = 3, -1
local ARGUMENTS_MAX = 4000 -- of one command; Lua's stack holds about 8000

-- Where things stand in the records; README.md tells what they mean.
local LAST_NUMBER, LAST_CHANGE, LAST_RECORD, LAST_CUSTOMER, DISPATCHES, FEED_FIRST, FEED_FLOOR = 2, 3, 4, 5, 6, 7, 8
local PACE, CLOCK, READY_IN, LANES_IN = 8, 12, 21, 30 -- each before its first: four marks, and a number a priority
local VERSION, INTERVAL, RESET, DISPATCH, EVERY, FROZEN, DEPTH = 40, 41, 42, 43, 44, 45, 46 -- depths follow to the end
local STATE, OWNER, TOKEN, ATTEMPTS, ATTEMPTS_MAX, READY, COST, LEASE, ENDED, WORKER, REASON, ID =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
local KIND, PRIORITY, MADE_COUNTER, CHECKED, MADE_VERSION, MADE_TERMS, WEIGHT, MADE_RESETS, KEY, DIGEST =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local NAME, COUNTER, UPDATED, RESET_AT, RESETS, WAITING, RUNNING, DONE, FAILED, CANCELLED, TERMS_VERSION, TERMS =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
local COUNT_OF = {ready = WAITING, delayed = WAITING, running = RUNNING, done = DONE, failed = FAILED, cancelled = CANCELLED}
local DIGIT = {'1', '2', '3', '4', '5', '6', '7', '8', '9'}

local prefix = sub(KEYS[1], 1, -6) -- KEYS[1] is '{...}:queue'; every other key is its neighbour
local DOCUMENTS, PAYLOADS, RESULTS, IDS = prefix .. 'documents', prefix .. 'payloads', prefix .. 'results', prefix .. 'ids'
local CUSTOMERS, NUMBERS, SENDER_KEYS, LANES = prefix .. 'customers', prefix .. 'numbers', prefix .. 'keys', prefix .. 'lanes'
local KINDS, FEED, DELAYED, LEASES = prefix .. 'kinds', prefix .. 'feed', prefix .. 'delayed', prefix .. 'leases'

local stored_queue = call('GET', KEYS[1])
if not stored_queue then
  return redis.error_reply('FAIRLANE_GONE the queue is not there')
end
local queue = cmsgpack.unpack(stored_queue)
if queue[1] ~= 1 then
  return redis.error_reply('FAIRLANE_FORM the queue has another form')
end
local is_strict = queue[DISPATCH] == 'strict'

-- -- arithmetic -----------------------------------------------------------------------------------------------------

-- A whole division of whole numbers that are not negative, exact where floor(a / b) may round up.
local function divided(a, b)
  return (a - fmod(a, b)) / b
end

-- floor(amount * part / whole) for amount <= 10^12 and part <= whole <= 2,592,000,000: no step reaches 2^53.
local function share(amount, part, whole)
  local rest, low = fmod(amount, whole), fmod(part, 65536)
  local product = rest * ((part - low) / 65536)
  local more = fmod(product, whole) * 65536 + rest * low
  return divided(amount, whole) * part + divided(product, whole) * 65536 + divided(more, whole)
end

-- One step of a document, for the counter and for turns.
local function step_of(cost, weight)
  return max(1, divided(cost * STEP, weight))
end

-- The time that was passed in, or the server's own.
local function now_of(given)
  if given ~= '' then
    return tonumber(given)
  end
  local time = call('TIME')
  return time[1] * 1000 + divided(time[2], 1000)
end

local function as_text(number)
  return format('%d', number)
end

-- -- the policy -----------------------------------------------------------------------------------------------------

-- The interval, the reset rule and the table that hold for a customer; depths stand in `depths` from `from` on.
local function policy_of(customer)
  local terms = customer[TERMS]
  local policy = {interval = queue[INTERVAL], reset = queue[RESET], depths = queue, from = DEPTH}
  if terms then
    policy.interval, policy.reset = terms.interval or policy.interval, terms.reset or policy.reset
    if terms.depths then
      policy.depths, policy.from = terms.depths, 1
    end
  end
  return policy
end

-- One check: the counter is set back, or steps down.
local function check(policy, customer, now, step)
  local counter, updated = customer[COUNTER], customer[UPDATED]
  local since = policy.reset == 'window' and customer[RESET_AT] or updated
  if not updated or (now >= updated and now - since > policy.interval) then
    customer[COUNTER] = max(COUNTER_FLOOR, min(0, STEP - step))
    customer[UPDATED], customer[RESET_AT], customer[RESETS] = now, now, customer[RESETS] + 1
    return
  end
  if policy.reset == 'gradual' and now > updated then
    counter = -share(-counter, policy.interval - (now - updated), policy.interval)
  end
  customer[COUNTER], customer[UPDATED] = max(COUNTER_FLOOR, counter - step), max(updated, now)
end

-- The priority of a counter: the last line of the table that holds.
local function level(policy, counter)
  local depths, from = policy.depths, policy.from
  local place = from
  while depths[place] and depths[place] < -counter do
    place = place + 1
  end
  return place - from + 1
end

-- -- what is read once and written once -----------------------------------------------------------------------------

local documents, customers, lanes = {}, {}, {} -- by place, by owner, by name
local touched_documents, touched_customers, touched_lanes = {}, {}, {}
local adds, drops = {}, {} -- by key, and in order: a command with all its arguments
local feed = {'RPUSH', FEED}
local call_id = false -- what a settlement is known by, if its answer is lost and it comes again
local soonest = nil -- when the first document is due that will be delayed

-- Something to write: all arguments for one key go out in one command.
local function add(command, key, first, second)
  local one = adds[key]
  if not one then
    one = {command, key, first, second}
    adds[key], adds[#adds + 1] = one, one
    return
  end
  local size = #one
  one[size + 1], one[size + 2] = first, second
end

-- Something to remove.
local function drop(command, key, member)
  local one = drops[key]
  if not one then
    one = {command, key, member}
    drops[key], drops[#drops + 1] = one, one
    return
  end
  one[#one + 1] = member
end

-- One command, or as many as its arguments need.
local function call_many(one)
  local count = #one
  if count <= ARGUMENTS_MAX then
    call(unpack(one))
    return
  end
  for first = 3, count, ARGUMENTS_MAX do
    call(one[1], one[2], unpack(one, first, min(first + ARGUMENTS_MAX - 1, count)))
  end
end

-- A line of the feed.
local function log(now, what, owner, place, token, note)
  queue[LAST_CHANGE] = queue[LAST_CHANGE] + 1
  feed[#feed + 1] = pack({now, what, owner or false, place or false, token or false, note or false, call_id})
end

local function opened(place, record)
  local at, moving = unpack_one(record, 0)
  local one = {place = place, moving = moving, tail = sub(record, at + 1)}
  documents[place] = one
  return one
end

-- A document, or nil.
local function document(place)
  local one = documents[place]
  if one == nil then
    local record = call('HGET', DOCUMENTS, place)
    one = record and opened(place, record) or false
    documents[place] = one
  end
  return one or nil
end

-- The part of a document that never changes.
local function fixed(one)
  if not one.fixed then
    one.fixed = cmsgpack.unpack(one.tail)
  end
  return one.fixed
end

local function document_by_id(id)
  local place = call('HGET', IDS, id)
  return place and document(place)
end

local function customer_of(owner)
  local customer = customers[owner]
  if not customer then
    customer = cmsgpack.unpack(call('HGET', CUSTOMERS, owner))
    customers[owner] = customer
  end
  return customer
end

-- A customer seen for the first time.
local function new_customer(name)
  queue[LAST_CUSTOMER] = queue[LAST_CUSTOMER] + 1
  local owner = as_text(queue[LAST_CUSTOMER])
  customers[owner] = {name, 0, false, false, 0, 0, 0, 0, 0, 0, 0, false}
  touched_customers[owner] = true
  add('HSET', NUMBERS, name, owner)
  add('ZADD', prefix .. 'names', 0, name)
  return owner
end

local function weight_of(customer)
  return customer[TERMS] and customer[TERMS].weight or STEP
end

-- Whether a customer's lanes must not compete now.
local function is_blocked(customer)
  local terms = customer[TERMS]
  return terms and (terms.paused or (terms.cap and customer[RUNNING] >= terms.cap)) and true or false
end

-- -- lanes ----------------------------------------------------------------------------------------------------------

-- A lane as it is stored, or an empty one. `head` is a place and `ready` since when it is, as text; false: there is none.
-- A lane competes while it has a start tag.
local function opened_lane(owner, priority, kind, name, record)
  local head, ready, start, finish = false, false, false, 0
  if record then
    local stored = cmsgpack.unpack(record)
    head, ready, start, finish = stored[1], stored[2], stored[3], stored[4]
  else
    add('SADD', prefix .. 'lanes-of:' .. owner, DIGIT[priority] .. kind)
    add('SADD', KINDS, kind)
  end
  local lane = {
    owner = owner, priority = priority, kind = kind, name = name,
    head = head, ready = ready, start = start, finish = finish,
    was_head = head, was_ready = ready, was_start = start, was_finish = finish,
  }
  lanes[name] = lane
  return lane
end

local function lane_name(owner, priority, kind)
  return owner .. ':' .. DIGIT[priority] .. kind
end

-- A lane, empty if it was never there; whoever asks for it changes it.
local function lane_of(owner, priority, kind)
  local name = lane_name(owner, priority, kind)
  local lane = lanes[name] or opened_lane(owner, priority, kind, name, call('HGET', LANES, name))
  touched_lanes[name] = lane
  return lane
end

local function ready_key(lane)
  local key = lane.ready_key
  if not key then
    key = prefix .. 'ready:' .. lane.name
    lane.ready_key = key
  end
  return key
end

-- The start tag of a lane that gains a head or is unblocked.
local function start_tag(lane)
  return is_strict and 0 or max(queue[CLOCK + lane.priority], lane.finish)
end

-- A ready document joins its lane by submission number.
local function join(lane, place, ready)
  local priority, head = lane.priority, lane.head
  add('ZADD', ready_key(lane), 0, place .. ready)
  queue[READY_IN + priority] = queue[READY_IN + priority] + 1
  if head and head < place then
    return
  end
  if not head then
    queue[LANES_IN + priority] = queue[LANES_IN + priority] + 1
    lane.start = not is_blocked(customer_of(lane.owner)) and start_tag(lane)
  end
  lane.head, lane.ready = place, ready
end

-- -- the end --------------------------------------------------------------------------------------------------------

-- A lane's record, and its head in the two indexes of its kind; notes which index of turns gains a head.
local function place_lane(lane, gaining)
  local head, ready, start = lane.head, lane.ready, lane.start
  local is_moved = head ~= lane.was_head or ready ~= lane.was_ready or start ~= lane.was_start
  if not is_moved and lane.finish == lane.was_finish then
    return
  end
  add('HSET', LANES, lane.name, pack({head, ready, start, lane.finish}))
  if not is_moved then
    return
  end
  local suffix, mark = DIGIT[lane.priority] .. lane.kind, DIGIT[lane.priority] .. lane.owner
  local turns, ages = prefix .. 'turns:' .. suffix, prefix .. 'ages:' .. lane.kind
  if lane.was_start then
    drop('ZREM', turns, lane.was_head .. mark)
    drop('ZREM', ages, lane.was_head .. mark)
  end
  if start then
    add('ZADD', turns, start, head .. mark)
    add('ZADD', ages, ready, head .. mark)
    gaining[lane.kind] = ages
  end
  lane.was_head, lane.was_ready, lane.was_start, lane.was_finish = head, ready, start, lane.finish
end

-- Whether somebody who waits must look again: a kind that had no head gains one, or something is due sooner than all else.
local function is_news(gaining)
  if soonest then
    local first = call('ZRANGE', DELAYED, 0, 0, 'WITHSCORES')[2]
    if not first or soonest < tonumber(first) then
      return true
    end
  end
  for _, ages in pairs(gaining) do
    if call('EXISTS', ages) == 0 then
      return true
    end
  end
  return false
end

-- Write everything. The queue's own record is first: a full server refuses it, and with it all the rest. What leaves goes
-- before what comes, so that a head may leave an index and come back in one flush.
local function flush()
  local gaining = {}
  for owner in pairs(touched_customers) do
    add('HSET', CUSTOMERS, owner, pack(customers[owner]))
  end
  for place, one in pairs(touched_documents) do
    add('HSET', DOCUMENTS, place, pack(one.moving) .. one.tail)
  end
  for _, lane in pairs(touched_lanes) do
    place_lane(lane, gaining)
  end
  local news = is_news(gaining)
  call('SET', KEYS[1], pack(queue))
  for _, one in ipairs(drops) do
    call_many(one)
  end
  for _, one in ipairs(adds) do
    call_many(one)
  end
  if #feed > 2 then
    call_many(feed)
  end
  if news then
    redis.pcall('PUBLISH', prefix .. 'signal', '1') -- a hint; whoever misses it looks again by itself
  end
end
