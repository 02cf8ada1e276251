-- Configure: replace the rules from the next check or claim; returns the new version, or 0 if the version is not current.
--
-- ARGV: now, version, JSON, interval, reset, dispatch, open turns, nothing or f and why the queue is frozen, five limits, depths.
local now, version = now_of(ARGV[1]), tonumber(ARGV[2])
if version ~= rules.version then
  return 0
end
local is_other_dispatch = rules.dispatch ~= ARGV[6]
rules = decode_rules(
  version + 1, tonumber(ARGV[4]), ARGV[5], ARGV[6], tonumber(ARGV[7]), ARGV[8] ~= '' and sub(ARGV[8], 2), ARGV[9], ARGV[10],
  ARGV[11], ARGV[12], ARGV[13], unpack(numbers_from(14))
)
store_rules()
if is_other_dispatch then -- every lane that competes gets a new start tag
  is_strict = rules.dispatch == 'strict'
  for _, kind in ipairs(call('SMEMBERS', prefix .. 'kinds')) do
    for _, member in ipairs(call('ZRANGE', ages_key(kind), 0, -1)) do
      local lane = lane_of(sub(member, 18), tonumber(sub(member, 17, 17)), kind)
      lane.start = start_tag(lane)
    end
  end
end
write('HSET', prefix .. 'rules', version + 1, ARGV[3])
log(now, 'configured', nil, nil, nil, ARGV[3])
flush()
return version + 1
