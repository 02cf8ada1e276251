-- Migrate: create an empty queue if there is none; returns the form of the queue that is there (0: none).
--
-- The only script without the shared files, which read what it creates.
-- ARGV: create or look, JSON of the rules, interval, reset, dispatch, open turns, nothing (not frozen), depths.
local stored = redis.call('GET', KEYS[1])
if stored then
  local form = string.byte(stored)
  return form == 220 and 1 or form -- form 1 was one MessagePack array, which began with this byte
end
if ARGV[1] ~= 'create' then
  return 0
end
local queue = {3} -- its form
for position = 2, 39 do
  queue[position] = 0
end
queue[7] = 1 -- the first line of the feed
local rules = {1, tonumber(ARGV[3]), ARGV[4], ARGV[5], tonumber(ARGV[6]), false} -- not frozen
for at = 8, #ARGV do
  rules[at - 1] = tonumber(ARGV[at])
end
redis.call('SET', KEYS[1], struct.pack('>B' .. string.rep('i7', 38), unpack(queue)) .. cmsgpack.pack(unpack(rules)))
redis.call('HSET', string.sub(KEYS[1], 1, -6) .. 'rules', 1, ARGV[2])
return 3
