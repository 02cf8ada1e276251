-- Lanes: one customer's ready documents of one priority and kind; who competes, and from which start tag.

local lanes, changed_lanes = {}, {} -- by name

local function ready_key(lane)
  return prefix .. 'ready:' .. lane.name
end

-- Make a lane of its stored values. `head` is a seq and `ready` since when it is ready, as text; false: the lane is empty.
-- It competes while it has a start tag. `finish` is nil where the lane was made from an index: `finish_of` reads it.
local function make_lane(owner, priority, kind, name, head, ready, start, finish)
  local lane = {
    owner = owner, priority = priority, kind = kind, name = name, head = head, ready = ready, start = start, finish = finish,
    stored_head = head, stored_ready = ready, stored_start = start, stored_finish = finish,
  }
  lanes[name] = lane
  return lane
end

-- Return a lane to change, an empty one if it never existed.
local function lane_of(owner, priority, kind)
  local name = lane_name(owner, priority, kind)
  local lane = lanes[name]
  if not lane then
    local record = call('HGET', LANES, name)
    if record then
      lane = make_lane(owner, priority, kind, name, decode(record))
    else
      lane = make_lane(owner, priority, kind, name, false, false, false, 0)
      write('SADD', prefix .. 'lanes-of:' .. owner, DIGIT[priority] .. kind)
      write('SADD', prefix .. 'kinds', kind)
    end
  end
  changed_lanes[name] = lane
  return lane
end

-- Return the lane that a document belongs to.
local function lane_for(document)
  local values = fixed(document)
  return lane_of(document.owner, values.priority, values.kind)
end

-- Return all lanes of a customer.
local function lanes_of(owner)
  local all = {}
  for _, rest in ipairs(call('SMEMBERS', prefix .. 'lanes-of:' .. owner)) do
    all[#all + 1] = lane_of(owner, tonumber(sub(rest, 1, 1)), sub(rest, 2))
  end
  return all
end

local function finish_of(lane)
  if not lane.finish then
    local _, _, _, finish = decode(call('HGET', LANES, lane.name))
    lane.finish = finish
  end
  return lane.finish
end

-- Return the start tag of a lane that gains a head or is unblocked.
local function start_tag(lane)
  return is_strict and 0 or max(queue[CLOCK + lane.priority], finish_of(lane))
end

-- A ready document joins its lane by submission number.
local function join(lane, seq, ready)
  local priority, head = lane.priority, lane.head
  write('ZADD', ready_key(lane), '0', seq .. ready)
  queue[READY_IN + priority] = queue[READY_IN + priority] + 1
  if head and head < seq then
    return
  end
  if not head then
    queue[LANES_IN + priority] = queue[LANES_IN + priority] + 1
    lane.start = not is_blocked(customer_of(lane.owner)) and start_tag(lane)
  end
  lane.head, lane.ready = seq, ready
end

-- Return the next member behind a lane's head, as stored. Most lanes are served once in a call, so one member is read first,
-- then more and more at once.
local function next_member(lane)
  local at = (lane.next_at or 0) + 1
  if not (lane.behind and lane.behind[at]) then
    local rank, size = lane.rank or 1, lane.behind and min(512, 8 * #lane.behind) or 1
    lane.behind = call('ZRANGE', ready_key(lane), rank, rank + size - 1)
    lane.rank, at = rank + #lane.behind, 1
  end
  lane.next_at = at
  return lane.behind[at]
end

-- The document behind a lane's head becomes its head. Those that left in this call are still in the stored set.
local function next_head(lane)
  repeat
    local member = next_member(lane)
    if not member then
      lane.head, lane.ready, lane.start = false, false, false
      queue[LANES_IN + lane.priority] = queue[LANES_IN + lane.priority] - 1
      return
    end
    lane.head, lane.ready = sub(member, 1, 16), sub(member, 17)
  until not (lane.left and lane.left[lane.head])
end

-- A ready document leaves its lane.
local function leave(lane, seq, ready)
  remove('ZREM', ready_key(lane), seq .. ready)
  queue[READY_IN + lane.priority] = queue[READY_IN + lane.priority] - 1
  if lane.head == seq then
    next_head(lane)
  else
    lane.left = lane.left or {}
    lane.left[seq] = true
  end
end

-- After a customer's terms or running documents changed: its lanes stop competing, or compete again from the clock.
local function update_blocked(owner, was_blocked)
  local is_blocked_now = is_blocked(customer_of(owner))
  if is_blocked_now == was_blocked then
    return
  end
  for _, lane in ipairs(lanes_of(owner)) do
    lane.start = not is_blocked_now and lane.head and start_tag(lane)
  end
end

-- Write a lane and its head in the two indexes of its kind; notes in `gaining` which index of ages gains a head, and in `moved`
-- the indexes that change, with their kind and priority (0: by age).
local function write_lane(lane, gaining, moved)
  local head, ready, start = lane.head, lane.ready, lane.start
  local is_moved = head ~= lane.stored_head or ready ~= lane.stored_ready or start ~= lane.stored_start
  if not is_moved and lane.finish == lane.stored_finish then
    return
  end
  write('HSET', LANES, lane.name, pack(head, ready, start, finish_of(lane)))
  if not is_moved then
    return
  end
  local turns, ages, suffix = turns_key(lane.priority, lane.kind), ages_key(lane.kind), DIGIT[lane.priority] .. lane.owner
  moved[turns], moved[ages] = {lane.kind, lane.priority}, {lane.kind, 0}
  if lane.stored_start then
    local member = lane.stored_head .. suffix
    remove('ZREM', turns, member)
    remove('ZREM', ages, member)
  end
  if start then
    local member = head .. suffix
    write('ZADD', turns, start, member)
    write('ZADD', ages, ready, member)
    gaining[ages] = true
  end
  lane.stored_head, lane.stored_ready, lane.stored_start, lane.stored_finish = head, ready, start, lane.finish
end
