-- What most verbs share: records that are read once, and one flush that writes everything at the end. It stands behind basis.lua;
-- what only some need, to move documents from one state to another, stands in moving.lua.
--
-- Laws:
-- A script reads, checks and decides first; `flush` writes. An error before it leaves nothing behind, and its first write is
-- one that a full server refuses, so a full server refuses all of it.

local COUNT_OF = {ready = WAITING, delayed = WAITING, running = RUNNING, done = DONE, failed = FAILED, cancelled = CANCELLED}
local DIGIT = {'1', '2', '3', '4', '5', '6', '7', '8', '9'}

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

-- A line of the feed; what lines of a script have in common is packed once.
local line_what, line_note, line_head
local function log(now, what, owner, place, token, note)
  queue[LAST_CHANGE] = queue[LAST_CHANGE] + 1
  note = note or false
  if what ~= line_what or note ~= line_note then
    line_what, line_note, line_head = what, note, pack(now, what, note, call_id)
  end
  feed[#feed + 1] = line_head .. pack(owner or false, place or false, token or false)
end

local function opened(place, record)
  local one = {place, record, cmsgpack.unpack_limit(record, CHANGING, 0)}
  documents[place] = one
  return one
end

-- A document, or nil.
local function document(place)
  local one = documents[place]
  if one == nil then
    local record = call('HGET', DOCUMENTS .. sub(place, 1, PIECE), place)
    one = record and opened(place, record) or false
    documents[place] = one
  end
  return one or nil
end

-- The part of a document that never changes.
local function fixed(one)
  if not one.fixed then
    one.fixed = {opened_values(sub(one[RECORD], one[FIXED_AT] + 1))}
  end
  return one.fixed
end

local function document_by_id(id)
  local place = call('HGET', IDS .. sub(id, 1, ID_PIECE), id)
  return place and document(place)
end

local function customer_of(owner)
  local customer = customers[owner]
  if not customer then
    customer = opened_customer(call('HGET', CUSTOMERS, owner))
    customers[owner] = customer
  end
  return customer
end

-- A customer seen for the first time.
local function new_customer(name)
  queue[LAST_CUSTOMER] = queue[LAST_CUSTOMER] + 1
  local owner = as_text(queue[LAST_CUSTOMER])
  customers[owner] = unseen(name)
  touched_customers[owner] = true
  add('HSET', NUMBERS, name, owner)
  add('ZADD', prefix .. 'names', '0', name)
  return owner
end

-- -- lanes ----------------------------------------------------------------------------------------------------------

-- A lane. `head` is a place and `ready` since when it is, as text; false: there is none. It competes while it has a start tag.
-- A lane that an index told of knows no finish tag until somebody asks for it.
local function opened_lane(owner, priority, kind, name, head, ready, start, finish)
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
  local lane = lanes[name]
  if not lane then
    local record = call('HGET', LANES, name)
    if record then
      lane = opened_lane(owner, priority, kind, name, opened_values(record))
    else
      lane = opened_lane(owner, priority, kind, name, false, false, false, 0)
      add('SADD', prefix .. 'lanes-of:' .. owner, DIGIT[priority] .. kind)
      add('SADD', prefix .. 'kinds', kind)
    end
  end
  touched_lanes[name] = lane
  return lane
end

local function finish_of(lane)
  local finish = lane.finish
  if not finish then
    local _
    _, _, _, finish = opened_values(call('HGET', LANES, lane.name))
    lane.finish = finish
  end
  return finish
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
  return is_strict and 0 or max(queue[CLOCK + lane.priority], finish_of(lane))
end

-- A ready document joins its lane by submission number.
local function join(lane, place, ready)
  local priority, head = lane.priority, lane.head
  add('ZADD', ready_key(lane), '0', place .. ready)
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

local turns_keys, ages_keys = {}, {} -- made once: by priority, by kind

-- The index of a kind's heads by turn, those of one priority.
local function turns_key(priority, kind)
  local keys = turns_keys[priority]
  if not keys then
    keys = {}
    turns_keys[priority] = keys
  end
  local key = keys[kind]
  if not key then
    key = prefix .. 'turns:' .. DIGIT[priority] .. kind
    keys[kind] = key
  end
  return key
end

-- The index of a kind's heads by age.
local function ages_key(kind)
  local key = ages_keys[kind]
  if not key then
    key = prefix .. 'ages:' .. kind
    ages_keys[kind] = key
  end
  return key
end

-- A lane's record, and its head in the two indexes of its kind; notes which index of turns gains a head.
local function place_lane(lane, gaining)
  local head, ready, start = lane.head, lane.ready, lane.start
  local is_moved = head ~= lane.was_head or ready ~= lane.was_ready or start ~= lane.was_start
  if not is_moved and lane.finish == lane.was_finish then
    return
  end
  add('HSET', LANES, lane.name, pack(head, ready, start, finish_of(lane)))
  if not is_moved then
    return
  end
  local kind, digit = lane.kind, DIGIT[lane.priority]
  local mark, turns, ages = digit .. lane.owner, turns_key(lane.priority, kind), ages_key(kind)
  if lane.was_start then
    local member = lane.was_head .. mark
    drop('ZREM', turns, member)
    drop('ZREM', ages, member)
  end
  if start then
    local member = head .. mark
    add('ZADD', turns, start, member)
    add('ZADD', ages, ready, member)
    gaining[ages] = true
  end
  lane.was_head, lane.was_ready, lane.was_start, lane.was_finish = head, ready, start, lane.finish
end

-- Whether somebody who waits must look again: a kind that had no head gains one, or something is due sooner than all else.
local function is_news(gaining)
  if soonest then
    local first = call('ZRANGE', prefix .. 'delayed', 0, 0, 'WITHSCORES')[2]
    if not first or soonest < tonumber(first) then
      return true
    end
  end
  for ages in pairs(gaining) do
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
    add('HSET', CUSTOMERS, owner, packed_customer(customers[owner]))
  end
  for place, one in pairs(touched_documents) do
    local record = pack(unpack(one, STATE, ID)) .. sub(one[RECORD], one[FIXED_AT] + 1)
    add('HSET', DOCUMENTS .. sub(place, 1, PIECE), place, record)
  end
  for _, lane in pairs(touched_lanes) do
    place_lane(lane, gaining)
  end
  local news = is_news(gaining)
  call('SET', KEYS[1], packed_queue())
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
