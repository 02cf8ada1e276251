-- Parts of documents that were split: how they begin, what their end does to their whole, and its end to them.

local NEVER = 253402300799999 -- a document that waits for its parts is delayed until then

local function is_ended(document)
  return COUNT_OF[document.state] == document.state and document.state ~= 'running'
end

-- Let a document wait until its parts are done: that is never due, so nobody is woken for it.
local function wait_for_parts(document)
  document.state, document.ready = 'delayed', as_text(NEVER)
  write('ZADD', DELAYED, document.ready, document.seq)
end

-- A running document goes on as another kind, after its parts if it has any.
local function go_on(document, kind, payload, file_bytes, parts_count, now)
  local values, key = fixed(document), PAYLOADS .. piece_of(document.seq)
  leave_state(document)
  move_count(document, 'ready', now)
  if document.bytes then
    local added = #payload - call('HSTRLEN', key, document.seq) + file_bytes
    document.bytes = document.bytes + added
    keep(document, 0, added)
  end
  write('HSET', key, document.seq, payload)
  values.kind, values.parts, values.parts_left, values.parts_from, document.lane = kind, parts_count, parts_count, 0, nil
  refix(document)
  document.attempts, document.lease = 0, false
  if parts_count > 0 then
    wait_for_parts(document)
  else
    queue_up(document, now, false)
  end
  change(document)
  log(now, parts_count > 0 and 'split' or 'continued', document.owner, document.seq, document.token, kind)
end

-- Insert a part, made from its whole. A part: id, kind, payload, cost, delay, bytes of its files.
local function insert_part(whole, part, now)
  local id, kind, payload, cost, delay, bytes = part[1], part[2], part[3], part[4], part[5], #part[3] + part[6]
  local values, owner, customer = fixed(whole), whole.owner, customer_of(whole.owner)
  queue[LAST_NUMBER] = queue[LAST_NUMBER] + 1
  local seq, ready = seq_of(queue[LAST_NUMBER]), as_text(now + delay)
  write('HSET', DOCUMENTS .. piece_of(seq), seq, pack(
    true, bytes, delay > 0 and 'delayed' or 'ready', owner, 0, 0, ATTEMPTS_DEFAULT, ready, cost, false, false, false, false, false,
    false, id, kind, now, values.rules_version, values.terms_version, weight_of(customer), -1, values.checked_priority,
    values.counter, false, false, root_of(whole), 0, now, values.priority, values.by_hand, values.no_better_than, whole.id, 0, 0, 0
  ))
  write('HSET', PAYLOADS .. piece_of(seq), seq, payload)
  write('HSET', ids_key(id), id, seq)
  write('ZADD', prefix .. 'documents-of:' .. owner, seq, seq)
  customer.waiting, customer.documents, customer.bytes = customer.waiting + 1, customer.documents + 1, customer.bytes + bytes
  changed_customers[owner] = true
  log(now, 'submitted', owner, seq, 0, whole.id)
  if delay > 0 then
    write('ZADD', DELAYED, ready, seq)
    due_first = min(due_first or now + delay, now + delay)
  else
    join(lane_of(owner, values.priority, kind), seq, ready)
  end
end

-- Insert the parts of a document that was split.
local function add_parts(whole, parts, now)
  fixed(whole).parts_from = queue[LAST_NUMBER] + 1
  refix(whole)
  change(whole)
  for _, part in ipairs(parts) do
    insert_part(whole, part, now)
  end
  join_family(root_of(whole), #parts)
end

-- Return the parts of a document that are not done.
local function parts_left_of(document)
  local seqs, parts = part_seqs(document), {}
  load_documents(seqs)
  for _, seq in ipairs(seqs) do
    local part = document_of(seq)
    if part and part.state ~= 'done' and fixed(part).whole == document.id then
      parts[#parts + 1] = part
    end
  end
  return parts
end

local function count_part(whole, now)
  local values = fixed(whole)
  values.parts_left = values.parts_left - 1
  refix(whole)
  if values.parts_left == 0 and whole.state == 'delayed' then
    leave_state(whole)
    queue_up(whole, now, false)
    log(now, 'joined', whole.owner, whole.seq, whole.token)
  end
  change(whole)
end

-- Do what the end of parts does to their wholes, and the end of wholes to their parts, in order. A document that joins its lane
-- must be stored before another one leaves it.
local function end_families(ended, now)
  for _, document in ipairs(ended) do -- which grows
    local values = is_ended(document) and fixed(document)
    local whole = values and values.whole and document_by_id(values.whole)
    if whole and fixed(whole).parts_left > 0 then
      if document.state == 'done' then
        count_part(whole, now)
      elseif whole.state == 'delayed' then
        finish(whole, document.state, now,
          document.state == 'failed' and 'its part ' .. document.id .. ' failed: ' .. document.reason or nil)
        ended[#ended + 1] = whole
      end
    end
    if values and values.parts_left > 0 then
      flush()
      begin_writes()
      for _, part in ipairs(parts_left_of(document)) do
        if not is_ended(part) then
          finish(part, 'cancelled', now)
          ended[#ended + 1] = part
        end
      end
    end
  end
end
