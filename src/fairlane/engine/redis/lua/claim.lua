-- Claim: lease up to `limit` documents in dispatch order; each gets a fresh token and one more attempt counted.
--
-- ARGV: now, worker, limit, lease, due at most, count of kinds (-1: all), then kind and attempts of each.
-- The indexes stay as they were until the flush. So a lane that this call has served is skipped there, and waits in `again`
-- for another turn.
if rules.frozen then
  return frozen_error()
end
local now, worker, limit, kind_count = now_of(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[6])
local lease_ends = now + tonumber(ARGV[4])

-- Delayed documents that are due join their lanes; written at once, because the dispatch reads the indexes.
local function ready_due()
  local due = call('ZRANGEBYSCORE', DELAYED, '-inf', now, 'LIMIT', 0, ARGV[5])
  if #due == 0 then
    return
  end
  load_documents(due)
  for _, seq in ipairs(due) do
    local document = document_of(seq)
    leave_state(document)
    document.state = 'ready'
    change(document)
    join(lane_for(document), seq, document.ready)
  end
  flush()
  begin_writes()
end

ready_due()

local kinds, attempts_of = {}, {} -- no kinds: all
for at = 1, kind_count do
  kinds[at] = ARGV[5 + 2 * at]
  attempts_of[kinds[at]] = tonumber(ARGV[6 + 2 * at])
end

local served, capped = {}, {} -- lanes by name; owners that reached their cap in this call
local again = {} -- served lanes that have a head left and may compete, in the order of turns

-- -- heads in the order of an index --

-- Return whether a head comes before another one: by order (a start tag, or the time since when it is ready), then by number.
local function is_before(order, seq, other_order, other_seq)
  return order < other_order or (order == other_order and seq < other_seq)
end

-- Make a cursor for an index of one kind, which reads `size` heads at a time; with `preload` also what a claim of them needs.
local function open_cursor(key, kind, size, preload)
  return {key = key, kind = kind, size = size, preload = preload, heads = {}, at = 1, read = 0, is_last = false}
end

local function read_heads(cursor)
  local members = call('ZRANGE', cursor.key, cursor.read, cursor.read + cursor.size - 1, 'WITHSCORES')
  local heads, seqs, owners = {}, {}, {}
  for at = 1, #members / 2 do
    local member = members[2 * at - 1]
    local seq, digit, owner = sub(member, 1, 16), sub(member, 17, 17), sub(member, 18)
    seqs[at], owners[at] = seq, owner
    heads[at] = {
      seq = seq, owner = owner, priority = tonumber(digit), kind = cursor.kind, lane = owner .. ':' .. digit .. cursor.kind,
      member = member, order = tonumber(members[2 * at]),
    }
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

