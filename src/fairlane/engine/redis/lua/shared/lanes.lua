-- Lanes: one customer's ready documents of one priority and kind; who competes, and from which start tags.

local lanes, changed_lanes = {}, {} -- by name

local function ready_key(lane)
  return prefix .. 'ready:' .. lane.name
end

-- Make a lane of its stored values. `head` is a seq and `ready` since when it is ready, as text; false: the lane is empty.
-- It competes while it has a start tag and its kind is not blocked. `finish` and `cross_finish` are nil where the lane was made
-- from an index: `load_finish` reads them. A record of form 5 has no cross tags, which is level.
local function make_lane(owner, priority, kind, name, head, ready, start, finish, cross, cross_finish)
  cross, cross_finish = cross or 0, cross_finish or finish and 0
  local lane = {
    owner = owner, priority = priority, kind = kind, name = name, head = head, ready = ready, start = start, cross = cross,
    finish = finish, cross_finish = cross_finish, stored_head = head, stored_ready = ready, stored_start = start,
    stored_cross = cross, stored_finish = finish, stored_cross_finish = cross_finish,
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
    end
  end
  changed_lanes[name] = lane
  return lane
end

-- Return the lane that a document belongs to.
local function lane_for(document)
  local lane = lanes[document.lane]
  if not lane then
    return lane_of(document.owner, place_of(document))
  end
  changed_lanes[lane.name] = lane
  return lane
end

-- Read the lanes of documents with few commands; `lane_for` finds them afterwards.
local function load_lanes_for(some)
  local names, firsts = {}, {}
  for _, document in ipairs(some) do
    local priority, kind = place_of(document)
    local name = lane_name(document.owner, priority, kind)
    document.lane = name
    if not firsts[name] and not lanes[name] then
      firsts[name], names[#names + 1] = {document.owner, priority, kind}, name
    end
  end
  for at, record in ipairs(read_many(LANES, names)) do
    local name = names[at]
    local owner, priority, kind = unpack(firsts[name])
    make_lane(owner, priority, kind, name, decode(record))
  end
end

-- Return all lanes of a customer.
local function lanes_of(owner)
  local all = {}
  for _, rest in ipairs(call('SMEMBERS', prefix .. 'lanes-of:' .. owner)) do
    all[#all + 1] = lane_of(owner, tonumber(sub(rest, 1, 1)), sub(rest, 2))
  end
  return all
end

local function load_finish(lane)
  if not lane.finish then
    local _, _, _, finish, _, cross_finish = decode(call('HGET', LANES, lane.name))
    lane.finish, lane.cross_finish = finish, cross_finish or 0
  end
end

-- Give a lane that gains a head or is unblocked its start tags.
local function start_lane(lane)
  if is_strict then
    lane.start, lane.cross = 0, 0
    return
  end
  load_finish(lane)
  lane.start = max(kind_of(lane.kind).clocks[lane.priority], lane.finish)
  lane.cross = max(queue[CLOCK + lane.priority], lane.cross_finish)
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
    if not is_blocked(customer_of(lane.owner)) then
      start_lane(lane)
    end
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

local function true_up_tag(tag, clock, delta)
  return max(min(tag, clock + 1), tag + delta)
end

-- Charge a lane what one of its turns cost more than it paid, or return what it cost less.
local function true_up(lane, delta)
  local kind, priority = kind_of(lane.kind), lane.priority
  local is_competing = lane.start and not kind.blocked
  load_finish(lane)
  if is_competing then
    lane.finish, lane.cross_finish = lane.start, cross_of(kind, priority, lane.cross)
  end
  lane.finish = true_up_tag(lane.finish, kind.clocks[priority], delta)
  lane.cross_finish = true_up_tag(lane.cross_finish, queue[CLOCK + priority], delta)
  if is_competing then
    lane.start, lane.cross = lane.finish, lane.cross_finish
  elseif lane.start then
    start_lane(lane)
  end
end

-- After a customer's terms or running documents changed: its lanes stop competing, or compete again from the clocks.
local function update_blocked(owner, was_blocked)
  local is_blocked_now = is_blocked(customer_of(owner))
  if is_blocked_now == was_blocked then
    return
  end
  for _, lane in ipairs(lanes_of(owner)) do
    lane.start = false
    if lane.head and not is_blocked_now then
      start_lane(lane)
    end
  end
end

-- Note that an index of a kind changes (priority 0: by age).
local function note_moved(moved, kind, priority)
  local positions = moved[kind]
  if not positions then
    positions = {}
    moved[kind] = positions
  end
  positions[priority] = positions[priority] or {kind = kind_of(kind), priority = priority}
end

-- Write a lane's head in the indexes of its kind in the order of turns.
local function write_turn(lane)
  local priority, kind, suffix = lane.priority, lane.kind, DIGIT[lane.priority] .. lane.owner
  local turns, tied = turns_key(priority, kind), limited_kind(kind) and tied_key(priority, kind)
  if lane.stored_start then
    local cross = seq_of(lane.stored_cross)
    remove('ZREM', turns, cross .. lane.stored_head .. suffix)
    if tied then
      remove('ZREM', tied, lane.stored_head .. DIGIT[priority] .. cross .. lane.owner)
    end
  end
  if lane.start then
    local cross = seq_of(lane.cross)
    write('ZADD', turns, as_text(lane.start), cross .. lane.head .. suffix)
    if tied then
      write('ZADD', tied, as_text(lane.start), lane.head .. DIGIT[priority] .. cross .. lane.owner)
    end
  end
end

-- Write a lane's head in the index of its kind by age.
local function write_age(lane, gaining)
  local ages, suffix = ages_key(lane.kind), DIGIT[lane.priority] .. lane.owner
  if lane.stored_start then
    remove('ZREM', ages, lane.stored_head .. suffix)
  end
  if lane.start then
    write('ZADD', ages, lane.ready, lane.head .. suffix)
    gaining[ages] = true
  end
end

-- Write a lane, and its head in the indexes of its kind where that changed; notes in `gaining` which index of ages gains a head,
-- and in `moved` the indexes that change.
local function write_lane(lane, gaining, moved)
  local head, start = lane.head, lane.start
  local is_aged = head ~= lane.stored_head or lane.ready ~= lane.stored_ready or not start ~= not lane.stored_start
  local is_moved = is_aged or start ~= lane.stored_start or (start and lane.cross ~= lane.stored_cross)
  if not is_moved and lane.finish == lane.stored_finish and lane.cross_finish == lane.stored_cross_finish then
    return
  end
  load_finish(lane)
  write('HSET', LANES, lane.name, pack(head, lane.ready, start, lane.finish, lane.cross, lane.cross_finish))
  if is_moved then
    note_moved(moved, lane.kind, lane.priority)
    write_turn(lane)
  end
  if is_aged then
    note_moved(moved, lane.kind, 0)
    write_age(lane, gaining)
  end
  lane.stored_head, lane.stored_ready, lane.stored_start, lane.stored_cross = head, lane.ready, start, lane.cross
  lane.stored_finish, lane.stored_cross_finish = lane.finish, lane.cross_finish
end

-- Give a kind its first limit: from now on its heads are indexed by number too, since cross tags below a floor are all the same.
local function begin_limit(kind)
  if kind.version > 0 then
    return
  end
  queue[LIMITED] = queue[LIMITED] + 1
  write('ZADD', LIMITED_KINDS, '0', kind.name)
  for priority = 1, 9 do
    local members = call('ZRANGE', turns_key(priority, kind.name), 0, -1, 'WITHSCORES')
    for at = 1, #members, 2 do
      local member = members[at]
      local cross, seq, owner = sub(member, 1, 16), sub(member, 17, 32), sub(member, 34)
      write('ZADD', tied_key(priority, kind.name), members[at + 1], seq .. DIGIT[priority] .. cross .. owner)
    end
  end
end
