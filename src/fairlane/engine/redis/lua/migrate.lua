-- Migrate: an empty queue if there is none and one is wanted; answers the form that is there (0: none).
local stored = redis.call('GET', KEYS[1])
if stored then
  return cmsgpack.unpack(stored).form
end
if ARGV[1] ~= 'create' then
  return 0
end
local function zeros()
  return {0, 0, 0, 0, 0, 0, 0, 0, 0}
end
local rules = {version = 1, interval = tonumber(ARGV[3]), reset = ARGV[4], dispatch = ARGV[5], every = tonumber(ARGV[6]), depths = {}}
for place = 7, #ARGV do
  rules.depths[#rules.depths + 1] = tonumber(ARGV[place])
end
redis.call('SET', KEYS[1], cmsgpack.pack({
  form = 1, last_number = 0, last_change = 0, last_record = 0, last_customer = 0, dispatches = 0,
  feed_first = 1, feed_floor = 0, pace = {0, 0, 0, 0}, clocks = zeros(), ready = zeros(), lanes = zeros(), rules = rules,
}))
redis.call('HSET', string.sub(KEYS[1], 1, -6) .. 'rules', 1, ARGV[2])
return 1
