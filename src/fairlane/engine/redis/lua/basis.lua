-- What every verb stands on: where things stand in the records, the queue's own record, exact arithmetic, and the policy.
--
-- Laws:
-- Numbers are doubles here: whole numbers below 2^53 only, and products that could be larger are split.
-- What names things is text: documents by their number in 16 digits (`place`), so that text is in the order of numbers;
-- customers by their number (`owner`). Making text of numbers is what costs most here, so it is done once.

local call, pack, opened_values, format, sub = redis.call, cmsgpack.pack, cmsgpack.unpack, string.format, string.sub
local fmod, max, min = math.fmod, math.max, math.min

local STEP, COUNTER_FLOOR = 1000, -1000000000000 -- thousandths
local ATTEMPTS_DEFAULT, NO_CHECK = 3, -1
local ARGUMENTS_MAX = 4000 -- of one command; Lua's stack holds about 8000
-- What grows with documents stands in pieces, of which only the last grows, as a server takes long to double a giant hash:
-- the first digits of a place say in which (100,000 documents each), those of an id, which is made of the time, do (4 seconds).
local PIECE, ID_PIECE = 11, 10

-- Where things stand in the records; README.md tells what they mean.
local LAST_NUMBER, LAST_CHANGE, LAST_RECORD, LAST_CUSTOMER, DISPATCHES, FEED_FIRST, FEED_FLOOR = 2, 3, 4, 5, 6, 7, 8
local PACE, CLOCK, READY_IN, LANES_IN = 8, 12, 21, 30 -- each before its first: four marks, and a number a priority
local QUEUE_LAST, RULES_AT = 39, 40 -- its last number, and where in the record the rules begin
local VERSION, INTERVAL, RESET, DISPATCH, EVERY, FROZEN, DEPTH = 1, 2, 3, 4, 5, 6, 7 -- rules; depths follow to the end
local PLACE, RECORD, FIXED_AT = 1, 2, 3 -- of a document: its place, the record as it was read, where its fixed part begins
local STATE, OWNER, TOKEN, ATTEMPTS, ATTEMPTS_MAX, READY, COST, LEASE, ENDED, WORKER, REASON, ID =
  4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
local CHANGING = 12 -- how many values of a document may change, the id with them
local KIND, CHECKED, MADE_VERSION, MADE_TERMS, WEIGHT, MADE_RESETS, PRIORITY, MADE_COUNTER, KEY, DIGEST =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local WAITING, RUNNING, DONE, FAILED, CANCELLED = 1, 2, 3, 4, 5
local PACKED = 6 -- what follows as it was read; false: a value of it changed
local NAME, TERMS_VERSION, TERMS, COUNTER, UPDATED, RESET_AT, RESETS = 7, 8, 9, 10, 11, 12, 13
local COUNTS_SIZE, CUSTOMER_LAST = 25, 13
local LINE_AT, LINE_WHAT, LINE_NOTE, LINE_CALL, LINE_OWNER, LINE_PLACE, LINE_TOKEN = 1, 2, 3, 4, 5, 6, 7
local QUEUE_NUMBERS, COUNTS = '>B' .. string.rep('i7', 38), '>I5I5I5I5I5'

local prefix = sub(KEYS[1], 1, -6) -- KEYS[1] is '{...}:queue'; every other key is its neighbour
local DOCUMENTS, PAYLOADS, IDS, FEED = prefix .. 'documents:', prefix .. 'payloads:', prefix .. 'ids:', prefix .. 'feed'
local CUSTOMERS, NUMBERS, LANES = prefix .. 'customers', prefix .. 'numbers', prefix .. 'lanes'

local stored_queue = call('GET', KEYS[1])
if not stored_queue then
  return redis.error_reply('FAIRLANE_GONE the queue is not there')
end
if string.byte(stored_queue) ~= 3 then
  return redis.error_reply('FAIRLANE_FORM the queue has another form')
