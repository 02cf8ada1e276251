-- Claim: lease up to `limit` documents in dispatch order; each gets a fresh token and one more attempt counted.
--
-- ARGV: now, worker, limit, lease, due at most, the set of kinds as JSON, count of kinds (-1: all), then kind and attempts of each.
-- The indexes stay as they were until the flush. So a lane that this call has served is skipped there, and waits in `again`
-- for another turn.
if rules.frozen then
  return frozen_error()
end
local now, worker, limit, kind_set, kind_count = now_of(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[6], tonumber(ARGV[7])
local lease_ends = now + tonumber(ARGV[4])

-- Delayed documents that are due join their lanes, and kinds whose rate allows another start compete again; written at once,
-- because the dispatch reads the indexes.
local function ready_due()
  local due = call('ZRANGEBYSCORE', DELAYED, '-inf', now, 'LIMIT', 0, ARGV[5])
  load_documents(due)
  for _, seq in ipairs(due) do
    local document = document_of(seq)
    document.state, changed_documents[seq] = 'ready', document
    remove('ZREM', DELAYED, seq)
    join(lane_for(document), seq, document.ready)
  end
  for _, kind in ipairs(limited_kinds()) do
    update_kind(kind, now)
  end
  if #due > 0 or next(changed_kinds) then
    flush()
    begin_writes()
  end
end

-- Count the time since the last claim during which something could have been taken; returns whether there is any.
local function count_busy()
  local oldest = now > queue[TICKED] and call('ZRANGE', firsts_key(0), 0, 0, 'WITHSCORES')[2]
  if not oldest then
    return false
  end
  queue[BUSY] = queue[BUSY] + max(0, now - max(queue[TICKED], tonumber(oldest)))
  queue[TICKED] = now
  return true
end

ready_due()
local is_busy = count_busy()

local asked, attempts_of = {}, {} -- no kinds: all
for at = 1, kind_count do
  asked[at] = ARGV[6 + 2 * at]
  attempts_of[asked[at]] = tonumber(ARGV[7 + 2 * at])
end

local served, capped = {}, {} -- lanes by name; owners that reached their cap in this call
local again = {} -- by priority and kind: served lanes that have a head left and may compete, in the order of turns
local touched = {} -- by priority: kinds of which a lane was served, or stopped competing, so that another may be first
local priority, turns, ages = 0, nil, nil -- the priority that is served now, cursors of its heads, cursors by age

-- Return whether a kind has reached its limit.
local function is_kind_blocked(name)
  local kind = limited_kind(name)
  return kind and kind.blocked
end

-- -- heads in the order of an index --

-- Return whether a head comes before another one: by order (a cross tag, or the time since when it is ready), then by number.
local function is_before(order, seq, other_order, other_seq)
  return order < other_order or (order == other_order and seq < other_seq)
end

-- Return whether a lane's turn comes before that of another one of its kind.
local function is_first(start, cross, seq, other_start, other_cross, other_seq)
  return start < other_start or (start == other_start and is_before(cross, seq, other_cross, other_seq))
end

-- The members of the three indexes, as heads: `order` is what heads of different kinds are compared by.
local function parse_turn(member, score)
  local cross = tonumber(sub(member, 1, 16))
  return {seq = sub(member, 17, 32), digit = sub(member, 33, 33), owner = sub(member, 34), start = score, cross = cross, order = cross}
end

local function parse_tied(member, score)
  local cross = tonumber(sub(member, 18, 33))
  return {seq = sub(member, 1, 16), digit = sub(member, 17, 17), owner = sub(member, 34), start = score, cross = cross}
end

local function parse_age(member, score)
  return {seq = sub(member, 1, 16), digit = sub(member, 17, 17), owner = sub(member, 18), order = score}
end

-- Make a cursor for an index of one kind, which reads `size` heads at a time; with `preload` also what a claim of them needs.
local function open_cursor(parse, key, kind, size, preload)
  return {parse = parse, key = key, kind = kind, size = size, preload = preload, heads = {}, at = 1, read = 0, is_last = false}
end

local function read_heads(cursor)
  local members = call('ZRANGE', cursor.key, cursor.read, cursor.read + cursor.size - 1, 'WITHSCORES')
  local heads, seqs, owners = {}, {}, {}
  for at = 1, #members / 2 do
    local head = cursor.parse(members[2 * at - 1], tonumber(members[2 * at]))
    head.priority, head.kind, head.lane = tonumber(head.digit), cursor.kind, head.owner .. ':' .. head.digit .. cursor.kind
    heads[at], seqs[at], owners[at] = head, head.seq, head.owner
  end
  cursor.heads, cursor.at, cursor.read, cursor.is_last = heads, 1, cursor.read + #heads, #heads < cursor.size
  if cursor.preload then
    load_documents(seqs)
    load_customers(owners)
  end
end

-- Return the first head of a cursor whose lane and customer may still be served from the index; nil at its end.
local function current_head(cursor)
  while true do
    local head = cursor.heads[cursor.at]
    if head then
      if not (served[head.lane] or capped[head.owner]) then
        return head
      end
      cursor.at = cursor.at + 1
    elseif cursor.is_last then
      return nil
    else
      read_heads(cursor)
    end
  end
end

-- -- whose turn it is --

-- Return the first head of a kind's index of turns. Among those with the lowest start tag, cross tags below the floor are all
-- equal to it: the index by number knows their order.
local function first_in_index(cursor)
  local head, floor = current_head(cursor), cursor.floor
  if not (head and floor and head.cross < floor) then
    return head
  end
  local tied = cursor.tied
  head = current_head(tied)
  while head.cross > floor do -- it is above the floor, so the index of turns has its place
    tied.at = tied.at + 1
    head = current_head(tied)
  end
  head.order = floor
  return head
end

-- Return the lane of a kind that waits for another turn and is first of those, or nil.
local function first_again(priority, kind)
  local list = again[priority .. kind]
  return list and list[1]
end

-- Return a kind's first head: from its index, or of a lane that waits for another turn.
local function first_of_kind(cursor)
  if is_kind_blocked(cursor.kind) then
    return nil
  end
  local head, lane = first_in_index(cursor), first_again(cursor.priority, cursor.kind)
  if lane and not (head and is_first(head.start, head.order, head.seq, lane.start, lane.cross, lane.head)) then
    lane.seq, lane.order, lane.lane = lane.head, lane.cross, lane.name
    return lane
  end
  return head
end

-- The kinds whose cursors are not open yet, each with the order and the number of its first head, in that order: of all kinds
-- read a few at a time, of a list of kinds at once. A single kind is first whatever its head is.
local function list_kinds(first_of_index, firsts)
  if kind_count < 0 then
    return {key = firsts, at = 1, read = 0}
  elseif kind_count == 1 then
    return {{kind = asked[1], order = -math.huge, seq = ''}, at = 1}
  end
  local list = {at = 1}
  for _, name in ipairs(asked) do
    local seq, order = first_of_index(name)
    if seq then
      list[#list + 1] = {kind = name, order = order, seq = seq}
    end
  end
  table.sort(list, function(one, other)
    return is_before(one.order, one.seq, other.order, other.seq)
  end)
  return list
end

-- Return the first kind of such a list.
local function next_kind(list)
  if not list[list.at] and list.key then
    local members = call('ZRANGE', list.key, list.read, list.read + 31, 'WITHSCORES')
    for at = 1, #members, 2 do
      list[#list + 1] = {kind = sub(members[at], 17), order = tonumber(members[at + 1]), seq = sub(members[at], 1, 16)}
    end
    list.read = list.read + #members / 2
  end
  return list[list.at]
end

-- Return the better of two heads; either may be nil.
local function better_of(head, other)
  if head and not (other and is_before(other.order, other.seq, head.order, head.seq)) then
    return head
  end
  return other
end

-- Return the first head of a group of cursors. A kind is opened when its first head is reached, or when it is no longer the one
-- that its list has.
local function first_head(group)
  while group.touched[1] do
    local name = table.remove(group.touched)
    if not group.opened[name] and (kind_count < 0 or attempts_of[name]) then
      group.open(name)
    end
  end
  local first
  for _, cursor in ipairs(group) do
    first = better_of(group.first_of(cursor), first)
  end
  local entry = next_kind(group.list)
  while entry and (not first or is_before(entry.order, entry.seq, first.order, first.seq)) do
    group.list.at = group.list.at + 1
    if not group.opened[entry.kind] then
      first = better_of(group.first_of(group.open(entry.kind)), first)
    end
    entry = next_kind(group.list)
  end
  return first
end

-- Make a group of cursors, which `make_cursor` makes of the names of kinds, and of which `first_of` returns the first head.
local function open_group(list, touched_kinds, first_of, make_cursor)
  local group = {list = list, touched = touched_kinds, first_of = first_of, opened = {}}
  group.open = function(name)
    local cursor = make_cursor(name)
    group[#group + 1], group.opened[name] = cursor, true
    return cursor
  end
  return group
end

-- Make the group of cursors for the turns of a priority.
local function open_turns(priority)
  local size = min(limit, kind_count == 1 and 128 or 8)
  local list = list_kinds(function(name) return first_by_turn(priority, name) end, firsts_key(priority))
  touched[priority] = touched[priority] or {}
  return open_group(list, touched[priority], first_of_kind, function(name)
    local cursor, kind = open_cursor(parse_turn, turns_key(priority, name), name, size, true), limited_kind(name)
    cursor.priority, cursor.floor = priority, kind and kind.floors and kind.floors[priority]
    cursor.tied = cursor.floor and open_cursor(parse_tied, tied_key(priority, name), name, size, true)
    return cursor
  end)
end

-- Return the lane of a head; an index by age does not hold its tags.
local function lane_at(head)
  local lane = lanes[head.lane]
  if lane then
    return lane
  elseif head.start then
    local ready = document_of(head.seq).ready
    return make_lane(head.owner, head.priority, head.kind, head.lane, head.seq, ready, head.start, nil, head.cross)
  end
  return lane_of(head.owner, head.priority, head.kind)
end

-- Go on to the next priority that has lanes; returns whether there is one.
local function next_priority()
  repeat
    priority = priority + 1
  until priority > 9 or queue[LANES_IN + priority] > 0
  turns = priority <= 9 and open_turns(priority)
  return turns
end

-- Return the lane whose turn it is.
local function lane_by_turn()
  repeat
    local head = turns and first_head(turns)
    if head then
      return lane_at(head)
    end
  until not next_priority()
end

-- Return the lane whose head has been ready longest, whatever its priority.
local function lane_by_age()
  ages = ages or open_group(list_kinds(first_by_age, firsts_key(0)), {}, function(cursor)
    return not is_kind_blocked(cursor.kind) and current_head(cursor) or nil
  end, function(name)
    return open_cursor(parse_age, ages_key(name), name, 8, false)
  end)
  local head, oldest = first_head(ages), nil
  local ready, seq = head and head.order, head and head.seq
  for _, list in pairs(again) do
    for _, lane in ipairs(list) do
      local is_older = not seq or is_before(tonumber(lane.ready), lane.head, ready, seq)
      if is_older and not is_kind_blocked(lane.kind) then
        oldest, ready, seq = lane, tonumber(lane.ready), lane.head
      end
    end
  end
  return oldest or head and lane_at(head)
end

-- -- serving a lane --

-- Note that the first lane of a lane's kind may be another one.
local function touch(lane)
  if turns and lane.priority == priority and turns.opened[lane.kind] then
    return -- its cursor knows
  end
  touched[lane.priority] = touched[lane.priority] or {}
  table.insert(touched[lane.priority], lane.kind)
end

-- Insert a lane into `again` by start tag, cross tag and number; mostly it goes to the end.
local function insert_again(lane)
  local name = lane.priority .. lane.kind
  local list = again[name] or {}
  local at = #list
  while at > 0 and is_first(lane.start, lane.cross, lane.head, list[at].start, list[at].cross, list[at].head) do
    at = at - 1
  end
  table.insert(list, at + 1, lane)
  again[name] = list
end

local function remove_again(lane)
  local list = again[lane.priority .. lane.kind] or {}
  for at = #list, 1, -1 do
    if list[at] == lane then
      table.remove(list, at)
    end
  end
end

-- Return the price of a turn: the document's step, or the milliseconds that an attempt of its customer usually takes.
local function price_of(document, customer)
  local USUAL_FIRST = 1000000
  local weight, usual = weight_of(customer), customer.usual
  if rules.turns == 'documents' then
    return step_of(document.cost, weight)
  end
  usual = usual ~= NO_USUAL and usual or queue[USUAL] ~= NO_USUAL and queue[USUAL] or USUAL_FIRST
  return max(1, divide(usual, weight))
end

-- A lane pays for its turn, and the document behind its head becomes its head; returns what it paid, if that is trued up when
-- the attempt ends. An open turn moves no clock, and is free for a lane that is more than one turn in debt.
local function pay(lane, price, is_open)
  local clock, start, level = CLOCK + lane.priority, lane.start, lane.priority
  leave(lane, lane.head, lane.ready)
  served[lane.name], changed_lanes[lane.name] = true, lane
  if is_strict then
    return false
  end
  local kind, cross = kind_of(lane.kind), lane.cross -- one below the floor is below the clock too
  if not is_open then
    if kind.clocks[level] ~= start then
      kind.clocks[level], changed_kinds[kind.name] = start, kind
    end
    queue[clock] = max(queue[clock], cross)
  end
  local is_paid = not (is_open and start > kind.clocks[level] + price)
  local charge = is_paid and price or 0
  lane.finish, lane.cross_finish = start + charge, max(cross, queue[clock]) + charge
  lane.start, lane.cross = lane.head and lane.finish, lane.cross_finish
  return is_paid and rules.turns == 'time' and price
end

-- Count what runs: the customer may reach its cap, or the kind its limit.
local function count_running(lane, customer)
  customer.waiting, customer.running = customer.waiting - 1, customer.running + 1
  changed_customers[lane.owner] = true
  if is_blocked(customer) then
    update_blocked(lane.owner, false)
    capped[lane.owner] = true
    for _, other in ipairs(lanes_of(lane.owner)) do
      touch(other)
      remove_again(other)
    end
  end
  local kind = limited_kind(lane.kind)
  if kind then
    kind.running = kind.running + 1
    take_start(kind, now)
    update_kind(kind, now)
  end
end

local seqs, claims, dispatches = {}, {}, queue[DISPATCHES]
if kind_count >= 0 then
  dispatches = tonumber(call('HGET', prefix .. 'dispatches', kind_set) or 0)
end

-- Lease the head of a lane.
local function claim(lane, is_open)
  local document, owner = document_of(lane.head), lane.owner
  local customer = customer_of(owner)
  dispatches = dispatches + 1
  if served[lane.name] then
    remove_again(lane)
  end
  if now > tonumber(lane.ready) then
    queue[TAKEN + lane.priority] = queue[TAKEN + lane.priority] + 1
  end
  document.paid, document.claimed = pay(lane, price_of(document, customer), is_open), now
  document.state, document.token, document.attempts = 'running', document.token + 1, document.attempts + 1
  document.attempts_max, document.worker, document.lease = attempts_of[lane.kind] or ATTEMPTS_DEFAULT, worker, lease_ends
  changed_documents[document.seq] = document
  write('ZADD', LEASES, as_text(lease_ends), document.seq)
  touch(lane)
  count_running(lane, customer)
  if lane.head and lane.start then
    insert_again(lane)
  end
  log(now, 'claimed', owner, document.seq, document.token, worker)
  seqs[#seqs + 1] = document.seq
  claims[#claims + 1] = {
    document.id, document.token, tonumber(document.seq), customer.id, lane.kind, lane.priority, false, document.attempts,
    document.attempts_max, lease_ends, dispatches, is_open and 1 or 0,
  }
end

local every = is_strict and 0 or rules.open_turn_every
while #claims < limit do
  local is_open = every > 0 and fmod(dispatches + 1, every) == 0
  local lane
  if is_open then
    lane = lane_by_age()
  else
    lane = lane_by_turn()
  end
  if not lane then
    break
  end
  claim(lane, is_open)
end
if #claims > 0 then
  if kind_count < 0 then
    queue[DISPATCHES] = dispatches
  else
    write('HSET', prefix .. 'dispatches', kind_set, as_text(dispatches))
  end
  for at, payload in ipairs(read_seqs(PAYLOADS, seqs)) do
    claims[at][7] = payload
  end
end
if #claims > 0 or is_busy then
  flush()
end
return claims
