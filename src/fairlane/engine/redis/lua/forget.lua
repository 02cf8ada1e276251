-- Forget: erase up to `limit` documents of a customer; when none is left, everything else that names it. ARGV: now, customer, limit.
--
-- Its lines of the feed carry its number only, and are not shown once that number has no customer; `sweep` empties them.
local now, name = now_of(ARGV[1]), ARGV[2]
local owner = owner_by_name(name)
if not owner then
  return {0, 0}
end
local numbers = {}
for place, number in ipairs(call('ZRANGE', prefix .. 'documents-of:' .. owner, 0, ARGV[3] - 1)) do
  numbers[place] = tonumber(number)
end
load_documents(numbers)
for _, number in ipairs(numbers) do
  local one = document(number)
  leave_place(one)
  move_count(one, nil)
  erase(one)
end
if #numbers == 0 then
  for _, lane in ipairs(lanes_of(owner)) do
    write('HDEL', LANES, lane.name)
  end
  touched_lanes = {}
  write('HDEL', CUSTOMERS, owner)
  write('HDEL', NUMBERS, name)
  write('ZREM', NAMES, name)
  write('ZADD', prefix .. 'forgotten', queue.last_change + 1, owner)
  log(now, 'forgotten')
end
flush()
if #numbers == 0 then
  call('UNLINK', prefix .. 'lanes-of:' .. owner, prefix .. 'terms-of:' .. owner, prefix .. 'swept')
end
return {#numbers, #numbers == 0 and 1 or 0}
