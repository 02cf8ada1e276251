-- What every verb shares: exact arithmetic, records that are read once, and one flush that writes everything at the end.
--
-- Laws:
-- A script reads, checks and decides first; `flush` writes. An error before it leaves nothing behind, and its first write is
-- one that a full server refuses, so a full server refuses all of it.
-- Numbers are doubles here: whole numbers below 2^53 only, products that could be larger are split, and a number never
-- becomes text by `..` where it could have more than 14 digits.

local call, pack, format, floor = redis.call, cmsgpack.pack, string.format, math.floor

local STEP, COUNTER_FLOOR = 1000, -1000000000000 -- thousandths
local ARGUMENTS_MAX = 4000 -- of one command; Lua's stack holds about 8000

-- The fields of a document that change, of one that do not, and of a customer; README.md tells what they mean.
local STATE, OWNER, TOKEN, ATTEMPTS, ATTEMPTS_MAX, READY, COST, LEASE, ENDED, WORKER, REASON, ID =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
local KIND, PRIORITY, MADE_COUNTER, CHECKED, RULES_VERSION, MADE_TERMS_VERSION, WEIGHT, MADE_RESETS, KEY, DIGEST =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local NAME, COUNTER, UPDATED, RESET_AT, RESETS, WAITING, RUNNING, DONE, FAILED, CANCELLED, TERMS_VERSION, TERMS =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
local COUNT_OF = {ready = WAITING, delayed = WAITING, running = RUNNING, done = DONE, failed = FAILED, cancelled = CANCELLED}
local NO_CHECK = -1

local prefix = string.sub(KEYS[1], 1, -6) -- KEYS[1] is '{...}:queue'; every other key is its neighbour
local DOCUMENTS, PAYLOADS, RESULTS, IDS = prefix .. 'documents', prefix .. 'payloads', prefix .. 'results', prefix .. 'ids'
local CUSTOMERS, NUMBERS, NAMES = prefix .. 'customers', prefix .. 'numbers', prefix .. 'names'
local SENDER_KEYS, LANES, KINDS, FEED = prefix .. 'keys', prefix .. 'lanes', prefix .. 'kinds', prefix .. 'feed'
local DELAYED, LEASES, ENDINGS = prefix .. 'delayed', prefix .. 'leases', prefix .. 'endings'

local stored_queue = call('GET', KEYS[1])
if not stored_queue then
  return redis.error_reply('FAIRLANE_GONE the queue is not there')
end
local queue = cmsgpack.unpack(stored_queue)
if queue.form ~= 1 then
  return redis.error_reply('FAIRLANE_FORM ' .. tostring(queue.form))
end

-- -- arithmetic -----------------------------------------------------------------------------------------------------

-- A whole division of whole numbers that are not negative, exact where floor(a / b) may round up.
local function divided(a, b)
  return (a - math.fmod(a, b)) / b
end

-- floor(amount * part / whole) for amount <= 10^12 and part <= whole <= 2,592,000,000: no step reaches 2^53.
local function share(amount, part, whole)
  local rest = math.fmod(amount, whole)
  local high, low = floor(part / 65536), part % 65536
  local product = rest * high
  local more = math.fmod(product, whole) * 65536 + rest * low
  return divided(amount, whole) * part + divided(product, whole) * 65536 + divided(more, whole)
end

-- One step of a document, for the counter and for turns.
local function step_of(cost, weight)
  return math.max(1, divided(cost * STEP, weight))
end

-- The time that was passed in, or the server's own.
local function now_of(given)
  if given ~= '' then
    return tonumber(given)
  end
  local time = call('TIME')
  return time[1] * 1000 + floor(time[2] / 1000)
end

-- -- the policy -----------------------------------------------------------------------------------------------------

