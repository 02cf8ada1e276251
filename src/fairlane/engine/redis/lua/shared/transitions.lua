-- Transitions: documents change their state, and with it their place in indexes and their customer's counts.

local COUNT_OF = {
  ready = 'waiting', delayed = 'waiting', running = 'running', done = 'done', failed = 'failed', cancelled = 'cancelled',
}

local function change(document)
  changed_documents[document.seq] = document
end

-- A document waits from a time on.
local function queue_up(document, ready, is_delayed)
  document.state, document.ready = is_delayed and 'delayed' or 'ready', as_text(ready)
  if is_delayed then
    write('ZADD', DELAYED, document.ready, document.seq)
    due_first = min(due_first or ready, ready)
  else
    join(lane_for(document), document.seq, document.ready)
  end
end

-- Count one running document of a kind less: it may compete again.
local function stop_running(document, now)
  local kind = limited_kind(fixed(document).kind)
  if kind then
    kind.running, changed_kinds[kind.name] = kind.running - 1, kind
    update_kind(kind, now)
  end
end

-- Count a document under another state, nil: no more.
local function move_count(document, state, now)
  local owner = document.owner
  local customer = customer_of(owner)
  local was_blocked, before, after = is_blocked(customer), COUNT_OF[document.state], COUNT_OF[state or '']
  customer[before] = customer[before] - 1
  if after then
    customer[after] = customer[after] + 1
  end
  changed_customers[owner] = true
  update_blocked(owner, was_blocked)
  if before == 'running' then
    stop_running(document, now)
  end
end

-- Remove a document from the index of its state.
local function leave_state(document)
  local state, seq = document.state, document.seq
  if state == 'running' then
    remove('ZREM', LEASES, seq)
  elseif state == 'delayed' then
    remove('ZREM', DELAYED, seq)
  elseif state == 'ready' then
    leave(lane_for(document), seq, document.ready)
  else
    remove('ZREM', ENDINGS, seq)
    if state ~= 'done' then
      remove('ZREM', prefix .. state, seq)
    end
  end
end

-- A document ends.
local function finish(document, state, now, reason)
  local seq = document.seq
  leave_state(document)
  move_count(document, state, now)
  document.state, document.ended, document.lease, document.reason = state, now, false, reason or false
  write('ZADD', ENDINGS, as_text(now), seq)
  if state ~= 'done' then
    write('ZADD', prefix .. state, seq, seq)
  end
  change(document)
  log(now, state, document.owner, seq, document.token, reason)
end

-- A running document goes back to wait.
local function requeue(document, what, now, after, note)
  leave_state(document)
  move_count(document, 'ready', now)
  document.lease = false
  queue_up(document, now + after, after > 0)
  change(document)
  log(now, what, document.owner, document.seq, document.token, note)
end

-- Move a waiting document to the lane of another priority; `by` is JSON.
local function change_priority(document, priority, by, now)
  local values, is_ready = fixed(document), document.state == 'ready'
  local note = format('{"from": %d, "to": %d, "by": ', values.priority, priority) .. by .. '}'
  if is_ready then
    leave(lane_for(document), document.seq, document.ready)
    flush()
    begin_writes()
  end
  values.priority = priority
  refix(document)
  change(document)
  if is_ready then
    join(lane_for(document), document.seq, document.ready)
  end
  log(now, 'prioritized', document.owner, document.seq, document.token, note)
end

-- Give a document the check of a new one, which keeps a priority that was set by hand; returns the feed's note. The document must
-- not be in a lane.
local function check_again(document, now)
  local NOTE = '"counter": %d, "priority": %d, "policy": %d, "terms": %d'
  local values, customer = fixed(document), customer_of(document.owner)
  local policy, weight = policy_of(customer), weight_of(customer)
  local before = format(NOTE, values.counter, values.checked_priority, values.rules_version, values.terms_version)
  check(policy, customer, now, step_of(document.cost, weight))
  changed_customers[document.owner] = true
  values.counter, values.checked = customer.counter, now
  values.checked_priority = checked_priority_of(policy, customer.counter, values.no_better_than)
  values.rules_version, values.terms_version = rules.version, customer.terms_version
  values.weight, values.resets = weight, customer.resets
  if not values.by_hand then
    values.priority = values.checked_priority
  end
  refix(document)
  change(document)
  local after = format(NOTE, values.counter, values.checked_priority, values.rules_version, values.terms_version)
  return format('{"cost": %d, ', document.cost) .. after .. ', "before": {' .. before .. '}}'
end

-- Return the keys of a document's failed attempts, up to that of a token.
local function attempts_of(id, token)
  local last = token and '[' .. id .. format(':%016d', token) or '(' .. id .. ';'
  return call('ZRANGEBYLEX', prefix .. 'record-keys:attempts', '(' .. id .. ':', last)
end

local function remove_attempts(keys)
  for _, key in ipairs(keys) do
    remove('HDEL', prefix .. 'records:attempts', key)
    remove('ZREM', prefix .. 'record-keys:attempts', key)
  end
end

-- Erase a document, its key, its progress and the details of its attempts.
local function erase(document)
  local seq, id, owner = document.seq, document.id, document.owner
  local key = fixed(document).key
  if document.bytes then
    keep(document, -1, -document.bytes)
  end
  leave_family(root_of(document))
  for _, hash in ipairs({DOCUMENTS, PAYLOADS, RESULTS}) do
    remove('HDEL', hash .. piece_of(seq), seq)
  end
  remove('HDEL', ids_key(id), id)
  remove('HDEL', prefix .. 'records:progress', id)
  remove('ZREM', prefix .. 'record-keys:progress', id)
  remove_attempts(attempts_of(id))
  remove('ZREM', prefix .. 'documents-of:' .. owner, seq)
  if key then
    remove('HDEL', prefix .. 'keys', owner .. ':' .. key)
  end
end

-- Return what the caller needs to remove the files of a document that was erased.
local function removed_row(document)
  return {document.id, customer_of(document.owner).id, document.token}
end
