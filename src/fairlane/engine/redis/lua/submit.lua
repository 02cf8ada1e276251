-- Submit: for each document in order check, priority and insert; a known key answers with its first receipt. All or none.
--
-- ARGV: now, again, has_keys, how many senders, five values a sender, then three values a document (five with keys).
-- A sender is what documents of a batch have in common: customer, kind, cost, delay and what they were made from.
-- `again` is 1 when this very call was sent before and its answer was lost: ids that are there are answered, not made again.
local now, is_again, has_keys, senders_count = now_of(ARGV[1]), ARGV[2] == '1', ARGV[3] == '1', tonumber(ARGV[4])
local SENDER_SIZE, DOCUMENT_SIZE = 5, has_keys and 5 or 3
local before_first = 4 + senders_count * SENDER_SIZE

-- -- refuse, before anything is moved --

-- In a frozen queue nothing new begins; but what this call did before the queue was frozen is answered.
if rules[FROZEN] then
  local is_there = false
  for at = before_first + 2, is_again and #ARGV or 0, DOCUMENT_SIZE do
    is_there = is_there or call('HEXISTS', IDS .. sub(ARGV[at], 1, ID_PIECE), ARGV[at]) == 1
  end
  if not is_there then
    return redis.error_reply('FAIRLANE_FROZEN ' .. rules[FROZEN])
  end
end

local senders, owners = {}, {} -- owners by name, false if never seen
for place = 1, senders_count do
  local at = 5 + (place - 1) * SENDER_SIZE
  local one = {
    name = ARGV[at], kind = ARGV[at + 1], cost = tonumber(ARGV[at + 2]), delay = tonumber(ARGV[at + 3]), source = ARGV[at + 4],
  }
  if owners[one.name] == nil then
    owners[one.name] = call('HGET', NUMBERS, one.name)
  end
  if one.source ~= '' then
    local source = document_by_id(one.source)
    if not source or source[OWNER] ~= owners[one.name] then
      return {'unknown', one.name, one.source}
    end
    one.inherits = fixed(source)
  end
  senders[place] = one
end

local known = {} -- by turn in the batch: the place of the document that stands for it, or the turn that makes it
local by_key = {} -- by customer and key: the same, with what tells two bodies apart

local function refused_key(turn, at)
  local name, key, digest = senders[tonumber(ARGV[at])].name, sub(ARGV[at + 3], 2), ARGV[at + 4]
  local own = by_key[name] or {}
  by_key[name] = own
  local found = own[key]
  if not found then
    local place = owners[name] and call('HGET', prefix .. 'keys', owners[name] .. ':' .. key)
    if place then
      local one = document(place)
      found = {stands = place, digest = fixed(one)[DIGEST] or '', id = one[ID]}
    else
      found = {stands = turn, digest = digest, id = ARGV[at + 1]}
    end
    own[key] = found
  end
  if found.digest ~= digest then
    return {'conflict', name, key, found.id}
  elseif found.stands ~= turn then
    known[turn] = found.stands
  end
end

