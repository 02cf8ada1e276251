-- Forget: erase up to `limit` documents of a customer; when none is left, everything else that names the customer.
--
-- Its lines of the feed hold only its owner, and are hidden once that owner does not exist; `sweep` empties them.
-- ARGV: now, customer, limit. Returns the documents that were erased as id, customer, token, and whether the customer was.
if rules.frozen then
  return frozen_error()
end
local now, id = now_of(ARGV[1]), ARGV[2]
local owner = call('HGET', OWNERS, id)
if not owner then
  return {{}, 0}
end
local seqs = call('ZRANGE', prefix .. 'documents-of:' .. owner, 0, tonumber(ARGV[3]) - 1)
load_documents(seqs)
local removed = {}
for at, seq in ipairs(seqs) do
  local document = document_of(seq)
  leave_state(document)
  move_count(document, nil, now)
  erase(document)
  removed[at] = removed_row(document)
end
local is_forgotten = #seqs == 0
if is_forgotten then
  for _, lane in ipairs(lanes_of(owner)) do
    remove('HDEL', LANES, lane.name)
  end
  changed_lanes = {}
  remove('HDEL', CUSTOMERS, owner)
  remove('HDEL', OWNERS, id)
  remove('ZREM', prefix .. 'names', id)
  log(now, 'forgotten')
  write('ZADD', prefix .. 'forgotten', queue[LAST_CHANGE], owner)
end
flush()
if is_forgotten then
  call('UNLINK', prefix .. 'lanes-of:' .. owner, prefix .. 'terms-of:' .. owner, prefix .. 'swept')
end
return {removed, is_forgotten and 1 or 0}