-- The interval, the reset rule and the table that hold for a customer.
local function policy_of(customer)
  local rules, terms = queue.rules, customer[TERMS]
  if not terms then
    return rules
  end
  return {
    interval = terms.interval or rules.interval, reset = terms.reset or rules.reset, depths = terms.depths or rules.depths,
  }
end

-- Whether a check at this moment resets.
local function resets(policy, customer, now)
  local updated = customer[UPDATED]
  if not updated then
    return true
  end
  local since = policy.reset == 'window' and customer[RESET_AT] or updated
  return now >= updated and now - since > policy.interval
end

-- One check: the counter is set back, or steps down.
local function check(policy, customer, now, step)
  if resets(policy, customer, now) then
    customer[COUNTER] = math.max(COUNTER_FLOOR, math.min(0, STEP - step))
    customer[UPDATED], customer[RESET_AT], customer[RESETS] = now, now, customer[RESETS] + 1
    return
  end
  local counter, updated = customer[COUNTER], customer[UPDATED]
  if policy.reset == 'gradual' and now > updated then
    counter = -share(-counter, policy.interval - (now - updated), policy.interval)
  end
  customer[COUNTER], customer[UPDATED] = math.max(COUNTER_FLOOR, counter - step), math.max(updated, now)
end

-- The priority of a counter: the last line of the table that holds.
local function level(policy, counter)
  local priority = 1
  for _, depth in ipairs(policy.depths) do
    if depth < -counter then
      priority = priority + 1
    end
  end
  return priority
end

-- The cost of a document turned out to be another one; dropped if a reset came between.
local function correct(customer, made_resets, step_before, step_after)
  if customer[UPDATED] and customer[RESETS] == made_resets then
    customer[COUNTER] = math.max(COUNTER_FLOOR, math.min(0, customer[COUNTER] + step_before - step_after))
  end
end

-- -- what is read once and written once -----------------------------------------------------------------------------

local documents, customers, lanes = {}, {}, {} -- by number, by number, by name
local touched_documents, touched_customers, touched_lanes = {}, {}, {}
local writes = {} -- command and key: arguments of one command
local feed = {}

