-- Settle: each claim ends with its outcome; answers the places of the claims that were lost, for which nothing is changed.
--
-- ARGV: now, again, then seven values a settlement: number, id, token, outcome, result or reason, after, cost.
-- `again` is 1 when this very call was sent before and its answer was lost: what it did then is not told as lost.
local now, is_again = now_of(ARGV[1]), ARGV[2] == '1'
local SIZE = 7

local numbers, seen = {}, {}
for at = 3, #ARGV, SIZE do
  numbers[#numbers + 1] = tonumber(ARGV[at])
end
load_documents(numbers)

-- What the caller says of a failure; more when the attempts are spent.
local function spent(moving, reason)
  return format('attempt %d of %d failed: %s', moving[ATTEMPTS], moving[ATTEMPTS_MAX], reason)
end

-- What the last lines of the feed tell about claims that ended, to know a settlement of ours that took effect unheard.
local LINES_BACK = 20000
local heard = {}
if is_again then
  for _, text in ipairs(call('LRANGE', FEED, -LINES_BACK, -1)) do
    local line = text ~= '' and cmsgpack.unpack(text)
    if line and line[4] and line[2] ~= 'claimed' and line[2] ~= 'corrected' then
      heard[format('%.0f:%.0f', line[4], line[5])] = line
    end
  end
end

local function was_ours(moving, number, token, outcome, word)
  local line = heard[format('%.0f:%.0f', number, token)]
  if not line then
    return false
  elseif outcome == 'retried' and line[2] == 'failed' then
    return line[6] == format('attempt %d of %d failed: %s', moving[ATTEMPTS], moving[ATTEMPTS_MAX], word)
  end
  return line[2] == outcome and (outcome ~= 'failed' or line[6] == word)
end

local function correct_cost(one, cost)
  local moving, part = one.moving, fixed(one)
  if cost == moving[COST] then
    return
  end
  local weight = part[WEIGHT]
  correct(customer_of(moving[OWNER]), part[MADE_RESETS], step_of(moving[COST], weight), step_of(cost, weight))
  touched_customers[moving[OWNER]] = true
  log(now, 'corrected', moving[OWNER], one.number, moving[TOKEN], format('%.0f %.0f', moving[COST], cost))
  moving[COST] = cost
end

local function settle(one, outcome, word, after)
  local moving = one.moving
  if outcome == 'done' then
    if word ~= '' then
      write('HSET', RESULTS, one.number, string.sub(word, 2))
    end
    finish(one, 'done', now)
  elseif outcome == 'failed' then
    finish(one, 'failed', now, word)
  elseif outcome == 'released' then
    moving[ATTEMPTS] = moving[ATTEMPTS] - 1
    come_back(one, 'released', now, 0)
  elseif moving[ATTEMPTS] >= moving[ATTEMPTS_MAX] then
    finish(one, 'failed', now, spent(moving, word))
  else
    come_back(one, 'retried', now, after, word)
  end
end

local lost = {}
for place, number in ipairs(numbers) do
  local at = 3 + (place - 1) * SIZE
  local one, token, outcome, word = document(number), tonumber(ARGV[at + 2]), ARGV[at + 3], ARGV[at + 4]
  local moving = one and one.moving
  local is_known = one and moving[ID] == ARGV[at + 1]
  if is_known and moving[TOKEN] == token and moving[STATE] == 'running' then
    if ARGV[at + 6] ~= '' then
      correct_cost(one, tonumber(ARGV[at + 6]))
    end
    settle(one, outcome, word, tonumber(ARGV[at + 5]))
    seen[number] = true
  elseif not (is_known and not seen[number] and was_ours(moving, number, token, outcome, word)) then
    lost[#lost + 1] = place
  else
    seen[number] = true -- a second settlement of the same claim was lost the first time too
  end
end
if #feed > 0 then
  flush()
end
return lost
