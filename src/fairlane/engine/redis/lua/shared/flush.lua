-- Flush: write everything that a verb changed.
--
-- Law: a script reads, checks and decides first; `flush` writes. An error before it leaves nothing behind, and its first
-- write is one that a full server refuses, so a full server refuses all of it.

-- Return whether waiting workers must poll again: a kind without heads gains one or a blocked one may compete again, or something
-- is due sooner than all else.
local function must_signal(gaining)
  if due_first then
    local first = call('ZRANGE', DELAYED, 0, 0, 'WITHSCORES')[2]
    if not first or due_first < tonumber(first) then
      return true
    end
  end
  for ages in pairs(gaining) do
    if call('EXISTS', ages) == 0 then
      return true
    end
  end
  for _, kind in pairs(changed_kinds) do
    if kind.stored_blocked and not kind.blocked then
      return true
    end
  end
  return false
end

-- Return the first head of an index as it is stored: its seq, and what it is compared by with those of other kinds.
local function first_of(position, is_kind_blocked)
  if is_kind_blocked then
    return
  elseif position.priority == 0 then
    return first_by_age(position.kind.name)
  end
  return first_by_turn(position.priority, position.kind.name)
end

-- Note the first heads of indexes that change, and after they have changed those that are first then, for claims of all kinds.
local function note_firsts(moved)
  for _, positions in pairs(moved) do
    for _, position in pairs(positions) do
      position.seq, position.order = first_of(position, position.kind.stored_blocked)
    end
  end
end

local function update_first(position)
  local kind = position.kind
  local seq, order = first_of(position, kind.blocked)
  if seq == position.seq and order == position.order then
    return
  end
  local key = firsts_key(position.priority)
  if position.seq and position.seq ~= seq then
    call('ZREM', key, position.seq .. kind.name)
  end
  if seq then
    call('ZADD', key, as_text(order), seq .. kind.name)
  end
end

local function update_firsts(moved)
  for _, positions in pairs(moved) do
    for _, position in pairs(positions) do
      update_first(position)
    end
  end
end

-- Write the kinds that changed; one that was blocked or unblocked has other first heads in all its indexes.
local function write_kinds(moved)
  for name, kind in pairs(changed_kinds) do
    write('HSET', KINDS, name, encode_kind(kind))
    if kind.blocked ~= kind.stored_blocked then
      for priority = 0, 9 do
        note_moved(moved, name, priority)
      end
    end
  end
end

-- Removals go before writes, so that a head may leave an index and come back in one flush.
local function flush()
  local gaining, moved = {}, {}
  for owner in pairs(changed_customers) do
    write('HSET', CUSTOMERS, owner, encode_customer(customers[owner]))
  end
  for seq, document in pairs(changed_documents) do
    write('HSET', DOCUMENTS .. piece_of(seq), seq, encode_document(document))
  end
  for _, lane in pairs(changed_lanes) do
    write_lane(lane, gaining, moved)
  end
  write_kinds(moved)
  local is_signal = must_signal(gaining)
  note_firsts(moved)
  call('SET', KEYS[1], encode_queue())
  for _, words in ipairs(removals) do
    call_many(words)
  end
  for _, words in ipairs(writes) do
    call_many(words)
  end
  update_firsts(moved)
  for _, kind in pairs(changed_kinds) do
    kind.stored_blocked = kind.blocked
  end
  call_many(feed)
  if is_signal then
    redis.pcall('PUBLISH', prefix .. 'signal', '1') -- a hint; a worker that misses it polls
  end
end

-- Forget what was flushed, so that a second flush writes only what came after the first.
local function begin_writes()
  writes, removals, feed, due_first = {}, {}, {'RPUSH', FEED}, nil
  changed_customers, changed_documents, changed_lanes, changed_kinds, lanes = {}, {}, {}, {}, {}
end
