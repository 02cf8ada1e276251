-- Extend: longer leases, never shorter ones; answers the turns of the claims that were lost.
--
-- ARGV: now, lease, then place, id and token of each claim.
local until_ms = now_of(ARGV[1]) + tonumber(ARGV[2])
local places, lost = {}, {}
for at = 3, #ARGV, 3 do
  places[#places + 1] = ARGV[at]
end
load_documents(places)
for turn, place in ipairs(places) do
  local one, at = document(place), 3 * turn
  if not one or one[STATE] ~= 'running' or one[ID] ~= ARGV[at + 1] or one[TOKEN] ~= tonumber(ARGV[at + 2]) then
    lost[#lost + 1] = turn
  elseif one[LEASE] < until_ms then
    one[LEASE] = until_ms
    touch(one)
    add('ZADD', LEASES, until_ms, place)
  end
end
if next(touched_documents) then
  flush()
end
return lost
