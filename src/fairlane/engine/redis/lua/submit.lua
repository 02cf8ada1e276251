-- Submit: check each document in order, give it a priority and insert it; all or none.
--
-- ARGV: now, again, has files, has keys, count of senders, seven values a sender, then three values a document, one more with files
-- (their bytes), two more with keys.
-- A sender is what documents of a batch have in common: customer, kind, cost, delay, the document that they come out of, whether
-- they inherit its check, and the best priority that they ask for or nothing.
-- `again` is 1 when this call was sent before and its reply was lost: ids that exist get their receipts.
-- Returns a receipt for each document; or 'unknown', 'conflict' or 'over' and whose.
local now, is_again, has_files, has_keys = now_of(ARGV[1]), ARGV[2] == '1', ARGV[3] == '1', ARGV[4] == '1'
local SENDER_SIZE, FILE_AT, KEY_AT, NO_CHECK = 7, 3, has_files and 4 or 3, -1
local DOCUMENT_SIZE, sender_count = KEY_AT + (has_keys and 2 or 0), tonumber(ARGV[5])
local first_document = 6 + sender_count * SENDER_SIZE
local count = (#ARGV - first_document + 1) / DOCUMENT_SIZE

-- -- refuse, before anything is changed --

-- Return whether this call made one of its documents when it was sent before.
local function has_begun()
  for at = first_document + 1, is_again and #ARGV or 0, DOCUMENT_SIZE do
    if call('HEXISTS', ids_key(ARGV[at]), ARGV[at]) == 1 then
      return true
    end
  end
  return false
end

if rules.frozen and not has_begun() then
  return frozen_error()
end

local senders, owners = {}, {} -- owners by customer id, false if never seen
for index = 1, sender_count do
  local at = 6 + (index - 1) * SENDER_SIZE
  local sender = {
    id = ARGV[at], kind = ARGV[at + 1], cost = tonumber(ARGV[at + 2]), delay = tonumber(ARGV[at + 3]),
    source = ARGV[at + 4] ~= '' and ARGV[at + 4], root = false, no_better_than = tonumber(ARGV[at + 6]) or false,
  }
  if owners[sender.id] == nil then
    owners[sender.id] = call('HGET', OWNERS, sender.id)
  end
  if sender.source then
    local source = document_by_id(sender.source)
    if not source or source.owner ~= owners[sender.id] then
      return {'unknown', sender.id, sender.source}
    end
    sender.root, sender.inherited = root_of(source), ARGV[at + 5] == '1' and fixed(source)
  end
  senders[index] = sender
end

-- Return the submission at an index of the batch.
local function submission(index)
  local at = first_document + (index - 1) * DOCUMENT_SIZE
  local key, digest = has_keys and ARGV[at + KEY_AT] or '', has_keys and ARGV[at + KEY_AT + 1] or ''
  return {
    sender = senders[tonumber(ARGV[at])], id = ARGV[at + 1], payload = ARGV[at + 2],
    bytes = #ARGV[at + 2] + (has_files and tonumber(ARGV[at + FILE_AT]) or 0),
    key = key ~= '' and sub(key, 2), digest = digest ~= '' and digest,
  }
end

-- Return whose key it is: the seq of the document that has it, or the index of the submission that brings it first.
local by_key = {}
local function key_holder(submitted, index)
  local owner = owners[submitted.sender.id]
  local name = #submitted.sender.id .. ':' .. submitted.sender.id .. submitted.key
  if not by_key[name] then
    local seq = owner and call('HGET', prefix .. 'keys', owner .. ':' .. submitted.key)
    if seq then
      local document = document_of(seq)
      by_key[name] = {seq = seq, digest = fixed(document).digest, id = document.id}
    else
      by_key[name] = {index = index, digest = submitted.digest, id = submitted.id}
    end
  end
  return by_key[name]
end

local existing = {} -- by index: the seq of a document that exists, or the index of an earlier submission with the same key
for index = 1, (is_again or has_keys) and count or 0 do
  local submitted = submission(index)
  local seq = is_again and call('HGET', ids_key(submitted.id), submitted.id)
  if seq then
    existing[index] = seq
  elseif submitted.key then
    local holder = key_holder(submitted, index)
    if holder.digest ~= submitted.digest then
      return {'conflict', submitted.sender.id, submitted.key, holder.id}
    elseif holder.index ~= index then
      existing[index] = holder.seq or holder.index
    end
  end
end

-- What the new documents add, by family and by customer, in the order of the first of each.
local families_added, customers_added = {}, {}

local function add(list, name, sender, bytes)
  local addition = list[name]
  if not addition then
    addition = {documents = 0, bytes = 0, name = name, sender = sender}
    list[name], list[#list + 1] = addition, addition
  end
  addition.documents, addition.bytes = addition.documents + 1, addition.bytes + bytes
end

for index = 1, count do
  if not existing[index] then
    local at = first_document + (index - 1) * DOCUMENT_SIZE
    local sender = senders[tonumber(ARGV[at])]
    add(customers_added, 'c' .. sender.id, sender, #ARGV[at + 2] + (has_files and tonumber(ARGV[at + FILE_AT]) or 0))
    if sender.root then
      add(families_added, 'f' .. sender.root, sender, 0)
    end
  end
end

-- Return a reply that refuses the batch, if a family or a customer would be over a limit.
local function find_over_limit()
  for _, addition in ipairs(families_added) do
    local sender = addition.sender
    local family, limits = family_of(sender.root), limits_of(customer_of(owners[sender.id]))
    local used = family and family.descendants or 0
    local refusal = over_limit(limits, 'descendants_max', sender.source, used, addition.documents)
    if refusal then
      return refusal
    end
  end
  for _, addition in ipairs(customers_added) do
    local id = addition.sender.id
    local customer = owners[id] and customer_of(owners[id])
    local limits, has = limits_of(customer), customer or {waiting = 0, documents = 0, bytes = 0}
    local refusal = over_limit(limits, 'waiting_max', id, has.waiting, addition.documents)
      or over_limit(limits, 'documents_max', id, has.documents, addition.documents)
      or over_limit(limits, 'bytes_max', id, has.bytes, addition.bytes)
    if refusal then
      return refusal
    end
  end
end

local over = find_over_limit()
if over then
  return over
end

-- -- check, priority and insert --

-- Prepare a sender for its first new document.
local function begin_sender(sender)
  local owner = owners[sender.id] or new_customer(sender.id)
  owners[sender.id], sender.owner, sender.customer = owner, owner, customer_of(owner)
  sender.policy, sender.weight = policy_of(sender.customer), weight_of(sender.customer)
  sender.step = step_of(sender.cost, sender.weight)
  sender.ready, sender.lanes = as_text(now + sender.delay), {}
  changed_customers[owner] = true
end

-- Check the sender's customer for one document, or inherit the check of its source.
local function decide(sender)
  local customer, inherited = sender.customer, sender.inherited
  if inherited then
    return inherited.checked_priority, inherited.counter, inherited.rules_version, inherited.terms_version, NO_CHECK
  end
  check(sender.policy, customer, now, sender.step)
  local priority = checked_priority_of(sender.policy, customer.counter, sender.no_better_than)
  return priority, customer.counter, rules.version, customer.terms_version, customer.resets
end

-- Return the last values of a document's record, which are left out where they say nothing, and its priority.
local function steering_of(sender, checked_priority)
  local inherited = sender.inherited
  if inherited and (inherited.by_hand or inherited.no_better_than or inherited.priority ~= checked_priority) then
    return inherited.priority, pack(
      sender.root, 0, now, inherited.priority, inherited.by_hand, inherited.no_better_than
    )
  elseif sender.no_better_than and not inherited then
    return checked_priority, pack(sender.root, 0, now, checked_priority, false, sender.no_better_than)
  end
  return checked_priority, sender.root and pack(sender.root) or ''
end

-- Let a new document wait in its lane, or for its time.
local function enqueue(sender, seq, priority)
  if sender.delay > 0 then
    write('ZADD', DELAYED, sender.ready, seq)
    due_first = min(due_first or now + sender.delay, now + sender.delay)
    return
  end
  local lane = sender.lanes[priority] or lane_of(sender.owner, priority, sender.kind)
  sender.lanes[priority] = lane
  join(lane, seq, sender.ready)
end

-- Insert a new document; returns its receipt.
local function insert(submitted)
  local sender, id, key = submitted.sender, submitted.id, submitted.key
  if not sender.owner then
    begin_sender(sender)
  end
  local owner, customer = sender.owner, sender.customer
  local checked_priority, counter, rules_version, terms_version, resets = decide(sender)
  local priority, steering = steering_of(sender, checked_priority)
  local number = queue[LAST_NUMBER] + 1
  queue[LAST_NUMBER] = number
  local seq = seq_of(number)
  local piece = piece_of(seq)
  write('HSET', DOCUMENTS .. piece, seq, pack(
    true, submitted.bytes, sender.delay > 0 and 'delayed' or 'ready', owner, 0, 0, ATTEMPTS_DEFAULT, sender.ready, sender.cost,
    false, false, false, false, false, false, id, sender.kind, now, rules_version, terms_version, sender.weight, resets,
    checked_priority, counter, key, submitted.digest
  ) .. steering)
  write('HSET', PAYLOADS .. piece, seq, submitted.payload)
  write('HSET', ids_key(id), id, seq)
  write('ZADD', prefix .. 'documents-of:' .. owner, seq, seq)
  if key then
    write('HSET', prefix .. 'keys', owner .. ':' .. key, seq)
  end
  customer.waiting, customer.documents = customer.waiting + 1, customer.documents + 1
  customer.bytes = customer.bytes + submitted.bytes
  log(now, 'submitted', owner, seq, 0, sender.inherited and sender.source)
  enqueue(sender, seq, priority)
  return {number, checked_priority, counter, now, rules_version, terms_version, id}
end

-- Return the receipt of a document that exists.
local function receipt_of(seq)
  local document = document_of(seq)
  local values = fixed(document)
  return {
    tonumber(seq), values.checked_priority, values.counter, values.checked, values.rules_version, values.terms_version, document.id,
  }
end

local receipts = {}
for index = 1, count do
  local holder = existing[index]
  if not holder then
    receipts[index] = insert(submission(index))
  else
    receipts[index] = receipts[holder] or receipt_of(holder)
  end
end
for _, addition in ipairs(families_added) do
  join_family(addition.sender.root, addition.documents)
end
if #feed > 2 then
  flush()
end
return receipts
