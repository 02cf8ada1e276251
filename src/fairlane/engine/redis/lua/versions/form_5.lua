-- Form 5: limits of customers, in the rules; and what documents take is counted, by `count`, in the steps that follow.
--
-- Programs of form 4 would not count, so they may not go on: this script changes the form itself. ARGV: a cursor, which it does
-- not need.
local stored, prefix, NUMBERS_SIZE = redis.call('GET', KEYS[1]), string.sub(KEYS[1], 1, -6), 267
if not stored or string.byte(stored) ~= 4 then
  return ''
end
local before = {cmsgpack.unpack(string.sub(stored, NUMBERS_SIZE + 1))}
local rules = {}
for at = 1, 6 do -- version, interval, reset, dispatch, open turns, why it is frozen
  rules[at] = before[at]
end
for at, most in ipairs({100000, 10000, false, false, 3}) do
  rules[6 + at] = most
end
for at = 7, #before do -- depths
  rules[5 + at] = before[at]
end
local numbers = string.sub(stored, 2, NUMBERS_SIZE)
local last_number = struct.unpack('>i7', numbers)
if last_number > 0 then
  redis.call('SET', prefix .. 'uncounted', string.format('%d', last_number))
end
redis.call('SET', KEYS[1], string.char(5) .. numbers .. cmsgpack.pack(unpack(rules)))
redis.call('SET', prefix .. 'oldest', 5)
return ''