-- Something to write: all arguments for one command on one key go out together.
local function write(command, key, first, second)
  local name = command .. key
  local one = writes[name]
  if not one then
    one = {command = command, key = key, arguments = {}}
    writes[name], writes[#writes + 1] = one, one
  end
  local arguments = one.arguments
  arguments[#arguments + 1] = first
  if second ~= nil then
    arguments[#arguments + 1] = second
  end
end

-- One command, or as many as its arguments need.
local function call_many(command, key, arguments)
  local count = #arguments
  for first = 1, count, ARGUMENTS_MAX do
    call(command, key, unpack(arguments, first, math.min(first + ARGUMENTS_MAX - 1, count)))
  end
end

-- The values of many fields of a hash, false where there is none.
local function read_many(key, fields)
  local found = {}
  for first = 1, #fields, ARGUMENTS_MAX do
    local some = call('HMGET', key, unpack(fields, first, math.min(first + ARGUMENTS_MAX - 1, #fields)))
    for place, value in ipairs(some) do
      found[first + place - 1] = value
    end
  end
  return found
end

-- A line of the feed.
local function log(now, what, owner, number, token, note)
  queue.last_change = queue.last_change + 1
  feed[#feed + 1] = pack({now, what, owner or false, number or false, token or false, note or false})
end

-- Numbers in the order of text.
local function padded(number)
  return format('%016.0f', number)
end

local function opened(number, record)
  local at, moving = cmsgpack.unpack_one(record, 0)
  local one = {number = number, moving = moving, tail = string.sub(record, at + 1)}
  documents[number] = one
  return one
end

-- A document, or nil.
local function document(number)
  local one = documents[number]
  if one == nil then
    local record = call('HGET', DOCUMENTS, number)
    one = record and opened(number, record) or false
    documents[number] = one
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

-- Many documents, read together; whoever asks for one of them afterwards finds it here.
local function load_documents(numbers)
  for place, record in ipairs(read_many(DOCUMENTS, numbers)) do
    local number = numbers[place]
    if not documents[number] then
      documents[number] = record and opened(number, record) or false
    end
  end
end

local function document_by_id(id)
  local number = call('HGET', IDS, id)
  return number and document(tonumber(number))
end

local function customer_of(owner)
  local customer = customers[owner]
  if not customer then
    customer = cmsgpack.unpack(call('HGET', CUSTOMERS, owner))
    customers[owner] = customer
  end
  return customer
end

-- Many customers, read together.
local function load_customers(owners)
  for place, record in ipairs(read_many(CUSTOMERS, owners)) do
    if not customers[owners[place]] then
      customers[owners[place]] = cmsgpack.unpack(record)
    end
  end
end

local function owner_by_name(name)
  local owner = call('HGET', NUMBERS, name)
  return owner and tonumber(owner)
end

-- A customer seen for the first time.
local function new_customer(name)
  local owner = queue.last_customer + 1
  queue.last_customer = owner
  customers[owner] = {name, 0, false, false, 0, 0, 0, 0, 0, 0, 0, false}
  touched_customers[owner] = true
  write('HSET', NUMBERS, name, owner)
  write('ZADD', NAMES, 0, name)
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

local function ready_key(lane)
  return prefix .. 'ready:' .. lane.name
end

local function ready_member(number, ready)
  return format('%.0f:%.0f', number, ready)
end

local function lane_name(owner, priority, kind)
  return owner .. ':' .. priority .. ':' .. kind
end

local function opened_lane(name, owner, priority, kind, record)
  local head, ready, start, finish = false, false, false, 0
  if record then
    head, ready, start, finish = unpack(cmsgpack.unpack(record))
  else
    write('SADD', prefix .. 'lanes-of:' .. owner, priority .. ':' .. kind)
    write('SADD', KINDS, kind)
  end
  local lane = {
    name = name, owner = owner, priority = priority, kind = kind,
    head = head, ready = ready, start = start, finish = finish, -- false: no head; does not compete
    stored_head = head, stored_ready = ready, stored_start = start,
    rank = 0, gone = {},
  }
  lanes[name] = lane
  return lane
end

-- A lane, empty if it was never there; whoever asks for it changes it.
local function lane_of(owner, priority, kind)
  local name = lane_name(owner, priority, kind)
  local lane = lanes[name] or opened_lane(name, owner, priority, kind, call('HGET', LANES, name))
  touched_lanes[name] = lane
  return lane
end

-- All lanes of a customer.
local function lanes_of(owner)
  local all = {}
  for _, rest in ipairs(call('SMEMBERS', prefix .. 'lanes-of:' .. owner)) do
    all[#all + 1] = lane_of(owner, tonumber(string.sub(rest, 1, 1)), string.sub(rest, 3))
  end
  return all
end

-- The start tag of a lane that gains a head or is unblocked.
local function start_tag(lane)
  return queue.rules.dispatch == 'strict' and 0 or math.max(queue.clocks[lane.priority], lane.finish)
end

-- A ready document joins its lane by submission number.
local function join(one, now_ready)
  local part = fixed(one)
  local owner, priority = one.moving[OWNER], part[PRIORITY]
  local lane = lane_of(owner, priority, part[KIND])
  write('ZADD', ready_key(lane), one.number, ready_member(one.number, now_ready))
  queue.ready[priority] = queue.ready[priority] + 1
  if lane.head and lane.head < one.number then
    return
  end
  if not lane.head then
    queue.lanes[priority] = queue.lanes[priority] + 1
    lane.start = not is_blocked(customer_of(owner)) and start_tag(lane)
  end
  lane.head, lane.ready = one.number, now_ready
end

-- The document behind a lane's head moves up; what is gone stays in the stored set until the flush.
local function find_head(lane)
  while true do
    lane.rank = lane.rank + 1
    if not lane.behind or lane.rank > lane.behind_last then
      lane.size = lane.size and math.min(512, lane.size * 8) or 1 -- most lanes are served once in a round
      lane.behind = call('ZRANGE', ready_key(lane), lane.rank, lane.rank + lane.size - 1)
      lane.behind_first, lane.behind_last = lane.rank, lane.rank + #lane.behind - 1
    end
    local member = lane.behind[lane.rank - lane.behind_first + 1]
    if not member then
      lane.head, lane.ready, lane.start = false, false, false
      queue.lanes[lane.priority] = queue.lanes[lane.priority] - 1
      return
    end
    local colon = string.find(member, ':', 1, true)
    local number = tonumber(string.sub(member, 1, colon - 1))
    if not lane.gone[number] then
      lane.head, lane.ready = number, tonumber(string.sub(member, colon + 1))
      return
    end
  end
end

-- A ready document leaves its lane, to be served or for good.
local function leave(lane, number, ready)
  lane.gone[number] = true
  write('ZREM', ready_key(lane), ready_member(number, ready))
  queue.ready[lane.priority] = queue.ready[lane.priority] - 1
  if lane.head == number then
    find_head(lane)
  end
end

-- A customer's terms or what runs of it changed: its lanes stop competing, or compete again from their priority's clock.
local function gate(owner, was_blocked)
  local is_out = is_blocked(customer_of(owner))
  if is_out == was_blocked then
    return
  end
  for _, lane in ipairs(lanes_of(owner)) do
    lane.start = not is_out and lane.head and start_tag(lane)
  end
end

-- -- documents that move --------------------------------------------------------------------------------------------

-- A document waits, from `ready` on.
local function queue_up(one, now, after)
  local moving = one.moving
  moving[STATE], moving[READY] = after > 0 and 'delayed' or 'ready', now + after
  if after > 0 then
    write('ZADD', DELAYED, moving[READY], padded(one.number))
  else
    join(one, moving[READY])
  end
  touched_documents[one.number] = one
end

-- A document no longer waits or runs, and is counted elsewhere from now on (nil: nowhere).
local function move_count(one, state)
  local owner = one.moving[OWNER]
  local customer = customer_of(owner)
  local was_blocked, before = is_blocked(customer), COUNT_OF[one.moving[STATE]]
  customer[before] = customer[before] - 1
  if state then
    customer[COUNT_OF[state]] = customer[COUNT_OF[state]] + 1
  end
  touched_customers[owner] = true
  gate(owner, was_blocked)
end

-- A document leaves the place where its state keeps it.
local function leave_place(one)
  local moving = one.moving
  local state = moving[STATE]
  if state == 'running' then
    write('ZREM', LEASES, padded(one.number))
  elseif state == 'delayed' then
    write('ZREM', DELAYED, padded(one.number))
  elseif state == 'ready' then
    local part = fixed(one)
    leave(lane_of(moving[OWNER], part[PRIORITY], part[KIND]), one.number, moving[READY])
  else
    write('ZREM', ENDINGS, padded(one.number))
    if state ~= 'done' then
      write('ZREM', prefix .. state, one.number)
    end
  end
end

-- A document ends.
local function finish(one, state, now, reason)
  local moving = one.moving
  leave_place(one)
  move_count(one, state)
  moving[STATE], moving[ENDED], moving[LEASE], moving[REASON] = state, now, false, reason or false
  write('ZADD', ENDINGS, now, padded(one.number))
  if state ~= 'done' then
    write('ZADD', prefix .. state, one.number, one.number)
  end
  touched_documents[one.number] = one
  log(now, state, moving[OWNER], one.number, moving[TOKEN], reason)
end

-- A running document goes back to wait.
local function come_back(one, what, now, after, note)
  local moving = one.moving
  leave_place(one)
  move_count(one, 'ready')
  moving[LEASE] = false
  queue_up(one, now, after)
  log(now, what, moving[OWNER], one.number, moving[TOKEN], note)
end

-- A document is forgotten, and its key with it.
local function erase(one)
  local moving, key = one.moving, fixed(one)[KEY]
  write('HDEL', DOCUMENTS, one.number)
  write('HDEL', PAYLOADS, one.number)
  write('HDEL', RESULTS, one.number)
  write('HDEL', IDS, moving[ID])
  write('ZREM', prefix .. 'documents-of:' .. moving[OWNER], one.number)
  if key then
    write('HDEL', SENDER_KEYS, moving[OWNER] .. ':' .. key)
  end
end

-- -- the end --------------------------------------------------------------------------------------------------------

local function turn_member(priority, start, head, owner)
  return format('%d%016.0f%016.0f:%.0f', priority, start, head, owner)
end

local function age_member(ready, head, priority, owner)
  return format('%016.0f%016.0f:%d:%.0f', ready, head, priority, owner)
end

-- A lane's record, and its head in the two indexes of its kind; tells whether it competes and did not before.
local function place_lane(lane)
  local head, ready, start = lane.head, lane.ready, lane.start
  write('HSET', LANES, lane.name, pack({head, ready, start, lane.finish}))
  if head == lane.stored_head and ready == lane.stored_ready and start == lane.stored_start then
    return
  end
  local turns, ages = prefix .. 'turns:' .. lane.kind, prefix .. 'ages:' .. lane.kind
  if lane.stored_start then
    write('ZREM', turns, turn_member(lane.priority, lane.stored_start, lane.stored_head, lane.owner))
    write('ZREM', ages, age_member(lane.stored_ready, lane.stored_head, lane.priority, lane.owner))
  end
  if start then
    write('ZADD', turns, 0, turn_member(lane.priority, start, head, lane.owner))
    write('ZADD', ages, 0, age_member(ready, head, lane.priority, lane.owner))
  end
  lane.stored_head, lane.stored_ready, lane.stored_start = head, ready, start
end

-- Whether somebody who waits must look again: a kind that had no head will have one, or something is due sooner.
local function is_news()
  for _, one in ipairs(writes) do
    if one.command == 'ZADD' and string.find(one.key, prefix .. 'turns:', 1, true) and call('EXISTS', one.key) == 0 then
      return true
    elseif one.command == 'ZADD' and one.key == DELAYED then
      local first = tonumber(call('ZRANGE', DELAYED, 0, 0, 'WITHSCORES')[2])
      for place = 1, #one.arguments, 2 do
        if not first or one.arguments[place] < first then
          return true
        end
      end
    end
  end
  return false
end

-- Write everything. The queue's own record is first: a full server refuses it, and with it all the rest. What leaves goes
-- before what comes, so that a head may leave an index and come back in one flush.
local function flush()
  for owner in pairs(touched_customers) do
    write('HSET', CUSTOMERS, owner, pack(customers[owner]))
  end
  for number, one in pairs(touched_documents) do
    write('HSET', DOCUMENTS, number, pack(one.moving) .. one.tail)
  end
  for _, lane in pairs(touched_lanes) do
    place_lane(lane)
  end
  local news = is_news()
  call('SET', KEYS[1], pack(queue))
  for _, one in ipairs(writes) do
    if one.command == 'ZREM' or one.command == 'HDEL' then
      call_many(one.command, one.key, one.arguments)
    end
  end
  for _, one in ipairs(writes) do
    if one.command ~= 'ZREM' and one.command ~= 'HDEL' then
      call_many(one.command, one.key, one.arguments)
    end
  end
  call_many('RPUSH', FEED, feed)
  touched_documents, touched_customers, touched_lanes, writes, feed = {}, {}, {}, {}, {}
  if news then
    redis.pcall('PUBLISH', prefix .. 'signal', '1') -- a hint; whoever misses it looks again by itself
  end
end
