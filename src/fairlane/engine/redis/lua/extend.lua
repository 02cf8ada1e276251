-- Extend: longer leases, never shorter ones; answers the places of the claims that were lost. ARGV: now, lease, then number, id, token.
local until_ms = now_of(ARGV[1]) + tonumber(ARGV[2])
local numbers = {}
for at = 3, #ARGV, 3 do
  numbers[#numbers + 1] = tonumber(ARGV[at])
end
load_documents(numbers)
local lost = {}
for place, number in ipairs(numbers) do
  local one, at = document(number), 3 * place
  local moving = one and one.moving
  if not one or moving[STATE] ~= 'running' or moving[ID] ~= ARGV[at + 1] or moving[TOKEN] ~= tonumber(ARGV[at + 2]) then
    lost[#lost + 1] = place
  elseif moving[LEASE] < until_ms then
    moving[LEASE] = until_ms
    touched_documents[number] = one
    write('ZADD', LEASES, until_ms, padded(number))
  end
end
if next(touched_documents) then
  flush()
end
return lost
