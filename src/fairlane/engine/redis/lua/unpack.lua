-- Unpack: rows that were packed in another store; the same rows again change nothing. ARGV: part, rows as JSON.

local rows = cjson.decode(ARGV[2])

-- A value, false where there is none.
local function given(value)
  return value ~= cjson.null and value
end

-- Where the queue's own counters stand, and its rules. The feed stays behind: it goes on after the last line there was.
-- A row: JSON of the rules, version, clocks, dispatches, last number, last change, last record, then interval, reset, dispatch,
-- every, nothing or f and why it is frozen, depths.
local function unpack_queue(row)
  rules[VERSION], queue[DISPATCHES], queue[LAST_NUMBER] = row[2], row[4], row[5]
  queue[LAST_CHANGE], queue[FEED_FLOOR], queue[FEED_FIRST], queue[LAST_RECORD] = row[6], row[6], row[6] + 1, row[7]
  for priority = 1, 9 do
    queue[CLOCK + priority] = row[3][priority]
  end
  rules[INTERVAL], rules[RESET], rules[DISPATCH], rules[EVERY] = row[8], row[9], row[10], row[11]
  rules[FROZEN] = row[12] ~= '' and sub(row[12], 2)
  for place = #rules, DEPTH, -1 do
    rules[place] = nil
  end
  for place = 13, #row do
    rules[DEPTH + place - 13] = row[place]
  end
  packed_rules = pack(unpack(rules))
  local version = as_text(row[2])
  for _, other in ipairs(call('HKEYS', prefix .. 'rules')) do
    if other ~= version then
      drop('HDEL', prefix .. 'rules', other)
    end
  end
  add('HSET', prefix .. 'rules', version, row[1])
end

-- A row: id, counter, last update, last reset, resets, done, failed, cancelled, version of terms, their JSON, then weight, cap,
-- paused, interval, reset, has depths, depths.
local function unpack_customer(row)
  local owner = call('HGET', NUMBERS, row[1]) or new_customer(row[1])
  local customer = customer_of(owner)
  local was_blocked = is_blocked(customer)
  customer[COUNTER], customer[UPDATED], customer[RESET_AT], customer[RESETS] = row[2], given(row[3]), given(row[4]), row[5]
  customer[DONE], customer[FAILED], customer[CANCELLED] = row[6], row[7], row[8]
  customer[TERMS_VERSION], customer[TERMS], customer[PACKED] = row[9], false, false
  if row[9] > 0 then
    local terms = {
      weight = row[11], cap = row[12] ~= '' and row[12], paused = row[13] == 1, interval = row[14] ~= '' and row[14],
      reset = row[15] ~= '' and row[15], depths = row[16] == 1 and {}, json = row[10],
    }
    for place = 17, #row do
      terms.depths[place - 16] = row[place]
    end
    customer[TERMS] = terms
    add('HSET', prefix .. 'terms-of:' .. owner, row[9], row[10])
  end
  touched_customers[owner] = true
  gate(owner, was_blocked)
end

-- A row: as in `snapshot`, then digest, weight, resets, payload, result.
local function unpack_document(row)
  local place = format('%016d', row[2])
  local piece = sub(place, 1, PIECE)
  if document(place) then
    return
  end
  local id, owner, kind, state, priority = row[1], call('HGET', NUMBERS, row[3]), row[4], row[5], row[6]
  local key, ready, ended, result = given(row[12]), as_text(row[13]), given(row[19]), given(row[25])
  local changing = pack(
    state, owner, row[16], row[14], row[15], ready, row[11], given(row[18]), ended, given(row[17]), given(row[20]), id
  )
  add('HSET', DOCUMENTS .. piece, place, changing .. pack(
    kind, row[8], row[9], row[10], row[22], row[23], priority, row[7], key, given(row[21])
  ))
  add('HSET', PAYLOADS .. piece, place, row[24])
  add('HSET', IDS .. sub(id, 1, ID_PIECE), id, place)
  add('ZADD', prefix .. 'documents-of:' .. owner, place, place)
  if result then
    add('HSET', RESULTS .. piece, place, result)
  end
  if key then
    add('HSET', prefix .. 'keys', owner .. ':' .. key, place)
  end
  if COUNT_OF[state] == WAITING then
    local customer = customer_of(owner)
    customer[WAITING] = customer[WAITING] + 1
    touched_customers[owner] = true
  end
  if state == 'ready' then
    join(lane_of(owner, priority, kind), place, ready)
  elseif state == 'delayed' then
    add('ZADD', DELAYED, ready, place)
    soonest = min(soonest or row[13], row[13])
  else
    add('ZADD', prefix .. 'endings', as_text(ended), place)
    if state ~= 'done' then
      add('ZADD', prefix .. state, place, place)
    end
  end
end

-- A row: customer, kind, priority, start tag, finish tag. A lane competes if it did where it comes from.
local function unpack_lane(row)
  local lane = lane_of(call('HGET', NUMBERS, row[1]), row[3], row[2])
  lane.start, lane.finish = lane.head and given(row[4]), row[5]
end

-- A row: group, key, value, version.
local function unpack_record(row)
  add('HSET', prefix .. 'records:' .. row[1], row[2], pack(row[4], row[3]))
  add('ZADD', prefix .. 'record-keys:' .. row[1], 0, row[2])
  add('ZADD', prefix .. 'groups', 0, row[1])
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
