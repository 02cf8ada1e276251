-- Pack: rows of a queue that moves to another store, in order, some at a time. ARGV: part, then what that part needs.

-- The queue's own counters.
local function pack_queue()
  return {
    call('HGET', prefix .. 'rules', rules.version), rules.version, {unpack(queue, CLOCK + 1, CLOCK + 9)}, queue[DISPATCHES],
    call('HGETALL', prefix .. 'dispatches'), queue[USUAL] ~= NO_USUAL and queue[USUAL], queue[BUSY],
    {unpack(queue, TAKEN + 1, TAKEN + 9)}, {unpack(queue, READY_IN + 1, READY_IN + 9)}, queue[TICKED], queue[LAST_NUMBER],
    queue[LAST_CHANGE], queue[LAST_RECORD],
  }
end

-- Kinds after a name that have or had a limit, or a clock that moved. ARGV: name, limit.
local function pack_kinds()
  local names, reply = {}, {}
  for _, name in ipairs(call('HKEYS', KINDS)) do
    if name > ARGV[2] then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local kind = kind_of(name)
    if #reply < tonumber(ARGV[3]) and (kind.version > 0 or max(unpack(kind.clocks, 1, 9)) > 0) then
      reply[#reply + 1] = {name, kind.json, kind.version, kind.tokens, kind.tokens_at, {unpack(kind.clocks, 1, 9)}}
    end
  end
  return reply
end

-- Customers after an id. ARGV: id, limit.
local function pack_customers()
  local reply = {}
  local ids = call('ZRANGEBYLEX', prefix .. 'names', ARGV[2] == '' and '-' or '(' .. ARGV[2], '+', 'LIMIT', 0, ARGV[3])
  for at, owner in ipairs(read_many(OWNERS, ids)) do
    local customer = customer_of(owner)
    reply[at] = {
      customer.id, customer.counter, customer.updated, customer.resets, customer.parts, customer.terms and customer.terms.json,
      customer.terms_version, customer.done, customer.failed, customer.cancelled,
      customer.usual ~= NO_USUAL and customer.usual,
    }
  end
  return reply
end

-- Documents after a number: the number after which to go on (0: there is no more), then rows. ARGV: number, numbers to read.
local function pack_documents()
  local first, seqs = tonumber(ARGV[2]) + 1, {}
  local last = min(queue[LAST_NUMBER], first + tonumber(ARGV[3]) - 1)
  for number = first, last do
    seqs[#seqs + 1] = seq_of(number)
  end
  load_documents(seqs)
  local reply = {last < queue[LAST_NUMBER] and last or 0}
  local payloads, results = read_seqs(PAYLOADS, seqs), read_seqs(RESULTS, seqs)
  for at, seq in ipairs(seqs) do
    local document = document_of(seq)
    if document then
      local row, values, family = snapshot(document), fixed(document), family_of(root_of(document))
      local root, descendants = values.root and tonumber(values.root), family and family.descendants or 0
      local parts_from = values.parts_from
      for _, value in ipairs({values.digest, values.weight, values.resets, payloads[at], results[at], root, descendants, parts_from}) do
        row[#row + 1] = value
      end
      reply[#reply + 1] = row
    end
  end
  return reply
end

-- Return a lane's tags for another store, where its kind is at no limit until the next claim: start tag, cross tag, finish tags.
-- Finish tags that are not above their clocks are forgotten.
local function tags_of(lane)
  local kind, level, clock = kind_of(lane.kind), lane.priority, queue[CLOCK + lane.priority]
  local cross, finish, cross_finish = cross_of(kind, level, lane.cross), lane.finish, lane.cross_finish
  if kind.blocked then
    cross = max(clock, cross_finish)
  end
  if finish <= kind.clocks[level] and cross_finish <= clock then
    finish, cross_finish = 0, 0
  end
  return lane.start, lane.start and cross or 0, finish, cross_finish
end

-- Tags of lanes of some customers: the last of these customers (nothing: there is no more), then their lanes in any order.
-- ARGV: ( or [ and the customer to begin after or with, or -; how many customers.
local function pack_lanes()
  local ids = call('ZRANGEBYLEX', prefix .. 'names', ARGV[2], '+', 'LIMIT', 0, ARGV[3])
  local reply = {#ids == tonumber(ARGV[3]) and ids[#ids] or ''}
  for at, owner in ipairs(read_many(OWNERS, ids)) do
    for _, lane in ipairs(lanes_of(owner)) do
      local start, cross, finish, cross_finish = tags_of(lane)
      if start or finish > 0 or cross_finish > 0 then
        reply[#reply + 1] = {ids[at], lane.kind, lane.priority, start, cross, finish, cross_finish}
      end
    end
  end
  return reply
end

-- Records after a group and key. ARGV: group, key, limit; a limit only: from the beginning.
local function pack_records()
  local reply, limit, is_begun = {}, tonumber(ARGV[#ARGV]), #ARGV > 2
  for _, group in ipairs(call('ZRANGEBYLEX', prefix .. 'groups', is_begun and '[' .. ARGV[2] or '-', '+')) do
    local after = is_begun and group == ARGV[2] and '(' .. ARGV[3] or '-'
    local keys = call('ZRANGEBYLEX', prefix .. 'record-keys:' .. group, after, '+', 'LIMIT', 0, limit - #reply)
    for at, record in ipairs(read_many(prefix .. 'records:' .. group, keys)) do
      local version, value = decode(record)
      reply[#reply + 1] = {group, keys[at], value, version}
    end
    if #reply == limit then
      break
    end
  end
  return reply
end

local parts = {
  queue = pack_queue, kinds = pack_kinds, customers = pack_customers, documents = pack_documents, lanes = pack_lanes,
  records = pack_records,
}
return parts[ARGV[1]]()
