-- Migrate: create an empty queue if there is none, or bring one of form 3 to form 4; returns the form (0: there is none), and the
-- oldest form whose programs may use it.
--
-- Without the shared files, which read what it creates.
-- ARGV: create or look, JSON of the rules, interval, reset, dispatch, turns, open turns, nothing (not frozen), five limits, depths.
local stored = redis.call('GET', KEYS[1])
if stored then
  local form, prefix = string.byte(stored), string.sub(KEYS[1], 1, -6)
  if form == 3 then -- without the first heads of kinds
    for _, kind in ipairs(redis.call('SMEMBERS', prefix .. 'kinds')) do
      for priority = 0, 9 do
        local index = priority == 0 and 'ages:' .. kind or 'turns:' .. priority .. kind
        local first = redis.call('ZRANGE', prefix .. index, 0, 0, 'WITHSCORES')
        if first[1] then
          redis.call('ZADD', prefix .. 'firsts:' .. priority, first[2], string.sub(first[1], 1, 16) .. kind)
        end
      end
    end
    redis.call('SETRANGE', KEYS[1], 0, string.char(4))
    form = 4
  end
  if form == 220 then
    form = 1 -- which was one MessagePack array, and began with this byte
  end
  return {form, tonumber(redis.call('GET', prefix .. 'oldest') or form)}
end
if ARGV[1] ~= 'create' then
  return {0, 0}
end
local queue = {7} -- its form
for position = 2, 48 do
  queue[position] = 0
end
queue[7] = 1 -- the first line of the feed
queue[11] = -1 -- no attempt has ended
local rules = {1, tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7]), false} -- not frozen
for at = 9, #ARGV do
  rules[at - 1] = tonumber(ARGV[at]) or false -- no limit
end
redis.call('SET', KEYS[1], struct.pack('>B' .. string.rep('i7', 47), unpack(queue)) .. cmsgpack.pack(unpack(rules)))
redis.call('HSET', string.sub(KEYS[1], 1, -6) .. 'rules', 1, ARGV[2])
return {7, 7}
