-- Customers and documents: each is read once and decoded to a table; `flush` writes those that were changed.

local customers, documents = {}, {} -- by owner; by seq, false where there is none
local changed_customers, changed_documents = {}, {}

-- -- customers ------------------------------------------------------------------------------------------------------

-- The first byte tells the layout. Those of form 5 and 4 know nothing of parts and of what attempts usually take, but hold the
-- time of the last reset; one of form 4, which began with a count that was never so large, does not count what is kept.
local COUNTS_FORMAT, COUNTS_SIZE, LAYOUT = '>BI5I5I5I5I5I5I7i7', 45, 2
local COUNTS_FORMAT_5, COUNTS_SIZE_5, LAYOUT_5 = '>BI5I5I5I5I5I5I7', 38, 1
local COUNTS_FORMAT_4, COUNTS_SIZE_4 = '>I5I5I5I5I5', 25

-- Decode a customer that was stored in form 5 or 4.
local function decode_older_customer(record)
  local waiting, running, done, failed, cancelled, documents_kept, bytes_kept, _
  local size = COUNTS_SIZE_4
  if string.byte(record) == LAYOUT_5 then
    _, waiting, running, done, failed, cancelled, documents_kept, bytes_kept = struct.unpack(COUNTS_FORMAT_5, record)
    size = COUNTS_SIZE_5
  else
    waiting, running, done, failed, cancelled = struct.unpack(COUNTS_FORMAT_4, record)
  end
  local id, terms_version, terms, counter, updated, _, resets = decode(sub(record, size + 1))
  return {
    waiting = waiting, running = running, done = done, failed = failed, cancelled = cancelled, stored = false,
    documents = documents_kept or 0, bytes = bytes_kept or 0, usual = NO_USUAL, id = id, terms_version = terms_version,
    terms = terms, counter = counter, updated = updated, resets = resets, parts = false,
  }
end

-- Decode a customer. `stored` is the text of what follows its counts; false: one of these values was changed.
local function decode_customer(record)
  if string.byte(record) ~= LAYOUT then
    return decode_older_customer(record)
  end
  local _, waiting, running, done, failed, cancelled, documents_kept, bytes_kept, usual = struct.unpack(COUNTS_FORMAT, record)
  local stored = sub(record, COUNTS_SIZE + 1)
  local id, terms_version, terms, counter, updated, resets, parts = decode(stored)
  return {
    waiting = waiting, running = running, done = done, failed = failed, cancelled = cancelled, stored = stored,
    documents = documents_kept, bytes = bytes_kept, usual = usual, id = id, terms_version = terms_version, terms = terms,
    counter = counter, updated = updated, resets = resets, parts = parts,
  }
end

local function encode_customer(customer)
  local stored = customer.stored or pack(
    customer.id, customer.terms_version, customer.terms, customer.counter, customer.updated, customer.resets, customer.parts
  )
  return struct.pack(
    COUNTS_FORMAT, LAYOUT, customer.waiting, customer.running, customer.done, customer.failed, customer.cancelled,
    customer.documents, customer.bytes, customer.usual
  ) .. stored
end

local function customer_of(owner)
  local customer = customers[owner]
  if not customer then
    customer = decode_customer(call('HGET', CUSTOMERS, owner))
    customers[owner] = customer
  end
  return customer
end

local function weight_of(customer)
  return customer.terms and customer.terms.weight or STEP
end

-- Return what keeps a customer's lanes from competing now, or false.
local function hold_of(customer)
  local terms = customer.terms
  if terms and terms.paused then
    return 'paused'
  end
  return terms and terms.cap and customer.running >= terms.cap and 'cap'
end

local function is_blocked(customer)
  return hold_of(customer) and true or false
end

-- -- documents ------------------------------------------------------------------------------------------------------

local CHANGING = 16 -- how many values of a document may change, a mark before them and the id with them

-- Decode the part that may change of a document that was stored in form 5 or 4. One of form 4 begins with its state: what it takes
-- is not counted yet, and its bytes are nil.
local function decode_older_document(seq, record)
  local fixed_at, bytes, state, owner, token, attempts, attempts_max, ready, cost, lease, ended, worker, reason, id =
    cmsgpack.unpack_limit(record, 13, 0)
  if type(bytes) == 'string' then
    bytes = nil
    fixed_at, state, owner, token, attempts, attempts_max, ready, cost, lease, ended, worker, reason, id =
      cmsgpack.unpack_limit(record, 12, 0)
  end
  return {
    seq = seq, record = record, fixed_at = fixed_at, bytes = bytes, state = state, owner = owner, token = token, attempts = attempts,
    attempts_max = attempts_max, ready = ready, cost = cost, lease = lease, ended = ended, worker = worker, reason = reason,
    claimed = false, paid = false, id = id,
  }
end

-- Decode the part of a document that may change; `fixed` decodes the rest, which begins behind `fixed_at`. The mark at its
-- beginning is true from form 6 on.
local function decode_document(seq, record)
  local fixed_at, mark, bytes, state, owner, token, attempts, attempts_max, ready, cost, lease, ended, worker, reason, claimed,
    paid, id = cmsgpack.unpack_limit(record, CHANGING, 0)
  if mark ~= true then
    return decode_older_document(seq, record)
  end
  return {
    seq = seq, record = record, fixed_at = fixed_at, bytes = bytes or nil, state = state, owner = owner, token = token,
    attempts = attempts, attempts_max = attempts_max, ready = ready, cost = cost, lease = lease, ended = ended, worker = worker,
    reason = reason, claimed = claimed, paid = paid, id = id,
  }
end

