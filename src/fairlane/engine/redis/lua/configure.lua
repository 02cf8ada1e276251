-- Configure: other rules from the next check or claim. ARGV: now, version, JSON, interval, reset, dispatch, every, depths.
local now, version = now_of(ARGV[1]), tonumber(ARGV[2])
if version ~= queue.rules.version then
  return 0
end
local is_other = queue.rules.dispatch ~= ARGV[6]
queue.rules = {
  version = version + 1, interval = tonumber(ARGV[4]), reset = ARGV[5], dispatch = ARGV[6], every = tonumber(ARGV[7]), depths = {},
}
for place = 8, #ARGV do
  queue.rules.depths[place - 7] = tonumber(ARGV[place])
end
-- Under another dispatch everybody starts level: every lane that competes gets a new start tag.
if is_other then
  for _, kind in ipairs(call('SMEMBERS', KINDS)) do
    for _, member in ipairs(call('ZRANGE', prefix .. 'turns:' .. kind, 0, -1)) do
      local lane = lane_of(tonumber(string.sub(member, 35)), tonumber(string.sub(member, 1, 1)), kind)
      lane.start = start_tag(lane)
    end
  end
end
write('HSET', prefix .. 'rules', version + 1, ARGV[3])
log(now, 'configured', nil, nil, nil, ARGV[3])
flush()
return version + 1
