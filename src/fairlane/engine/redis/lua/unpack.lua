-- Unpack: write rows that were packed in another store; the same rows again change nothing. ARGV: part, rows as JSON.

local rows = cjson.decode(ARGV[2])

-- Return a value, false for JSON's null.
local function value_of(value)
  return value ~= cjson.null and value
end

-- Replace the queue's own counters and rules. The feed stays behind: it goes on after the last line there was.
-- A row: JSON of the rules, version, clocks, dispatches of all kinds, those of sets of kinds by their JSON, what attempts usually
-- take, busy time, documents taken by priority, until when the busy time is counted, last number, last change, last record, then
-- interval, reset, dispatch, turns, open turns, nothing or f and why it is frozen, five limits, depths.
local function unpack_queue(row)
  queue[DISPATCHES], queue[USUAL], queue[BUSY], queue[TICKED] = row[4], value_of(row[6]) or NO_USUAL, row[7], row[9]
  queue[LAST_NUMBER], queue[LAST_RECORD] = row[10], row[12]
  queue[LAST_CHANGE], queue[FEED_FLOOR], queue[FEED_FIRST] = row[11], row[11], row[11] + 1
  for priority = 1, 9 do
    queue[CLOCK + priority], queue[TAKEN + priority] = row[3][priority], row[8][priority]
  end
  for kind_set, count in pairs(row[5]) do
    write('HSET', prefix .. 'dispatches', kind_set, as_text(count))
  end
  rules = decode_rules(
    row[2], row[13], row[14], row[15], row[16], row[17], row[18] ~= '' and sub(row[18], 2), unpack(row, 19)
  )
  store_rules()
  local version = as_text(row[2])
  for _, other in ipairs(call('HKEYS', prefix .. 'rules')) do
    if other ~= version then
      remove('HDEL', prefix .. 'rules', other)
    end
  end
  write('HSET', prefix .. 'rules', version, row[1])
end

-- A row: name, JSON of the limit, its version, running at once, rate, burst, tokens, since when, clocks. It is at no limit until
-- the next claim.
local function unpack_kind(row)
  local kind = kind_of(row[1])
  kind.clocks, changed_kinds[kind.name] = row[9], kind
  if row[3] > 0 then
    begin_limit(kind)
    kind.json, kind.version, kind.running_max, kind.rate, kind.burst =
      row[2], row[3], row[4] ~= '' and row[4], row[5] ~= '' and row[5], row[6]
    kind.tokens, kind.tokens_at = value_of(row[7]), row[8]
  end
end

-- A row: id, counter, last update, resets, parts, done, failed, cancelled, what attempts usually take, version of terms, their JSON,
-- then weight, cap, paused, interval, reset, five limits, has depths, depths.
local function unpack_customer(row)
  local owner = call('HGET', OWNERS, row[1]) or new_customer(row[1])
  local customer = customer_of(owner)
  local was_blocked = is_blocked(customer)
  customer.counter, customer.updated, customer.resets, customer.parts = row[2], value_of(row[3]), row[4], #row[5] > 0 and row[5]
  customer.done, customer.failed, customer.cancelled, customer.usual = row[6], row[7], row[8], value_of(row[9]) or NO_USUAL
  customer.terms_version, customer.terms, customer.stored = row[10], false, false
  if row[10] > 0 then
    customer.terms = {
      weight = row[12], cap = row[13] ~= '' and row[13], paused = row[14] == 1, interval = row[15] ~= '' and row[15],
      reset = row[16] ~= '' and row[16], limits = decode_limits(unpack(row, 17, 21)),
      depths = row[22] == 1 and {unpack(row, 23)}, json = row[11],
    }
    write('HSET', prefix .. 'terms-of:' .. owner, row[10], row[11])
  end
  changed_customers[owner] = true
  update_blocked(owner, was_blocked)
end

-- Count one more document of a family that comes from another store.
local function unpack_family(root, descendants)
  local family = family_of(root)
  families[root] = {descendants = descendants, kept = family and family.kept + 1 or 1}
  write_family(root)
end

-- Write what is stored of a document, apart from the index of its state. A row: as in `snapshot`, then digest, weight,
-- resets, payload, result, root, descendants, number of the first part.
local function write_document(row, seq, owner)
  local id, key, result, piece = row[1], value_of(row[12]), value_of(row[35]), piece_of(seq)
  local root = value_of(row[36]) and seq_of(row[36])
  write('HSET', DOCUMENTS .. piece, seq, pack(
    true, row[25], row[5], owner, row[16], row[14], row[15], as_text(row[13]), row[11], value_of(row[18]), value_of(row[19]),
    value_of(row[17]), value_of(row[20]), value_of(row[24]), false, id,
    row[4], row[8], row[9], row[10], row[32], row[33], row[6], row[7], key, value_of(row[31]), root, row[26], row[27],
    row[21], row[23] == 1, value_of(row[22]), value_of(row[28]), row[38], row[29], row[30]
  ))
  write('HSET', PAYLOADS .. piece, seq, row[34])
  write('HSET', ids_key(id), id, seq)
  write('ZADD', prefix .. 'documents-of:' .. owner, seq, seq)
  if result then
    write('HSET', RESULTS .. piece, seq, result)
  end
  if key then
    write('HSET', prefix .. 'keys', owner .. ':' .. key, seq)
  end
  if row[37] > 0 then
    unpack_family(root or seq, row[37])
  end
end

local function unpack_document(row)
  local seq, owner, state, ready = seq_of(row[2]), call('HGET', OWNERS, row[3]), row[5], as_text(row[13])
  if document_of(seq) then
    return
  end
  write_document(row, seq, owner)
  keep({owner = owner}, 1, row[25])
  if COUNT_OF[state] == 'waiting' then
    local customer = customer_of(owner)
    customer.waiting = customer.waiting + 1
  end
  if state == 'ready' then
    join(lane_of(owner, row[21], row[4]), seq, ready)
  elseif state == 'delayed' then
    write('ZADD', DELAYED, ready, seq)
    due_first = min(due_first or row[13], row[13])
  else
    write('ZADD', ENDINGS, as_text(row[19]), seq)
    if state ~= 'done' then
      write('ZADD', prefix .. state, seq, seq)
    end
  end
end

-- A row: customer, kind, priority, start tag, cross tag, finish tags. A lane competes if it did where it comes from.
local function unpack_lane(row)
  local lane = lane_of(call('HGET', OWNERS, row[1]), row[3], row[2])
  lane.start, lane.cross, lane.finish, lane.cross_finish = lane.head and value_of(row[4]), row[5], row[6], row[7]
end

-- A row: group, key, value, version.
local function unpack_record(row)
  write('HSET', prefix .. 'records:' .. row[1], row[2], pack(row[4], row[3]))
  write('ZADD', prefix .. 'record-keys:' .. row[1], 0, row[2])
  write('ZADD', prefix .. 'groups', 0, row[1])
end

local parts = {
  queue = unpack_queue, kinds = unpack_kind, customers = unpack_customer, documents = unpack_document, lanes = unpack_lane,
  records = unpack_record,
}
for _, row in ipairs(rows) do
  parts[ARGV[1]](row)
end
flush()
if ARGV[1] == 'queue' then
  call('UNLINK', FEED, prefix .. 'forgotten', prefix .. 'swept')
end
return 0
