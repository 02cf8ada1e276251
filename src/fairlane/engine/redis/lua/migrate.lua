-- Migrate: an empty queue if there is none and one is wanted; answers the form that is there (0: none).
--
-- ARGV: create or look, JSON of the rules, interval, reset, dispatch, every, nothing (not frozen), depths.
local stored = redis.call('GET', KEYS[1])
if stored then
  return cmsgpack.unpack(stored)[1]
end
if ARGV[1] ~= 'create' then
  return 0
end
local queue = {1}
for place = 2, 39 do
  queue[place] = 0
end
queue[7] = 1 -- the first line of the feed
queue[40], queue[41], queue[42], queue[43], queue[44] = 1, tonumber(ARGV[3]), ARGV[4], ARGV[5], tonumber(ARGV[6])
queue[45] = false -- not frozen
for place = 8, #ARGV do
  queue[38 + place] = tonumber(ARGV[place])
end
redis.call('SET', KEYS[1], cmsgpack.pack(queue))
redis.call('HSET', string.sub(KEYS[1], 1, -6) .. 'rules', 1, ARGV[2])
return 1
