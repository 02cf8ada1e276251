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

-- Removals go before writes, so that a head may leave an index and come back in one flush.
local function flush()
  local gaining = {}
  for owner in pairs(changed_customers) do
    write('HSET', CUSTOMERS, owner, encode_customer(customers[owner]))
  end
  for seq, document in pairs(changed_documents) do
    write('HSET', DOCUMENTS .. piece_of(seq), seq, encode_document(document))
  end
  for _, lane in pairs(changed_lanes) do
    write_lane(lane, gaining)
  end
  local is_signal = must_signal(gaining)
  call('SET', KEYS[1], encode_queue())
  for _, words in ipairs(removals) do
    call_many(words)
  end
  for _, words in ipairs(writes) do
    call_many(words)
  end
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
