-- Documents: snapshots, newest first, below a number. ARGV: by what, customer or id, state, before, limit, how many to look at.
--
-- Answers the number below which to go on (0: there is no more), then the snapshots.
local by, subject, state, limit, looks = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[5]), tonumber(ARGV[6])
local before = ARGV[4] == '' and queue.last_number + 1 or math.min(tonumber(ARGV[4]), queue.last_number + 1)
local answer = {0}

local function show(one)
  local moving, part = one.moving, fixed(one)
  answer[#answer + 1] = {
    moving[ID], one.number, customer_of(moving[OWNER])[NAME], part[KIND], moving[STATE], part[PRIORITY], part[MADE_COUNTER],
    part[CHECKED], part[RULES_VERSION], part[MADE_TERMS_VERSION], moving[COST], part[KEY], moving[READY], moving[ATTEMPTS],
    moving[ATTEMPTS_MAX], moving[TOKEN], moving[WORKER], moving[LEASE], moving[ENDED], moving[REASON],
  }
end

-- The numbers to look at next, highest first: of a customer, of a state that has an index, or simply all.
local function numbers_below()
  local index
  if by == 'customer' then
    local owner = owner_by_name(subject)
    if not owner then
      return {}
    end
    index = prefix .. 'documents-of:' .. owner
  elseif state == 'failed' or state == 'cancelled' then
    index = prefix .. state
  end
  local numbers = {}
  if index then
    for place, number in ipairs(call('ZREVRANGEBYSCORE', index, before - 1, '-inf', 'LIMIT', 0, looks)) do
      numbers[place] = tonumber(number)
    end
  elseif state == 'running' then
    for _, member in ipairs(call('ZRANGE', LEASES, 0, -1)) do
      if tonumber(member) < before then
        numbers[#numbers + 1] = tonumber(member)
      end
    end
    table.sort(numbers, function(one, other) return one > other end)
  else
    for number = before - 1, math.max(1, before - looks), -1 do
      numbers[#numbers + 1] = number
    end
  end
  return numbers
end

if by == 'id' then
  local one = document_by_id(subject)
  if one then
    show(one)
  end
  return answer
end
local numbers = numbers_below()
load_documents(numbers)
for _, number in ipairs(numbers) do
  local one = document(number)
  if one and (state == '' or one.moving[STATE] == state) then
    show(one)
    if #answer > limit then
      return answer
    end
  end
end
answer[1] = #numbers >= looks and state ~= 'running' and numbers[#numbers] or 0
return answer
