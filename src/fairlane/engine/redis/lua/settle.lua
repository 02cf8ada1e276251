-- Settle: each claim ends with its outcome; answers the turns of the claims that were lost, for which nothing is changed.
--
-- ARGV: now, again, the call's own id, then seven values a settlement: place, id, token, outcome, result or reason, after,
-- cost. `again` is 1 when this very call was sent before and its answer was lost: what it did then is not told as lost.
local now, is_again = now_of(ARGV[1]), ARGV[2] == '1'
local FIRST, SIZE, LINES_BACK = 4, 7, 20000
call_id = ARGV[3]

local places, settled, lost = {}, {}, {}
for at = FIRST, #ARGV, SIZE do
  places[#places + 1] = ARGV[at]
end
load_documents(places)
load_customers_of(places)

local function spent(attempts, attempts_max, reason)
  return format('attempt %d of %d failed: ', attempts, attempts_max) .. reason
end

-- The claims that this very call ended when it was sent before, from the last lines of the feed.
local ended_before = {}
if is_again then
  for _, text in ipairs(call('LRANGE', FEED, -LINES_BACK, -1)) do
    local line = text ~= '' and cmsgpack.unpack(text)
    if line and line[7] == call_id and line[2] ~= 'corrected' then
      ended_before[line[4] .. ':' .. line[5]] = true
    end
  end
end

local function correct_cost(one, cost)
  local moving, part = one.moving, fixed(one)
  if cost == moving[COST] then
    return
  end
  local owner, weight = moving[OWNER], part[WEIGHT]
  correct(customer_of(owner), part[MADE_RESETS], step_of(moving[COST], weight), step_of(cost, weight))
  touched_customers[owner] = true
  log(now, 'corrected', owner, one.place, moving[TOKEN], format('%d %d', moving[COST], cost))
  moving[COST] = cost
end

local function settle(one, outcome, word, after)
  local moving = one.moving
  if outcome == 'done' then
    if word ~= '' then
      add('HSET', RESULTS, one.place, sub(word, 2))
    end
    finish(one, 'done', now)
  elseif outcome == 'failed' then
    finish(one, 'failed', now, word)
  elseif outcome == 'released' then
    moving[ATTEMPTS] = moving[ATTEMPTS] - 1
    come_back(one, 'released', now, 0)
  elseif moving[ATTEMPTS] >= moving[ATTEMPTS_MAX] then
    finish(one, 'failed', now, spent(moving[ATTEMPTS], moving[ATTEMPTS_MAX], word))
  else
    come_back(one, 'retried', now, after, word)
  end
end

for turn, place in ipairs(places) do
  local at = FIRST + (turn - 1) * SIZE
  local one, token, outcome, word = document(place), tonumber(ARGV[at + 2]), ARGV[at + 3], ARGV[at + 4]
  local moving = one and one.moving
  local is_known = one and moving[ID] == ARGV[at + 1]
  if is_known and moving[TOKEN] == token and moving[STATE] == 'running' then
    if ARGV[at + 6] ~= '' then
      correct_cost(one, tonumber(ARGV[at + 6]))
    end
    settle(one, outcome, word, tonumber(ARGV[at + 5]))
    settled[place] = true
  elseif is_known and not settled[place] and ended_before[place .. ':' .. token] then
    settled[place] = true -- a second settlement of the same claim was lost the first time too
  else
    lost[#lost + 1] = turn
  end
end
if #feed > 2 then
  flush()
end
return lost
