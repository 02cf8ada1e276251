-- Configure: other rules from the next check or claim.
--
-- ARGV: now, version, JSON, interval, reset, dispatch, every, nothing or f and why the queue is frozen, depths.
local now, version = now_of(ARGV[1]), tonumber(ARGV[2])
if version ~= rules[VERSION] then
  return 0
end
local is_other = rules[DISPATCH] ~= ARGV[6]
rules[VERSION], rules[INTERVAL], rules[RESET] = version + 1, tonumber(ARGV[4]), ARGV[5]
rules[DISPATCH], rules[EVERY], rules[FROZEN] = ARGV[6], tonumber(ARGV[7]), ARGV[8] ~= '' and sub(ARGV[8], 2)
for place = #rules, DEPTH, -1 do
  rules[place] = nil
end
for place = 9, #ARGV do
  rules[DEPTH + place - 9] = tonumber(ARGV[place])
end
packed_rules = pack(unpack(rules))
-- Under another dispatch everybody starts level: every lane that competes gets a new start tag.
if is_other then
  is_strict = ARGV[6] == 'strict'
  for _, kind in ipairs(call('SMEMBERS', prefix .. 'kinds')) do
    for _, member in ipairs(call('ZRANGE', prefix .. 'ages:' .. kind, 0, -1)) do
      local lane = lane_of(sub(member, 18), tonumber(sub(member, 17, 17)), kind)
      lane.start = start_tag(lane)
    end
  end
end
add('HSET', prefix .. 'rules', version + 1, ARGV[3])
log(now, 'configured', nil, nil, nil, ARGV[3])
flush()
return version + 1
