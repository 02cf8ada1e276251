-- Migrate: an empty queue if there is none and one is wanted; answers the form that is there (0: none).
--
-- ARGV: create or look, JSON of the rules, interval, reset, dispatch, every, nothing (not frozen), depths.
local stored = redis.call('GET', KEYS[1])
if stored then
  local form = string.byte(stored)
  return form == 220 and 1 or form -- the first form was one MessagePack array, and this is how it began
end
if ARGV[1] ~= 'create' then
  return 0
end
local queue = {3} -- its form
for place = 2, 39 do
  queue[place] = 0
end
queue[7] = 1 -- the first line of the feed
local rules = {1, tonumber(ARGV[3]), ARGV[4], ARGV[5], tonumber(ARGV[6]), false} -- not frozen
for place = 8, #ARGV do
  rules[place - 1] = tonumber(ARGV[place])
end
redis.call('SET', KEYS[1], struct.pack('>B' .. string.rep('i7', 38), unpack(queue)) .. cmsgpack.pack(unpack(rules)))
redis.call('HSET', string.sub(KEYS[1], 1, -6) .. 'rules', 1, ARGV[2])
return 3
