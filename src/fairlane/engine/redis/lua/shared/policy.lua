-- The policy: steps, checks and priorities, exact to the last digit.

local STEP, COUNTER_FLOOR = 1000, -1000000000000 -- thousandths

-- Divide whole numbers that are not negative; exact where floor(a / b) may round up.
local function divide(a, b)
  return (a - fmod(a, b)) / b
end

-- Return one step of a document.
local function step_of(cost, weight)
  return max(1, divide(cost * STEP, weight))
end

-- Return the interval, the reset rule and the table that hold for a customer.
local function policy_of(customer)
  local terms = customer.terms or {}
  return {
    interval = terms.interval or rules.interval, reset = terms.reset or rules.reset, depths = terms.depths or rules.depths,
  }
end

local PARTS = 16 -- of a sliding interval

local function part_length(policy)
  return max(1, divide(policy.interval, PARTS))
end

-- Return the start of the part of a sliding interval that a moment lies in.
local function part_of(policy, at)
  return at - fmod(at, part_length(policy))
end

-- Count a step of a customer under `sliding`: forget the parts that are too old, and add the step to the part of this moment;
-- returns what was sent in the parts that are kept. One that comes from `idle` begins with the part of its last update.
local function slide(policy, customer, at, step)
  local now_part = part_of(policy, at)
  local parts, kept, sent, in_now = customer.parts, {}, 0, 0
  if customer.updated and not parts then
    parts = {part_of(policy, customer.updated), STEP - customer.counter}
  end
  local oldest = now_part - PARTS * part_length(policy)
  for index = 1, customer.updated and #parts or 0, 2 do
    local start, amount = parts[index], parts[index + 1]
    if start > oldest then
      sent = sent + amount
      if start == now_part then
        in_now = amount
      else
        kept[#kept + 1], kept[#kept + 2] = start, amount
      end
    end
  end
  kept[#kept + 1], kept[#kept + 2] = now_part, min(-COUNTER_FLOOR, in_now + step)
  customer.parts = kept
  return sent
end

-- Check a customer: the counter steps down or is reset; under `sliding`, which is every rule but `idle`, it is what was sent lately.
local function check(policy, customer, now, step)
  local counter, updated, above_one = customer.counter, customer.updated, max(0, step - STEP)
  local at = updated and max(updated, now) or now
  customer.stored = false
  if policy.reset ~= 'idle' then
    customer.counter = max(COUNTER_FLOOR, -slide(policy, customer, at, step) - above_one)
    customer.resets = customer.resets + (updated and 0 or 1)
  elseif not updated or now - updated > policy.interval then
    customer.counter, customer.resets, customer.parts = max(COUNTER_FLOOR, -above_one), customer.resets + 1, false
  else
    customer.counter, customer.parts = max(COUNTER_FLOOR, counter - step), false
  end
  customer.updated = at
end

-- Move the counter because a document, checked then, is so many thousandths of a step more than its check took; not if a reset
-- came between, or its part of a sliding interval no longer counts.
local function correct(policy, customer, checked, resets, more)
  if not customer.updated or customer.resets ~= resets then
    return
  end
  local parts = customer.parts
  if policy.reset ~= 'idle' and parts then
    local part, index = part_of(policy, checked), 1
    while parts[index] and parts[index] ~= part do
      index = index + 2
    end
    if not parts[index] then
      return
    end
    parts[index + 1] = max(0, min(-COUNTER_FLOOR, parts[index + 1] + more))
  end
  customer.counter, customer.stored = max(COUNTER_FLOOR, min(0, customer.counter - more)), false
end

-- Return the priority of a counter: the last line of the table that holds.
local function priority_of(policy, counter)
  local depths, priority = policy.depths, 1
  while depths[priority] and depths[priority] < -counter do
    priority = priority + 1
  end
  return priority
end

-- Return the priority that a check gives a document which asks for no better one than a number; false: any.
local function checked_priority_of(policy, counter, no_better_than)
  return max(priority_of(policy, counter), no_better_than or 1)
end
