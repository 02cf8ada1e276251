-- The policy: steps, checks and priorities, exact to the last digit.

local STEP, COUNTER_FLOOR = 1000, -1000000000000 -- thousandths

-- Divide whole numbers that are not negative; exact where floor(a / b) may round up.
local function divide(a, b)
  return (a - fmod(a, b)) / b
end

-- Return floor(amount * part / whole) for amount <= 10^12 and part <= whole <= 2,592,000,000: no step reaches 2^53.
local function share_of(amount, part, whole)
  local rest, low = fmod(amount, whole), fmod(part, 65536)
  local product = rest * ((part - low) / 65536)
  local more = fmod(product, whole) * 65536 + rest * low
  return divide(amount, whole) * part + divide(product, whole) * 65536 + divide(more, whole)
end

-- Return one step of a document, for the counter and for turns.
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

-- Check a customer: the counter is reset, or steps down.
local function check(policy, customer, now, step)
  local counter, updated = customer.counter, customer.updated
  customer.stored = false
  local since = policy.reset == 'window' and customer.reset_at or updated
  if not updated or (now >= updated and now - since > policy.interval) then
    customer.counter = max(COUNTER_FLOOR, min(0, STEP - step))
    customer.updated, customer.reset_at, customer.resets = now, now, customer.resets + 1
    return
  end
  if policy.reset == 'gradual' and now > updated then
    counter = -share_of(-counter, policy.interval - (now - updated), policy.interval)
  end
  customer.counter, customer.updated = max(COUNTER_FLOOR, counter - step), max(updated, now)
end

-- Move the counter by the difference of two steps, because the cost was corrected; not if a reset came between.
local function correct(customer, resets, step_before, step_after)
  if customer.updated and customer.resets == resets then
    customer.counter = max(COUNTER_FLOOR, min(0, customer.counter + step_before - step_after))
    customer.stored = false
  end
end

-- Return the priority of a counter: the last line of the table that holds.
local function priority_of(policy, counter)
  local depths, priority = policy.depths, 1
  while depths[priority] and depths[priority] < -counter do
    priority = priority + 1
  end
  return priority
end
