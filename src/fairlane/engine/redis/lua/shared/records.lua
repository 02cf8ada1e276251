-- Customers and documents: each is read once and decoded to a table; `flush` writes those that were changed.

local customers, documents = {}, {} -- by owner; by seq, false where there is none
local changed_customers, changed_documents = {}, {}

-- -- customers ------------------------------------------------------------------------------------------------------

local COUNTS_FORMAT, COUNTS_SIZE = '>I5I5I5I5I5', 25

-- Decode a customer. `stored` is the text of what follows its counts; false: one of these values was changed.
local function decode_customer(record)
  local waiting, running, done, failed, cancelled = struct.unpack(COUNTS_FORMAT, record)
  local stored = sub(record, COUNTS_SIZE + 1)
  local id, terms_version, terms, counter, updated, reset_at, resets = decode(stored)
  return {
    waiting = waiting, running = running, done = done, failed = failed, cancelled = cancelled, stored = stored,
    id = id, terms_version = terms_version, terms = terms,
    counter = counter, updated = updated, reset_at = reset_at, resets = resets,
  }
end

local function encode_customer(customer)
  local stored = customer.stored or pack(
    customer.id, customer.terms_version, customer.terms, customer.counter, customer.updated, customer.reset_at, customer.resets
  )
  return struct.pack(
    COUNTS_FORMAT, customer.waiting, customer.running, customer.done, customer.failed, customer.cancelled
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

-- Return whether a customer's lanes must not compete now.
local function is_blocked(customer)
  local terms = customer.terms
  return terms and (terms.paused or (terms.cap and customer.running >= terms.cap)) and true or false
end

-- -- documents ------------------------------------------------------------------------------------------------------

local CHANGING = 12 -- how many values of a document may change, the id with them

-- Decode the part of a document that may change; `fixed` decodes the rest, which begins behind `fixed_at`.
local function decode_document(seq, record)
  local fixed_at, state, owner, token, attempts, attempts_max, ready, cost, lease, ended, worker, reason, id =
    cmsgpack.unpack_limit(record, CHANGING, 0)
  return {
    seq = seq, record = record, fixed_at = fixed_at, state = state, owner = owner, token = token, attempts = attempts,
    attempts_max = attempts_max, ready = ready, cost = cost, lease = lease, ended = ended, worker = worker, reason = reason,
    id = id,
  }
end

local function encode_document(document)
  return pack(
    document.state, document.owner, document.token, document.attempts, document.attempts_max, document.ready, document.cost,
    document.lease, document.ended, document.worker, document.reason, document.id
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

-- Return the values of a document that never change; resets is -1 for one that inherited its check.
local function fixed(document)
  local values = document.fixed
  if not values then
    local kind, checked, rules_version, terms_version, weight, resets, priority, counter, key, digest =
      decode(sub(document.record, document.fixed_at + 1))
    values = {
      kind = kind, checked = checked, rules_version = rules_version, terms_version = terms_version, weight = weight,
      resets = resets, priority = priority, counter = counter, key = key, digest = digest,
    }
    document.fixed = values
  end
  return values
end

-- Return the row that readers of a document get.
local function snapshot(document)
  local values = fixed(document)
  return {
    document.id, tonumber(document.seq), customer_of(document.owner).id, values.kind, document.state, values.priority,
    values.counter, values.checked, values.rules_version, values.terms_version, document.cost, values.key,
    tonumber(document.ready), document.attempts, document.attempts_max, document.token, document.worker, document.lease,
    document.ended, document.reason,
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
