-- Submit: for each document in order check, priority and insert; a known key answers with its first receipt. All or none.
--
-- ARGV: now, again, has_keys, how many senders, five values a sender, then three values a document (five with keys).
-- A sender is what documents of a batch have in common: customer, kind, cost, delay and what it was made from.
-- `again` is 1 when this very call was sent before and its answer was lost: ids that are there are answered, not made again.
local now, is_again, has_keys, senders_count = now_of(ARGV[1]), ARGV[2] == '1', ARGV[3] == '1', tonumber(ARGV[4])
local SENDER_SIZE, DOCUMENT_SIZE = 5, has_keys and 5 or 3
local first_document = 5 + senders_count * SENDER_SIZE

-- -- refuse, before anything is moved --

local owners = {} -- name: number, false if never seen
local function known_owner(name)
  local owner = owners[name]
  if owner == nil then
    owner = owner_by_name(name)
    owners[name] = owner
  end
  return owner
end

local senders = {}
for place = 1, senders_count do
  local at = 5 + (place - 1) * SENDER_SIZE
  local one = {
    name = ARGV[at], kind = ARGV[at + 1], cost = tonumber(ARGV[at + 2]), delay = tonumber(ARGV[at + 3]), source = ARGV[at + 4],
  }
  if one.source ~= '' then
    local source = document_by_id(one.source)
    if not source or source.moving[OWNER] ~= known_owner(one.name) then
      return {'unknown', one.name, one.source}
    end
    one.inherits = fixed(source)
  end
  senders[place] = one
end

-- What is known already, by place: the number of the document that stands for it.
local known = {}
local by_key = {} -- customer: key: the document that has it, or the place in this batch that makes it

local function refused_key(place, at)
  local sender, key, digest = senders[tonumber(ARGV[at])], string.sub(ARGV[at + 3], 2), ARGV[at + 4]
  local own = by_key[sender.name] or {}
  by_key[sender.name] = own
  local found = own[key]
  if not found then
    local owner = known_owner(sender.name)
    local number = owner and call('HGET', SENDER_KEYS, owner .. ':' .. key)
    if number then
      local one = document(tonumber(number))
      found = {number = one.number, digest = fixed(one)[DIGEST] or '', id = one.moving[ID]}
    else
      found = {place = place, digest = digest, id = ARGV[at + 1]}
    end
    own[key] = found
  end
  if found.digest ~= digest then
    return {'conflict', sender.name, key, found.id}
  end
  if found.number then
    known[place] = found.number
  elseif found.place ~= place then
    known[place] = -found.place
  end
end

local count = (#ARGV - first_document + 1) / DOCUMENT_SIZE
for place = 1, count do
  local at = first_document + (place - 1) * DOCUMENT_SIZE
  local there = is_again and call('HGET', IDS, ARGV[at + 1])
  if there then
    known[place] = tonumber(there)
  elseif has_keys and ARGV[at + 3] ~= '' then
    local refusal = refused_key(place, at)
    if refusal then
      return refusal
    end
  end
end

-- -- check, priority and insert --

local function prepare(sender)
  local owner = known_owner(sender.name) or new_customer(sender.name)
  owners[sender.name], sender.owner, sender.customer = owner, owner, customer_of(owner)
  sender.policy, sender.weight = policy_of(sender.customer), weight_of(sender.customer)
  sender.step = step_of(sender.cost, sender.weight)
  sender.documents_of = prefix .. 'documents-of:' .. owner
  touched_customers[owner] = true
end

local function made_check(sender)
  local customer, inherited = sender.customer, sender.inherits
  if inherited then
    return inherited[PRIORITY], inherited[MADE_COUNTER], inherited[RULES_VERSION], inherited[MADE_TERMS_VERSION], NO_CHECK
  end
  check(sender.policy, customer, now, sender.step)
  local counter = customer[COUNTER]
  return level(sender.policy, counter), counter, queue.rules.version, customer[TERMS_VERSION], customer[RESETS]
end

local function take(sender, at)
  if not sender.owner then
    prepare(sender)
  end
  local owner, id = sender.owner, ARGV[at + 1]
  local priority, counter, rules_version, terms_version, made_resets = made_check(sender)
  local key = has_keys and ARGV[at + 3] or ''
  local digest = has_keys and ARGV[at + 4] or ''
  local number = queue.last_number + 1
  queue.last_number = number
  local part = {
    sender.kind, priority, counter, now, rules_version, terms_version, sender.weight, made_resets,
    key ~= '' and string.sub(key, 2), digest ~= '' and digest,
  }
  local moving = {'ready', owner, 0, 0, 3, now, sender.cost, false, false, false, false, id}
  local one = {number = number, moving = moving, fixed = part, tail = pack(part)}
  documents[number] = one
  write('HSET', PAYLOADS, number, ARGV[at + 2])
  write('HSET', IDS, id, number)
  write('ZADD', sender.documents_of, number, number)
  if key ~= '' then
    write('HSET', SENDER_KEYS, owner .. ':' .. string.sub(key, 2), number)
  end
  sender.customer[WAITING] = sender.customer[WAITING] + 1
  log(now, 'submitted', owner, number, 0, sender.source ~= '' and sender.source)
  queue_up(one, now, sender.delay)
  return number
end

local answer, numbers = {}, {}
for place = 1, count do
  local at = first_document + (place - 1) * DOCUMENT_SIZE
  local number = known[place]
  if number and number < 0 then
    number = numbers[-number]
  end
  numbers[place] = number or take(senders[tonumber(ARGV[at])], at)
  local one = document(numbers[place])
  local part = fixed(one)
  local size = #answer
  answer[size + 1], answer[size + 2], answer[size + 3] = one.number, part[PRIORITY], part[MADE_COUNTER]
  answer[size + 4], answer[size + 5], answer[size + 6] = part[CHECKED], part[RULES_VERSION], part[MADE_TERMS_VERSION]
  answer[size + 7] = number and one.moving[ID] or false
end
if #feed > 0 then
  flush()
end
return answer
