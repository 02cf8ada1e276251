-- Reprioritize: waiting documents of a customer get the priority that they would have now, by their counter or by another check.
--
-- ARGV: now, customer, after which number, how many documents at most (0: only look whether there is one), 1 for checks, how many
-- documents to examine. Returns how many have another priority, how many waited, the number of the last of those, 1 if more of
-- them wait, and the number after which to go on (0: all were examined).
if rules.frozen then
  return frozen_error()
end
local now, limit, is_recheck, left = now_of(ARGV[1]), tonumber(ARGV[4]), ARGV[5] == '1', tonumber(ARGV[6])
local owner, NO_CHECK = call('HGET', OWNERS, ARGV[2]), -1
if not owner then
  return {0, 0, 0, 0, 0}
end

-- Give a document the check of a new one.
local function recheck(document)
  local is_ready = document.state == 'ready'
  if is_ready then
    leave(lane_for(document), document.seq, document.ready)
    flush()
    begin_writes()
  end
  local note = check_again(document, now)
  if is_ready then
    join(lane_for(document), document.seq, document.ready)
  end
  log(now, 'rechecked', owner, document.seq, document.token, note)
end

-- Read the priority of a document again from its counter.
local function reread(document)
  local values, customer = fixed(document), customer_of(owner)
  local priority = checked_priority_of(policy_of(customer), values.counter, values.no_better_than)
  if priority ~= values.priority then
    change_priority(document, priority, 'null', now)
  end
end

local function reprioritize(document)
  local values = fixed(document)
  local before = values.priority
  if is_recheck and values.resets ~= NO_CHECK then
    recheck(document)
  elseif not is_recheck and not values.by_hand then
    reread(document)
  end
  if next(changed_documents) then
    flush()
    begin_writes()
  end
  return values.priority ~= before and 1 or 0
end

local changed, count, last, after, PAGE = 0, 0, 0, tonumber(ARGV[3]), 100
while left > 0 do
  local seqs = call('ZRANGEBYSCORE', prefix .. 'documents-of:' .. owner, '(' .. as_text(after), '+inf', 'LIMIT', 0, min(left, PAGE))
  load_documents(seqs)
  for _, seq in ipairs(seqs) do
    local document = document_of(seq)
    if COUNT_OF[document.state] == 'waiting' then
      if count == limit then
        return {changed, count, last, 1, after}
      end
      changed, count, last = changed + reprioritize(document), count + 1, tonumber(seq)
    end
    after = tonumber(seq)
  end
  if #seqs < min(left, PAGE) then
    return {changed, count, last, 0, 0}
  end
  left = left - #seqs
end
return {changed, count, last, 0, after}