-- The kinds whose cursors are not open yet, each with the order and the number of its first head, in that order: of all kinds
-- read a few at a time, of a list of kinds at once. A single kind is first whatever its head is.
local function list_kinds(index_of, firsts)
  if kind_count < 0 then
    return {key = firsts, at = 1, read = 0}
  elseif kind_count == 1 then
    return {{kind = kinds[1], order = -math.huge, seq = ''}, at = 1}
  end
  local list = {at = 1}
  for _, kind in ipairs(kinds) do
    local first = call('ZRANGE', index_of(kind), 0, 0, 'WITHSCORES')
    if first[1] then
      list[#list + 1] = {kind = kind, order = tonumber(first[2]), seq = sub(first[1], 1, 16)}
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

-- Make a group of cursors for some indexes; they are opened when the first head of their kind is reached.
local function open_group(index_of, firsts, preload)
  local size = preload and kind_count == 1 and min(limit + 2, 128) or 8
  return {list = list_kinds(index_of, firsts), index_of = index_of, size = size, preload = preload}
end

-- Return the first head of a group of cursors.
local function first_head(group)
  local first
  for _, cursor in ipairs(group) do
    local head = current_head(cursor)
    if head and (not first or is_before(head.order, head.seq, first.order, first.seq)) then
      first = head
    end
  end
  local entry = next_kind(group.list)
  while entry and (not first or is_before(entry.order, entry.seq, first.order, first.seq)) do
    local cursor = open_cursor(group.index_of(entry.kind), entry.kind, group.size, group.preload)
    group[#group + 1], group.list.at = cursor, group.list.at + 1
    local head = current_head(cursor)
    if head and (not first or is_before(head.order, head.seq, first.order, first.seq)) then
      first = head
    end
    entry = next_kind(group.list)
  end
  return first
end

-- Return the lane of a head; the index of ages does not hold its start tag.
local function lane_at(head, start)
  if lanes[head.lane] then
    return lanes[head.lane]
  end
  start = start or tonumber(call('ZSCORE', turns_key(head.priority, head.kind), head.member))
  return make_lane(
    head.owner, head.priority, head.kind, head.lane, head.seq, document_of(head.seq).ready, start
  )
end

-- -- whose turn it is --

local priority, turns, ages = 0, nil, nil -- the priority that is served now, cursors of its heads, cursors by age

-- Go on to the next priority that has lanes; returns whether there is one.
local function next_priority()
  repeat
    priority = priority + 1
  until priority > 9 or queue[LANES_IN + priority] > 0
  local level = priority -- of the group that is made here
  turns = level <= 9 and open_group(function(kind) return turns_key(level, kind) end, firsts_key(level), true)
  return level <= 9
end

-- Return the lane whose turn it is: the first in the index, or one that waits for another turn.
local function lane_by_turn()
  repeat
    local head, lane = turns and first_head(turns), again[1]
    if lane and lane.priority == priority and not (head and is_before(head.order, head.seq, lane.start, lane.head)) then
      return lane
    elseif head then
      return lane_at(head, head.order)
    end
  until not next_priority()
end

-- Return the lane whose head has been ready longest, whatever its priority.
local function lane_by_age()
  if not ages then
    ages = open_group(ages_key, firsts_key(0), false)
  end
  local head, oldest = first_head(ages), nil
  local ready, seq = head and head.order, head and head.seq
  for _, lane in ipairs(again) do
    if not seq or is_before(tonumber(lane.ready), lane.head, ready, seq) then
      oldest, ready, seq = lane, tonumber(lane.ready), lane.head
    end
  end
  return oldest or head and lane_at(head)
end

-- -- serving a lane --

-- Insert a lane into `again` by priority, start tag and number; mostly it goes to the end.
local function insert_again(lane)
  local at = #again
  while at > 0 and (lane.priority < again[at].priority or (lane.priority == again[at].priority
      and is_before(lane.start, lane.head, again[at].start, again[at].head))) do
    at = at - 1
  end
  table.insert(again, at + 1, lane)
end

-- Remove from `again` what a lane, or all lanes of a customer, have there.
local function remove_again(lane, owner)
  for at = #again, 1, -1 do
    if again[at] == lane or again[at].owner == owner then
      table.remove(again, at)
    end
  end
end

-- A lane pays for its turn, and the document behind its head becomes its head.
local function pay(lane, step)
  local start, clock = lane.start, CLOCK + lane.priority
  leave(lane, lane.head, lane.ready)
  if not is_strict then
    queue[clock] = max(queue[clock], start)
    lane.finish = start + step
    lane.start = lane.head and lane.finish
  end
  served[lane.name], changed_lanes[lane.name] = true, lane
end

local seqs, claims = {}, {}

-- Lease the head of a lane.
local function claim(lane, is_open)
  local document, owner = document_of(lane.head), lane.owner
  local customer = customer_of(owner)
  queue[DISPATCHES] = queue[DISPATCHES] + 1
  if served[lane.name] then
    remove_again(lane)
  end
  pay(lane, step_of(document.cost, weight_of(customer)))
  document.state, document.token, document.attempts = 'running', document.token + 1, document.attempts + 1
  document.attempts_max, document.worker, document.lease = attempts_of[lane.kind] or ATTEMPTS_DEFAULT, worker, lease_ends
  change(document)
  write('ZADD', LEASES, as_text(lease_ends), document.seq)
  customer.waiting, customer.running = customer.waiting - 1, customer.running + 1
  changed_customers[owner] = true
  if is_blocked(customer) then
    update_blocked(owner, false)
    capped[owner] = true
    remove_again(nil, owner)
  elseif lane.head then
    insert_again(lane)
  end
  log(now, 'claimed', owner, document.seq, document.token, worker)
  seqs[#seqs + 1] = document.seq
  claims[#claims + 1] = {
    document.id, document.token, tonumber(document.seq), customer.id, lane.kind, lane.priority, false, document.attempts,
    document.attempts_max, lease_ends, queue[DISPATCHES], is_open and 1 or 0,
  }
end

-- Note how fast documents were claimed lately, by two marks that move along.
local function update_pace(dispatches_before)
  local MARK_MS = 60000
  local age = now - queue[PACE + 3]
  if age >= 0 and age <= MARK_MS then
    return
  end
  if age < 0 or age > 2 * MARK_MS then
    queue[PACE + 1], queue[PACE + 2] = now, dispatches_before
  else
    queue[PACE + 1], queue[PACE + 2] = queue[PACE + 3], queue[PACE + 4]
  end
  queue[PACE + 3], queue[PACE + 4] = now, dispatches_before
end

local every, dispatches_before = is_strict and 0 or rules.open_turn_every, queue[DISPATCHES]
while #claims < limit do
  local is_open = every > 0 and fmod(queue[DISPATCHES] + 1, every) == 0
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
  update_pace(dispatches_before)
  for at, payload in ipairs(read_seqs(PAYLOADS, seqs)) do
    claims[at][7] = payload
  end
  flush()
end
return claims
