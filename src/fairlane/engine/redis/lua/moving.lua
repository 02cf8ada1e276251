-- What verbs share that move documents from one state to another, or read many; it stands behind shared.lua.
--
-- Apart, because a script makes its functions anew each time it runs: a submission does without these.

local DELAYED, LEASES, RESULTS, ENDINGS = prefix .. 'delayed', prefix .. 'leases', prefix .. 'results:', prefix .. 'endings'

-- -- reading many ---------------------------------------------------------------------------------------------------

-- The values of many fields of a hash, false where there is none.
local function read_many(key, fields)
  local count = #fields
  if count == 0 then
    return fields
  elseif count <= ARGUMENTS_MAX then
    return call('HMGET', key, unpack(fields))
  end
  local found = {}
  for first = 1, count, ARGUMENTS_MAX do
    for place, value in ipairs(call('HMGET', key, unpack(fields, first, min(first + ARGUMENTS_MAX - 1, count)))) do
      found[first + place - 1] = value
    end
  end
  return found
end

-- What is at many places, false where nothing is: a command a piece. Most often all are in one.
local function read_places(hash, places)
  local count, first = #places, sub(places[1] or '', 1, PIECE)
  local same = 1
  while same < count and sub(places[same + 1], 1, PIECE) == first do
    same = same + 1
  end
  if same >= count then
    return read_many(hash .. first, places)
  end
  local pieces, found = {}, {}
  for at = 1, count do
    local name = sub(places[at], 1, PIECE)
    local piece = pieces[name]
    if not piece then
      piece = {places = {}, turns = {}}
      pieces[name] = piece
    end
    local size = #piece.places + 1
    piece.places[size], piece.turns[size] = places[at], at
  end
  for name, piece in pairs(pieces) do
    for at, value in ipairs(read_many(hash .. name, piece.places)) do
      found[piece.turns[at]] = value
    end
  end
  return found
end

-- Many documents, read together; whoever asks for one of them afterwards finds it here.
local function load_documents(places)
  local records = read_places(DOCUMENTS, places)
  for at = 1, #places do
    local place, record = places[at], records[at]
    if not documents[place] then
      documents[place] = record and opened(place, record) or false
    end
  end
end

-- Many customers, read together.
local function load_customers(owners)
  local records = read_many(CUSTOMERS, owners)
  for at = 1, #owners do
    if not customers[owners[at]] then
      customers[owners[at]] = opened_customer(records[at])
    end
  end
end

