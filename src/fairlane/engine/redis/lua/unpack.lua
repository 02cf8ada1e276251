-- Unpack: write rows that were packed in another store; the same rows again change nothing. ARGV: part, rows as JSON.

local rows = cjson.decode(ARGV[2])

-- Return a value, false for JSON's null.
local function value_of(value)
  return value ~= cjson.null and value
end

-- Replace the queue's own counters and rules. The feed stays behind: it goes on after the last line there was.
-- A row: JSON of the rules, version, clocks, dispatches, last number, last change, last record, then interval, reset, dispatch,
-- open turns, nothing or f and why it is frozen, five limits, depths.
local function unpack_queue(row)
  queue[DISPATCHES], queue[LAST_NUMBER], queue[LAST_RECORD] = row[4], row[5], row[7]
  queue[LAST_CHANGE], queue[FEED_FLOOR], queue[FEED_FIRST] = row[6], row[6], row[6] + 1
  for priority = 1, 9 do
    queue[CLOCK + priority] = row[3][priority]
  end
  rules = decode_rules(row[2], row[8], row[9], row[10], row[11], row[12] ~= '' and sub(row[12], 2), unpack(row, 13))
  store_rules()
  local version = as_text(row[2])
  for _, other in ipairs(call('HKEYS', prefix .. 'rules')) do
    if other ~= version then
      remove('HDEL', prefix .. 'rules', other)
    end
  end
  write('HSET', prefix .. 'rules', version, row[1])
end

-- A row: id, counter, last update, last reset, resets, done, failed, cancelled, version of terms, their JSON, then weight, cap,
-- paused, interval, reset, five limits, has depths, depths.
local function unpack_customer(row)
  local owner = call('HGET', OWNERS, row[1]) or new_customer(row[1])
  local customer = customer_of(owner)
  local was_blocked = is_blocked(customer)
  customer.counter, customer.updated, customer.reset_at, customer.resets = row[2], value_of(row[3]), value_of(row[4]), row[5]
  customer.done, customer.failed, customer.cancelled = row[6], row[7], row[8]
  customer.terms_version, customer.terms, customer.stored = row[9], false, false
  if row[9] > 0 then
    customer.terms = {
      weight = row[11], cap = row[12] ~= '' and row[12], paused = row[13] == 1, interval = row[14] ~= '' and row[14],
      reset = row[15] ~= '' and row[15], limits = decode_limits(unpack(row, 16, 20)),
      depths = row[21] == 1 and {unpack(row, 22)}, json = row[10],
    }
    write('HSET', prefix .. 'terms-of:' .. owner, row[9], row[10])
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
-- resets, payload, result, root, descendants.
local function write_document(row, seq, owner)
  local id, key, result, piece = row[1], value_of(row[12]), value_of(row[28]), piece_of(seq)
  local root = value_of(row[29]) and seq_of(row[29])
  write('HSET', DOCUMENTS .. piece, seq, pack(
    row[21], row[5], owner, row[16], row[14], row[15], as_text(row[13]), row[11], value_of(row[18]), value_of(row[19]),
    value_of(row[17]), value_of(row[20]), id,
    row[4], row[8], row[9], row[10], row[25], row[26], row[6], row[7], key, value_of(row[24]), root, row[22], row[23]
  ))
  write('HSET', PAYLOADS .. piece, seq, row[27])
  write('HSET', ids_key(id), id, seq)
  write('ZADD', prefix .. 'documents-of:' .. owner, seq, seq)
  if result then
    write('HSET', RESULTS .. piece, seq, result)
  end
  if key then
    write('HSET', prefix .. 'keys', owner .. ':' .. key, seq)
  end
  if row[30] > 0 then
    unpack_family(root or seq, row[30])
  end
end

local function unpack_document(row)
  local seq, owner, state, ready = seq_of(row[2]), call('HGET', OWNERS, row[3]), row[5], as_text(row[13])
  if document_of(seq) then
    return
  end
  write_document(row, seq, owner)
  keep({owner = owner}, 1, row[21])
  if COUNT_OF[state] == 'waiting' then
    local customer = customer_of(owner)
    customer.waiting = customer.waiting + 1
  end
  if state == 'ready' then
    join(lane_of(owner, row[6], row[4]), seq, ready)
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

-- A row: customer, kind, priority, start tag, finish tag. A lane competes if it did where it comes from.
local function unpack_lane(row)
  local lane = lane_of(call('HGET', OWNERS, row[1]), row[3], row[2])
  lane.start, lane.finish = lane.head and value_of(row[4]), row[5]
end

-- A row: group, key, value, version.
local function unpack_record(row)
  write('HSET', prefix .. 'records:' .. row[1], row[2], pack(row[4], row[3]))
  write('ZADD', prefix .. 'record-keys:' .. row[1], 0, row[2])
  write('ZADD', prefix .. 'groups', 0, row[1])
end

local parts = {
  queue = unpack_queue, customers = unpack_customer, documents = unpack_document, lanes = unpack_lane, records = unpack_record,
}
for _, row in ipairs(rows) do
  parts[ARGV[1]](row)
end
flush()
if ARGV[1] == 'queue' then
  call('UNLINK', FEED, prefix .. 'forgotten', prefix .. 'swept')
end
return 0