end
local queue = {struct.unpack(QUEUE_NUMBERS, stored_queue)}
local packed_rules = sub(stored_queue, queue[RULES_AT])
local rules = {opened_values(packed_rules)}
local is_strict = rules[DISPATCH] == 'strict'

local function packed_queue()
  return struct.pack(QUEUE_NUMBERS, unpack(queue, 1, QUEUE_LAST)) .. packed_rules
end

-- -- arithmetic -----------------------------------------------------------------------------------------------------

-- A whole division of whole numbers that are not negative, exact where floor(a / b) may round up.
local function divided(a, b)
  return (a - fmod(a, b)) / b
end

-- floor(amount * part / whole) for amount <= 10^12 and part <= whole <= 2,592,000,000: no step reaches 2^53.
local function share(amount, part, whole)
  local rest, low = fmod(amount, whole), fmod(part, 65536)
  local product = rest * ((part - low) / 65536)
  local more = fmod(product, whole) * 65536 + rest * low
  return divided(amount, whole) * part + divided(product, whole) * 65536 + divided(more, whole)
end

-- One step of a document, for the counter and for turns.
local function step_of(cost, weight)
  return max(1, divided(cost * STEP, weight))
end

-- The time that was passed in, or the server's own.
local function now_of(given)
  if given ~= '' then
    return tonumber(given)
  end
  local time = call('TIME')
  return time[1] * 1000 + divided(time[2], 1000)
end

local function as_text(number)
  return format('%d', number)
end

-- -- the policy -----------------------------------------------------------------------------------------------------

-- The interval, the reset rule and the table that hold for a customer; depths stand in `depths` from `from` on.
local function policy_of(customer)
  local terms = customer[TERMS]
  local policy = {interval = rules[INTERVAL], reset = rules[RESET], depths = rules, from = DEPTH}
  if terms then
    policy.interval, policy.reset = terms.interval or policy.interval, terms.reset or policy.reset
    if terms.depths then
      policy.depths, policy.from = terms.depths, 1
    end
  end
  return policy
end

-- One check: the counter is set back, or steps down.
local function check(policy, customer, now, step)
  local counter, updated = customer[COUNTER], customer[UPDATED]
  customer[PACKED] = false
  local since = policy.reset == 'window' and customer[RESET_AT] or updated
  if not updated or (now >= updated and now - since > policy.interval) then
    customer[COUNTER] = max(COUNTER_FLOOR, min(0, STEP - step))
    customer[UPDATED], customer[RESET_AT], customer[RESETS] = now, now, customer[RESETS] + 1
    return
  end
  if policy.reset == 'gradual' and now > updated then
    counter = -share(-counter, policy.interval - (now - updated), policy.interval)
  end
  customer[COUNTER], customer[UPDATED] = max(COUNTER_FLOOR, counter - step), max(updated, now)
end

-- The priority of a counter: the last line of the table that holds.
local function level(policy, counter)
  local depths, from = policy.depths, policy.from
  local place = from
  while depths[place] and depths[place] < -counter do
    place = place + 1
  end
  return place - from + 1
end

-- -- customers ------------------------------------------------------------------------------------------------------

-- A customer seen for the first time.
local function unseen(name)
  return {0, 0, 0, 0, 0, false, name, 0, false, 0, false, false, 0}
end

local function opened_customer(record)
  local waiting, running, done, failed, cancelled = struct.unpack(COUNTS, record)
  local packed = sub(record, COUNTS_SIZE + 1)
  return {waiting, running, done, failed, cancelled, packed, opened_values(packed)}
end

local function packed_customer(one)
  local packed = one[PACKED] or pack(unpack(one, NAME, CUSTOMER_LAST))
  return struct.pack(COUNTS, one[WAITING], one[RUNNING], one[DONE], one[FAILED], one[CANCELLED]) .. packed
end

local function weight_of(customer)
  return customer[TERMS] and customer[TERMS].weight or STEP
end

-- Whether a customer's lanes must not compete now.
local function is_blocked(customer)
  local terms = customer[TERMS]
  return terms and (terms.paused or (terms.cap and customer[RUNNING] >= terms.cap)) and true or false
end