local count = (#ARGV - before_first) / DOCUMENT_SIZE
if is_again or has_keys then
  for turn = 1, count do
    local at = before_first + (turn - 1) * DOCUMENT_SIZE + 1
    local there = is_again and call('HGET', IDS .. sub(ARGV[at + 1], 1, ID_PIECE), ARGV[at + 1])
    if there then
      known[turn] = there
    elseif has_keys and ARGV[at + 3] ~= '' then
      local refusal = refused_key(turn, at)
      if refusal then
        return refusal
      end
    end
  end
end

-- -- check, priority and insert --

local function prepare(sender)
  local owner = owners[sender.name] or new_customer(sender.name)
  owners[sender.name], sender.owner, sender.customer = owner, owner, customer_of(owner)
  sender.policy, sender.weight = policy_of(sender.customer), weight_of(sender.customer)
  sender.step = step_of(sender.cost, sender.weight)
  sender.documents_of = prefix .. 'documents-of:' .. owner
  sender.ready, sender.lanes = as_text(now + sender.delay), {}
  sender.changing = pack(
    sender.delay > 0 and 'delayed' or 'ready', owner, 0, 0, ATTEMPTS_DEFAULT, sender.ready, sender.cost, false, false, false, false
  )
  touched_customers[owner] = true
end

-- A document's check, or what it inherits: the priority and the counter. What all documents of a sender have in common, and
-- their checks as long as no reset comes between, is packed once.
local function decided(sender)
  local customer, inherited = sender.customer, sender.inherits
  local version, terms, resets = rules[VERSION], customer[TERMS_VERSION], NO_CHECK
  if inherited then
    version, terms = inherited[MADE_VERSION], inherited[MADE_TERMS]
  else
    check(sender.policy, customer, now, sender.step)
    resets = customer[RESETS]
  end
  if resets ~= sender.resets then
    sender.resets, sender.version, sender.terms = resets, version, terms
    sender.common = pack(sender.kind, now, version, terms, sender.weight, resets)
  end
  if inherited then
    return inherited[PRIORITY], inherited[MADE_COUNTER]
  end
  return level(sender.policy, customer[COUNTER]), customer[COUNTER]
end

-- All documents of a batch go out in one command a hash, and in other ones where another piece begins.
local piece, id_piece, to_documents, to_payloads, to_ids

local function begin_piece(of_places, of_ids)
  piece, id_piece = of_places, of_ids
  to_documents, to_payloads, to_ids = {'HSET', DOCUMENTS .. piece}, {'HSET', PAYLOADS .. piece}, {'HSET', IDS .. id_piece}
  local size = #adds
  adds[size + 1], adds[size + 2], adds[size + 3] = to_documents, to_payloads, to_ids
end

local KEYLESS = pack(false, false)

-- Seven values a document: its number, what was decided, and the id where it is not the one that was sent.
local answer = {}

local function tell(turn, number, priority, counter, checked, version, terms, id)
  local at = 7 * turn
  answer[at - 6], answer[at - 5], answer[at - 4], answer[at - 3] = number, priority, counter, checked
  answer[at - 2], answer[at - 1], answer[at] = version, terms, id
end

local function take(sender, turn, at)
  if not sender.owner then
    prepare(sender)
  end
  local owner, id, key, key_part = sender.owner, ARGV[at + 1], false, KEYLESS
  if has_keys then
    key = ARGV[at + 3] ~= '' and sub(ARGV[at + 3], 2)
    key_part = pack(key, ARGV[at + 4] ~= '' and ARGV[at + 4])
  end
  local priority, counter = decided(sender)
  local number = queue[LAST_NUMBER] + 1
  queue[LAST_NUMBER] = number
  local place = format('%016d', number)
  local of_places, of_ids = sub(place, 1, PIECE), sub(id, 1, ID_PIECE)
  if of_places ~= piece or of_ids ~= id_piece then
    begin_piece(of_places, of_ids)
  end
  local size = #to_ids
  to_documents[size + 1] = place
  to_documents[size + 2] = sender.changing .. pack(id) .. sender.common .. pack(priority, counter) .. key_part
  to_payloads[size + 1], to_payloads[size + 2] = place, ARGV[at + 2]
  to_ids[size + 1], to_ids[size + 2] = id, place
  add('ZADD', sender.documents_of, place, place)
  if key then
    add('HSET', prefix .. 'keys', owner .. ':' .. key, place)
  end
  sender.customer[WAITING] = sender.customer[WAITING] + 1
  log(now, 'submitted', owner, place, 0, sender.source ~= '' and sender.source)
  if sender.delay > 0 then
    add('ZADD', prefix .. 'delayed', sender.ready, place)
    soonest = min(soonest or now + sender.delay, now + sender.delay)
  else
    local lane = sender.lanes[priority]
    if not lane then
      lane = lane_of(owner, priority, sender.kind)
      sender.lanes[priority] = lane
    end
    join(lane, place, sender.ready)
  end
  tell(turn, number, priority, counter, now, sender.version, sender.terms, false)
end

for turn = 1, count do
  local at = before_first + (turn - 1) * DOCUMENT_SIZE + 1
  local stands = known[turn]
  if not stands then
    take(senders[tonumber(ARGV[at])], turn, at)
  elseif type(stands) == 'number' then
    local first = 7 * stands
    local id = answer[first] or ARGV[before_first + (stands - 1) * DOCUMENT_SIZE + 2]
    tell(turn, answer[first - 6], answer[first - 5], answer[first - 4], answer[first - 3], answer[first - 2], answer[first - 1], id)
  else
    local one = document(stands)
    local part = fixed(one)
    tell(
      turn, tonumber(stands), part[PRIORITY], part[MADE_COUNTER], part[CHECKED], part[MADE_VERSION], part[MADE_TERMS], one[ID]
    )
  end
end
if #feed > 2 then
  flush()
end
return answer