-- The customers of documents that were read.
local function load_customers_of(places)
  local owners, seen = {}, {}
  for _, place in ipairs(places) do
    local one = documents[place]
    local owner = one and one[OWNER]
    if owner and not seen[owner] then
      seen[owner], owners[#owners + 1] = true, owner
    end
  end
  load_customers(owners)
end

-- What is seen of a document.
local function snapshot(one)
  local part = fixed(one)
  return {
    one[ID], tonumber(one[PLACE]), customer_of(one[OWNER])[NAME], part[KIND], one[STATE], part[PRIORITY],
    part[MADE_COUNTER], part[CHECKED], part[MADE_VERSION], part[MADE_TERMS], one[COST], part[KEY], tonumber(one[READY]),
    one[ATTEMPTS], one[ATTEMPTS_MAX], one[TOKEN], one[WORKER], one[LEASE], one[ENDED], one[REASON],
  }
end

local function touch(one)
  touched_documents[one[PLACE]] = one
end

-- -- lanes ----------------------------------------------------------------------------------------------------------

-- All lanes of a customer.
local function lanes_of(owner)
  local all = {}
  for _, rest in ipairs(call('SMEMBERS', prefix .. 'lanes-of:' .. owner)) do
    all[#all + 1] = lane_of(owner, tonumber(sub(rest, 1, 1)), sub(rest, 2))
  end
  return all
end

-- The document behind a lane's head moves up; what is gone stays in the stored set until the flush. Most lanes are served
-- once in a round, so one is read first, then more and more at once. `rank` is how many of the set were read, the head with it.
local function find_head(lane)
  while true do
    local behind, at = lane.behind, (lane.at or 0) + 1
    local member = behind and behind[at]
    if not member then
      local rank = lane.rank or 1
      if behind then
        behind = call('ZRANGE', ready_key(lane), rank, rank + min(512, 8 * #behind) - 1)
      else
        behind = call('ZRANGE', ready_key(lane), '1', '1')
      end
      lane.behind, lane.rank, at = behind, rank + #behind, 1
      member = behind[1]
    end
    lane.at = at
    if not member then
      lane.head, lane.ready, lane.start = false, false, false
      queue[LANES_IN + lane.priority] = queue[LANES_IN + lane.priority] - 1
      return
    end
    local place = sub(member, 1, 16)
    if not (lane.gone and lane.gone[place]) then
      lane.head, lane.ready = place, sub(member, 17)
      return
    end
  end
end

-- A ready document leaves its lane, to be served or for good.
local function leave(lane, place, ready)
  drop('ZREM', ready_key(lane), place .. ready)
  queue[READY_IN + lane.priority] = queue[READY_IN + lane.priority] - 1
  if lane.head == place then
    find_head(lane)
  else
    lane.gone = lane.gone or {}
    lane.gone[place] = true
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

-- The cost of a document turned out to be another one; dropped if a reset came between.
local function correct(customer, made_resets, step_before, step_after)
  if customer[UPDATED] and customer[RESETS] == made_resets then
    customer[COUNTER] = max(COUNTER_FLOOR, min(0, customer[COUNTER] + step_before - step_after))
    customer[PACKED] = false
  end
end

-- The lane that a document belongs to.
local function lane_for(one)
  local part = fixed(one)
  return lane_of(one[OWNER], part[PRIORITY], part[KIND])
end

-- A document waits, from `ready` on.
local function queue_up(one, ready, is_delayed)
  one[STATE], one[READY] = is_delayed and 'delayed' or 'ready', as_text(ready)
  if is_delayed then
    add('ZADD', DELAYED, one[READY], one[PLACE])
    soonest = min(soonest or ready, ready)
  else
    join(lane_for(one), one[PLACE], one[READY])
  end
end

-- A document is no longer counted as what it is, but as being in that state (nil: not at all).
local function move_count(one, state)
  local owner = one[OWNER]
  local customer = customer_of(owner)
  local was_blocked, before = is_blocked(customer), COUNT_OF[one[STATE]]
  customer[before] = customer[before] - 1
  if state then
    customer[COUNT_OF[state]] = customer[COUNT_OF[state]] + 1
  end
  touched_customers[owner] = true
  gate(owner, was_blocked)
end

-- A document leaves the place where its state keeps it.
local function leave_place(one)
  local state = one[STATE]
  if state == 'running' then
    drop('ZREM', LEASES, one[PLACE])
  elseif state == 'delayed' then
    drop('ZREM', DELAYED, one[PLACE])
  elseif state == 'ready' then
    leave(lane_for(one), one[PLACE], one[READY])
  else
    drop('ZREM', ENDINGS, one[PLACE])
    if state ~= 'done' then
      drop('ZREM', prefix .. state, one[PLACE])
    end
  end
end

local now_text -- made once: all that ends in one call ends at the same time

-- A document ends.
local function finish(one, state, now, reason)
  now_text = now_text or as_text(now)
  leave_place(one)
  move_count(one, state)
  one[STATE], one[ENDED], one[LEASE], one[REASON] = state, now, false, reason or false
  add('ZADD', ENDINGS, now_text, one[PLACE])
  if state ~= 'done' then
    add('ZADD', prefix .. state, one[PLACE], one[PLACE])
  end
  touch(one)
  log(now, state, one[OWNER], one[PLACE], one[TOKEN], reason)
end

-- A running document goes back to wait.
local function come_back(one, what, now, after, note)
  leave_place(one)
  move_count(one, 'ready')
  one[LEASE] = false
  queue_up(one, now + after, after > 0)
  touch(one)
  log(now, what, one[OWNER], one[PLACE], one[TOKEN], note)
end

-- A document is forgotten, and with it its key and what was reported of it.
local function erase(one)
  local key = fixed(one)[KEY]
  for _, hash in ipairs({DOCUMENTS, PAYLOADS, RESULTS}) do
    drop('HDEL', hash .. sub(one[PLACE], 1, PIECE), one[PLACE])
  end
  drop('HDEL', IDS .. sub(one[ID], 1, ID_PIECE), one[ID])
  drop('HDEL', prefix .. 'records:progress', one[ID])
  drop('ZREM', prefix .. 'record-keys:progress', one[ID])
  drop('ZREM', prefix .. 'documents-of:' .. one[OWNER], one[PLACE])
  if key then
    drop('HDEL', prefix .. 'keys', one[OWNER] .. ':' .. key)
  end
end
