-- Settle: each claim ends with its outcome; returns which of the claims were lost, for which nothing is changed.
--
-- ARGV: now, again, the call's own id, count of outcomes, eight values an outcome (its name; result, reason or payload; delay, cost,
-- details or nothing, bytes of the files it wrote, the kind as which it goes on, its parts as JSON or nothing), then four values a
-- settlement: seq, id, token and the index of its outcome.
-- `again` is 1 when this call was sent before and its reply was lost: what it did then is not reported as lost.
local now, is_again = now_of(ARGV[1]), ARGV[2] == '1'
local SIZE, OUTCOME_SIZE, LINES_BACK, ATTEMPTS_KEPT = 4, 8, 20000, 10
local first_outcome, first_settlement = 5, 5 + OUTCOME_SIZE * tonumber(ARGV[4])
call_id = ARGV[3]

local seqs = {}
for at = first_settlement, #ARGV, SIZE do
  seqs[#seqs + 1] = ARGV[at]
end
load_documents(seqs)
load_customers_of(seqs)

local paid = {}
for _, seq in ipairs(seqs) do
  local document = document_of(seq)
  if document and document.paid and document.state == 'running' then -- else its lane may not exist yet
    paid[#paid + 1] = document
  end
end
load_lanes_for(paid)

-- Return the claims that this call ended when it was sent before, from the last lines of the feed.
local function read_settled()
  local settled = {}
  for _, text in ipairs(is_again and call('LRANGE', FEED, -LINES_BACK, -1) or {}) do
    local line = decode_line(text)
    if line and line.call_id == call_id and line.what ~= 'corrected' then
      settled[line.seq .. ':' .. line.token] = true
    end
  end
  return settled
end

local function correct_cost(document, cost)
  if cost == document.cost then
    return
  end
  local owner, values = document.owner, fixed(document)
  local customer, more = customer_of(owner), step_of(cost, values.weight) - step_of(document.cost, values.weight)
  correct(policy_of(customer), customer, values.checked, values.resets, more)
  changed_customers[owner] = true
  log(now, 'corrected', owner, document.seq, document.token, format('%d %d', document.cost, cost))
  document.cost = cost
end

-- Return what attempts usually take after one more has ended; a share is a power of two, by which doubles divide exactly.
local function next_usual(usual, taken, share)
  return usual == NO_USUAL and taken or usual + math.floor((taken - usual) / share)
end

-- Charge the lane of an attempt that ends what it took more than was paid, and note what attempts usually take.
local function end_attempt(document)
  if not document.claimed then -- by a program of form 5
    return
  end
  local customer, taken = customer_of(document.owner), max(0, now - document.claimed) * 1000
  if document.paid and rules.turns == 'time' and not is_strict then
    true_up(lane_for(document), max(1, divide(taken, weight_of(customer))) - document.paid)
  end
  customer.usual = next_usual(customer.usual, taken, 8)
  queue[USUAL] = next_usual(queue[USUAL], taken, 64)
end

-- Keep the details of an attempt, and those of the claims shortly before it.
local function keep_details(document, details)
  if document.token > ATTEMPTS_KEPT then
    remove_attempts(attempts_of(document.id, document.token - ATTEMPTS_KEPT))
  end
  write_record('attempts', document.id .. format(':%016d', document.token), details)
end

local splits = {} -- documents that are split in this call, with their parts

-- End a document's attempt with the outcome at a position of ARGV.
local function settle(document, at)
  local outcome, text, delay, cost = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local attempts, attempts_max = document.attempts, document.attempts_max
  if cost then
    correct_cost(document, cost)
  end
  end_attempt(document)
  if outcome == 'done' then
    if text ~= '' then
      write('HSET', RESULTS .. piece_of(document.seq), document.seq, sub(text, 2))
    end
    local size = max(0, #text - 1) + tonumber(ARGV[at + 5])
    if document.bytes and size > 0 then
      document.bytes = document.bytes + size
      keep(document, 0, size)
    end
    finish(document, 'done', now)
  elseif outcome == 'continued' then
    local parts = ARGV[at + 7] ~= '' and cjson.decode(ARGV[at + 7]) or {}
    go_on(document, ARGV[at + 6], text, tonumber(ARGV[at + 5]), #parts, now)
    splits[#splits + 1] = #parts > 0 and {document = document, parts = parts} or nil
  elseif outcome == 'failed' then
    finish(document, 'failed', now, text)
  elseif outcome == 'released' then
    document.attempts = attempts - 1
    requeue(document, 'released', now, 0)
  elseif outcome == 'postponed' then
    document.attempts = attempts - 1
    requeue(document, 'postponed', now, delay, text)
  elseif attempts >= attempts_max then
    finish(document, 'failed', now, format('attempt %d of %d failed: ', attempts, attempts_max) .. text)
  else
    requeue(document, 'retried', now, delay, text)
  end
  if ARGV[at + 4] ~= '' then
    keep_details(document, ARGV[at + 4])
  end
end

local settled_before, settled, lost, ended = read_settled(), {}, {}, {}
for index, seq in ipairs(seqs) do
  local at = first_settlement + (index - 1) * SIZE
  local document, token = document_of(seq), tonumber(ARGV[at + 2])
  local is_known = document and document.id == ARGV[at + 1]
  if is_known and document.token == token and document.state == 'running' then
    settle(document, first_outcome + OUTCOME_SIZE * (ARGV[at + 3] - 1))
    settled[seq], ended[#ended + 1] = true, document
  elseif is_known and not settled[seq] and settled_before[seq .. ':' .. token] then
    settled[seq] = true -- a second settlement of the same claim was lost the first time too
  else
    lost[#lost + 1] = index
  end
end
for _, split in ipairs(splits) do
  add_parts(split.document, split.parts, now)
end
end_families(ended, now)
if #feed > 2 then
  flush()
end
return lost
