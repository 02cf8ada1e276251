-- Configure: replace the rules from the next check or claim; returns the new version, or 0 if the version is not current.
--
-- ARGV: now, version, JSON, interval, reset, dispatch, turns, open turns, nothing or f and why the queue is frozen, five limits,
-- depths.
local now, version = now_of(ARGV[1]), tonumber(ARGV[2])
if version ~= rules.version then
  return 0
end
local is_level = rules.dispatch == ARGV[6] and rules.turns == ARGV[7]
rules = decode_rules(
  version + 1, tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9] ~= '' and sub(ARGV[9], 2), ARGV[10],
  ARGV[11], ARGV[12], ARGV[13], ARGV[14], unpack(numbers_from(15))
)
is_strict = rules.dispatch == 'strict'
store_rules()

-- Let a lane start from the clocks.
local function level(name)
  local owner, digit, kind = string.match(name, '^(%d+):(%d)(.*)$')
  local lane = lane_of(owner, tonumber(digit), kind)
  lane.finish, lane.cross_finish = kind_of(kind).clocks[lane.priority], queue[CLOCK + lane.priority]
  if lane.start then
    start_lane(lane)
  end
end

-- Let every lane start from the clocks, some at a time; the indexes of their kinds follow.
local function level_all()
  for _, kind in ipairs(limited_kinds()) do
    kind.floors, changed_kinds[kind.name] = false, kind
  end
  local cursor = '0'
  repeat
    local page = call('HSCAN', LANES, cursor, 'COUNT', 1000)
    cursor = page[1]
    for at = 1, #page[2], 2 do
      level(page[2][at])
    end
    flush()
    begin_writes()
  until cursor == '0'
end

write('HSET', prefix .. 'rules', version + 1, ARGV[3])
log(now, 'configured', nil, nil, nil, ARGV[3])
flush()
begin_writes()
if not is_level then
  level_all()
end
return version + 1
