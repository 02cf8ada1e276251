-- Settle: each claim ends with its outcome; answers the turns of the claims that were lost, for which nothing is changed.
--
-- ARGV: now, again, the call's own id, how many outcomes, four values an outcome (its name, result or reason, after, cost),
-- then four values a settlement: place, id, token and which outcome. Settlements with the same outcome name the same one.
-- `again` is 1 when this very call was sent before and its answer was lost: what it did then is not told as lost.
local now, is_again = now_of(ARGV[1]), ARGV[2] == '1'
local BEFORE_OUTCOMES, SIZE, LINES_BACK = 4, 4, 20000
call_id = ARGV[3]

local first = BEFORE_OUTCOMES + SIZE * tonumber(ARGV[4]) + 1
local places, settled, lost = {}, {}, {}
for at = first, #ARGV, SIZE do
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
    local line = text ~= '' and {opened_values(text)}
    if line and line[LINE_CALL] == call_id and line[LINE_WHAT] ~= 'corrected' then
      ended_before[line[LINE_PLACE] .. ':' .. line[LINE_TOKEN]] = true
    end
  end
end

local function correct_cost(one, cost)
  local part = fixed(one)
  if cost == one[COST] then
    return
  end
  local owner, weight = one[OWNER], part[WEIGHT]
  correct(customer_of(owner), part[MADE_RESETS], step_of(one[COST], weight), step_of(cost, weight))
  touched_customers[owner] = true
  log(now, 'corrected', owner, one[PLACE], one[TOKEN], format('%d %d', one[COST], cost))
  one[COST] = cost
end

local function settle(one, at)
  local outcome, word = ARGV[at], ARGV[at + 1]
  if ARGV[at + 3] ~= '' then
    correct_cost(one, tonumber(ARGV[at + 3]))
  end
  if outcome == 'done' then
    if word ~= '' then
      add('HSET', RESULTS .. sub(one[PLACE], 1, PIECE), one[PLACE], sub(word, 2))
    end
    finish(one, 'done', now)
  elseif outcome == 'failed' then
    finish(one, 'failed', now, word)
  elseif outcome == 'released' then
    one[ATTEMPTS] = one[ATTEMPTS] - 1
    come_back(one, 'released', now, 0)
  elseif one[ATTEMPTS] >= one[ATTEMPTS_MAX] then
    finish(one, 'failed', now, spent(one[ATTEMPTS], one[ATTEMPTS_MAX], word))
  else
    come_back(one, 'retried', now, tonumber(ARGV[at + 2]), word)
  end
end

for turn, place in ipairs(places) do
  local at = first + (turn - 1) * SIZE
  local one, token = document(place), tonumber(ARGV[at + 2])
  local is_known = one and one[ID] == ARGV[at + 1]
  if is_known and one[TOKEN] == token and one[STATE] == 'running' then
    settle(one, BEFORE_OUTCOMES + SIZE * (ARGV[at + 3] - 1) + 1)
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
