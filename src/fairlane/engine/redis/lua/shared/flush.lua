-- Flush: write everything that a verb changed.
--
-- Law: a script reads, checks and decides first; `flush` writes. An error before it leaves nothing behind, and its first
-- write is one that a full server refuses, so a full server refuses all of it.

-- Return whether waiting workers must poll again: a kind without heads gains one, or something is due sooner than all else.
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
  return false
end

-- Return the first head of an index: its seq and its score.
local function first_of(index)
  local first = call('ZRANGE', index, 0, 0, 'WITHSCORES')
  return first[1] and sub(first[1], 1, 16), first[2]
end

-- Note the first heads of indexes that change, and after they have changed those that are first then, for claims of all kinds.
local function note_firsts(moved)
  for index, position in pairs(moved) do
    position.seq, position.score = first_of(index)
  end
end

local function update_firsts(moved)
  for index, position in pairs(moved) do
    local seq, score = first_of(index)
    if seq ~= position.seq or score ~= position.score then
      local key, kind = firsts_key(position[2]), position[1]
      if position.seq then
        call('ZREM', key, position.seq .. kind)
      end
      if seq then
        call('ZADD', key, score, seq .. kind)
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
  call_many(feed)
  if is_signal then
    redis.pcall('PUBLISH', prefix .. 'signal', '1') -- a hint; a worker that misses it polls
  end
end

-- Forget what was flushed, so that a second flush writes only what came after the first.
local function begin_writes()
  writes, removals, feed, due_first = {}, {}, {'RPUSH', FEED}, nil
  changed_customers, changed_documents, changed_lanes = {}, {}, {}
end
