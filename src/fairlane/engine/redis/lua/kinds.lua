-- Kinds: one by its name, or those above a name that have, or had, a limit. ARGV: 1 for one kind, its name or that name, limit.
local names = {ARGV[2]}
if ARGV[1] ~= '1' then
  names = call('ZRANGEBYLEX', LIMITED_KINDS, ARGV[2] == '' and '-' or '(' .. ARGV[2], '+', 'LIMIT', 0, ARGV[3])
end
local reply = {}
for at, name in ipairs(names) do
  local kind = kind_of(name)
  local running = kind.version > 0 and kind.running or count_running_of(name)
  reply[at] = {name, kind.json, kind.version, running, next_start(kind)}
end
return reply
