-- Upgrade: say that the queue has the next form, unless somebody has said so already.
--
-- Without the shared files, which refuse a form that they do not know.
-- ARGV: the form it had, the form it has now, the oldest form whose programs may use it.
local stored = redis.call('GET', KEYS[1])
if stored and string.byte(stored) == tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], string.char(ARGV[2]) .. string.sub(stored, 2))
  redis.call('SET', string.sub(KEYS[1], 1, -6) .. 'oldest', ARGV[3])
end
return 1