local function encode_document(document)
  return pack(
    true, document.bytes or false, document.state, document.owner, document.token, document.attempts, document.attempts_max,
    document.ready, document.cost, document.lease, document.ended, document.worker, document.reason, document.claimed,
    document.paid, document.id
  ) .. sub(document.record, document.fixed_at + 1)
end

-- Return a document, or nil.
local function document_of(seq)
  local document = documents[seq]
  if document == nil then
    local record = call('HGET', DOCUMENTS .. piece_of(seq), seq)
    document = record and decode_document(seq, record) or false
    documents[seq] = document
  end
  return document or nil
end

local function document_by_id(id)
  local seq = call('HGET', ids_key(id), id)
  return seq and document_of(seq)
end

-- Return the values of a document that rarely change: when its customer retries it, or its priority is set. `resets` is -1 for one
-- that inherited its check. From the root on they are stored only where they say something.
local function fixed(document)
  local values = document.fixed
  if not values then
    local kind, checked, rules_version, terms_version, weight, resets, checked_priority, counter, key, digest, root, retries,
      submitted, priority, by_hand, no_better_than, whole, parts_from, parts, parts_left =
        decode(sub(document.record, document.fixed_at + 1))
    values = {
      kind = kind, checked = checked, rules_version = rules_version, terms_version = terms_version, weight = weight,
      resets = resets, checked_priority = checked_priority, counter = counter, key = key, digest = digest, root = root or false,
      retries = retries or 0, submitted = submitted or checked, priority = priority or checked_priority,
      by_hand = by_hand or false, no_better_than = no_better_than or false, whole = whole or false, parts_from = parts_from or 0,
      parts = parts or 0, parts_left = parts_left or 0,
    }
    document.fixed = values
  end
  return values
end

-- Return the priority and the kind of a document: of its lane.
local function place_of(document)
  local values = document.fixed
  if values then
    return values.priority, values.kind
  end
  local kind, _, _, _, _, _, checked_priority, _, _, _, _, _, _, priority = decode(sub(document.record, document.fixed_at + 1))
  return priority or checked_priority, kind
end

-- Replace the values that `fixed` returned.
local function refix(document)
  local values = document.fixed
  document.fixed_at, document.record = 0, pack(
    values.kind, values.checked, values.rules_version, values.terms_version, values.weight, values.resets,
    values.checked_priority, values.counter, values.key, values.digest, values.root, values.retries, values.submitted,
    values.priority, values.by_hand, values.no_better_than, values.whole, values.parts_from, values.parts, values.parts_left
  )
end

-- Return the seqs that the parts of a document got when it was split last.
local function part_seqs(document)
  local values, seqs = fixed(document), {}
  for number = values.parts_from, values.parts_from + values.parts - 1 do
    seqs[#seqs + 1] = seq_of(number)
  end
  return seqs
end

-- Return the row that readers of a document get.
local function snapshot(document)
  local values = fixed(document)
  return {
    document.id, tonumber(document.seq), customer_of(document.owner).id, values.kind, document.state, values.checked_priority,
    values.counter, values.checked, values.rules_version, values.terms_version, document.cost, values.key,
    tonumber(document.ready), document.attempts, document.attempts_max, document.token, document.worker, document.lease,
    document.ended, document.reason, values.priority, values.no_better_than, values.by_hand and 1 or 0, document.claimed,
    document.bytes or 0, values.retries, values.submitted, values.whole, values.parts, values.parts_left,
  }
end

-- Decode a line of the feed; false for one that a forgotten customer left.
local function decode_line(text)
  if text == '' then
    return false
  end
  local at, what, note, call_id_then, owner, seq, token = decode(text)
  return {at = at, what = what, note = note, call_id = call_id_then, owner = owner, seq = seq, token = token}
end

-- -- reading many ---------------------------------------------------------------------------------------------------

-- Return the values of many fields of a hash, false where there is none.
local function read_many(key, fields)
  local values = {}
  for first = 1, #fields, ARGUMENTS_MAX do
    for at, value in ipairs(call('HMGET', key, unpack(fields, first, min(first + ARGUMENTS_MAX - 1, #fields)))) do
      values[first + at - 1] = value
    end
  end
  return values
end

-- Return the values of many seqs in a hash that is split into pieces, false where there is none.
local function read_seqs(hash, seqs)
  local pieces, values = {}, {}
  for at, seq in ipairs(seqs) do
    local name = piece_of(seq)
    local piece = pieces[name]
    if not piece then
      piece = {seqs = {}, positions = {}}
      pieces[name] = piece
    end
    local size = #piece.seqs + 1
    piece.seqs[size], piece.positions[size] = seq, at
  end
  for name, piece in pairs(pieces) do
    for at, value in ipairs(read_many(hash .. name, piece.seqs)) do
      values[piece.positions[at]] = value
    end
  end
  return values
end

-- Read many documents with few commands; `document_of` finds them afterwards.
local function load_documents(seqs)
  for at, record in ipairs(read_seqs(DOCUMENTS, seqs)) do
    local seq = seqs[at]
    if not documents[seq] then
      documents[seq] = record and decode_document(seq, record)
    end
  end
end

-- Read many customers with few commands; `customer_of` finds them afterwards.
local function load_customers(owners)
  for at, record in ipairs(read_many(CUSTOMERS, owners)) do
    local owner = owners[at]
    customers[owner] = customers[owner] or decode_customer(record)
  end
end

-- Read the customers of documents that were loaded.
local function load_customers_of(seqs)
  local owners, seen = {}, {}
  for _, seq in ipairs(seqs) do
    local owner = documents[seq] and documents[seq].owner
    if owner and not seen[owner] then
      seen[owner], owners[#owners + 1] = true, owner
    end
  end
  load_customers(owners)
end
