-- Form 6: a clock a kind, cross tags, turns paid with time, limits of kinds, a sliding count, and steering.
--
-- Programs of form 5 know none of it, so they may not go on: this script changes the form itself, with everything that claims
-- read. Customers, documents and lanes without a head keep the records of form 5, which are read as level and not yet trued up;
-- they are written anew when they change. ARGV: a cursor, which it does not need.
local call, pack, sub = redis.call, cmsgpack.pack, string.sub
local stored, prefix, NUMBERS_SIZE, ARGUMENTS_MAX = call('GET', KEYS[1]), sub(KEYS[1], 1, -6), 267, 4000
if not stored or string.byte(stored) ~= 5 then
  return ''
end

-- The queue's own record: four marks of the pace make room for busy time, until when it is counted, what attempts usually take and
-- how many kinds have limits; documents taken, by priority, come at its end.
local queue = {struct.unpack('>B' .. string.rep('i7', 38), stored)}
queue[1], queue[9], queue[10], queue[11], queue[12] = 6, 0, 0, -1, 0
for position = 40, 48 do
  queue[position] = 0
end
local before, rules = {cmsgpack.unpack(sub(stored, NUMBERS_SIZE + 1))}, {}
for at = 1, 4 do -- version, interval, reset, dispatch
  rules[at] = before[at]
end
rules[5] = 'time'
for at = 5, #before do -- open turns, why it is frozen, five limits, depths
  rules[at + 1] = before[at]
end
local reset, is_strict = rules[3], rules[4] == 'strict'
if reset == 'window' or reset == 'gradual' then
  rules[3], rules[7] = 'sliding', rules[7] or 'has rules with reset = ' .. reset
    .. ', which is gone: `fairlane policy --reset sliding` sets its successor'
end

-- Write arguments of one command, some at a time.
local function call_many(command, key, arguments)
  for first = 1, #arguments, ARGUMENTS_MAX do
    call(command, key, unpack(arguments, first, math.min(first + ARGUMENTS_MAX - 1, #arguments)))
  end
end

-- Give the heads of a kind in a priority their cross tags, which are level.
local function add_cross_tags(priority, kind, clock)
  local key, heads, records = prefix .. 'turns:' .. priority .. kind, {}, {}
  local members, digits = call('ZRANGE', key, 0, -1, 'WITHSCORES'), string.format('%016d', clock)
  for at = 1, #members, 2 do
    local name = sub(members[at], 18) .. ':' .. priority .. kind
    local head, ready, start, finish = cmsgpack.unpack(call('HGET', prefix .. 'lanes', name))
    heads[at], heads[at + 1] = members[at + 1], digits .. members[at]
    records[at], records[at + 1] = name, pack(head, ready, start, finish, clock, clock)
  end
  call('DEL', key)
  call_many('ZADD', key, heads)
  call_many('HSET', prefix .. 'lanes', records)
end

call('SET', KEYS[1], struct.pack('>B' .. string.rep('i7', 47), unpack(queue, 1, 48)) .. pack(unpack(rules)))
call('SET', prefix .. 'oldest', 6)
local kinds = call('SMEMBERS', prefix .. 'kinds')
call('DEL', prefix .. 'kinds')
for _, kind in ipairs(kinds) do
  call('HSET', prefix .. 'kinds', kind, struct.pack('>' .. string.rep('i7', 9), unpack(queue, 13, 21)))
  for priority = 1, 9 do
    add_cross_tags(priority, kind, is_strict and 0 or queue[12 + priority])
  end
end
for priority = 1, 9 do -- the first heads of kinds are the same, compared by their cross tags
  local scored, clock = {}, string.format('%d', is_strict and 0 or queue[12 + priority])
  for at, member in ipairs(call('ZRANGE', prefix .. 'firsts:' .. priority, 0, -1)) do
    scored[2 * at - 1], scored[2 * at] = clock, member
  end
  call_many('ZADD', prefix .. 'firsts:' .. priority, scored)
end
return ''
