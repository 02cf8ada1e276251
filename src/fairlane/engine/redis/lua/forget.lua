-- Forget: erase up to `limit` documents of a customer; when none is left, everything else that names it.
--
-- Its lines of the feed carry its number only, and are not shown once that number has no customer; `sweep` empties them.
-- ARGV: now, customer, limit. Answers how many documents went, and whether the customer went.
local now, name = now_of(ARGV[1]), ARGV[2]
local owner = call('HGET', NUMBERS, name)
if not owner then
  return {0, 0}
end
local places = call('ZRANGE', prefix .. 'documents-of:' .. owner, 0, tonumber(ARGV[3]) - 1)
load_documents(places)
for _, place in ipairs(places) do
  local one = document(place)
  leave_place(one)
  move_count(one, nil)
  erase(one)
end
local is_gone = #places == 0
if is_gone then
  for _, lane in ipairs(lanes_of(owner)) do
    drop('HDEL', LANES, lane.name)
  end
  touched_lanes = {}
  drop('HDEL', CUSTOMERS, owner)
  drop('HDEL', NUMBERS, name)
  drop('ZREM', prefix .. 'names', name)
  log(now, 'forgotten')
  add('ZADD', prefix .. 'forgotten', queue[LAST_CHANGE], owner)
end
flush()
if is_gone then
  call('UNLINK', prefix .. 'lanes-of:' .. owner, prefix .. 'terms-of:' .. owner, prefix .. 'swept')
end
return {#places, is_gone and 1 or 0}
