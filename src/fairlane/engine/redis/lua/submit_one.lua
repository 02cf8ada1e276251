-- Submit one: what submit does, for one document that comes without a key, a delay or a source; all or none.
--
-- The way that is used most, so it is written straight on: no functions of its own, no tables to gather what is written.
-- ARGV: now, again, customer, kind, cost, id, payload. `again` is 1 when this very call was sent before and its answer was lost.
local now, name, kind, cost, id = now_of(ARGV[1]), ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local found = ARGV[2] == '1' and call('HGET', IDS .. sub(id, 1, ID_PIECE), id)
if found then
  local part = {select(CHANGING + 1, opened_values(call('HGET', DOCUMENTS .. sub(found, 1, PIECE), found)))}
  return {
    tonumber(found), part[PRIORITY], part[MADE_COUNTER], part[CHECKED], part[MADE_VERSION], part[MADE_TERMS], false,
  }
end
if rules[FROZEN] then
  return redis.error_reply('FAIRLANE_FROZEN ' .. rules[FROZEN])
end

-- The check.
local owner = call('HGET', NUMBERS, name)
local is_new = not owner
local customer
if is_new then
  queue[LAST_CUSTOMER] = queue[LAST_CUSTOMER] + 1
  owner, customer = as_text(queue[LAST_CUSTOMER]), unseen(name)
else
  customer = opened_customer(call('HGET', CUSTOMERS, owner))
end
local policy, weight = policy_of(customer), weight_of(customer)
check(policy, customer, now, step_of(cost, weight))
customer[WAITING] = customer[WAITING] + 1
local counter, version, terms = customer[COUNTER], rules[VERSION], customer[TERMS_VERSION]
local priority = level(policy, counter)

-- The document. Its number is the highest, so it stands last in its lane: unless it is alone there, the head stays.
local number, ready, digit = queue[LAST_NUMBER] + 1, as_text(now), sub('123456789', priority, priority)
local place, lane = format('%016d', number), owner .. ':' .. digit .. kind
local piece = sub(place, 1, PIECE)
local stored = call('HGET', LANES, lane)
local head, _, start, finish = false, false, false, 0
if stored then
  head, _, start, finish = opened_values(stored)
end
local is_news = false
if not head then
  queue[LANES_IN + priority] = queue[LANES_IN + priority] + 1
  start = not is_blocked(customer) and (is_strict and 0 or max(queue[CLOCK + priority], finish))
  is_news = start and call('EXISTS', prefix .. 'ages:' .. kind) == 0
end
queue[LAST_NUMBER], queue[LAST_CHANGE] = number, queue[LAST_CHANGE] + 1
queue[READY_IN + priority] = queue[READY_IN + priority] + 1

-- What is written: the queue's own record first, which a full server refuses.
call('SET', KEYS[1], packed_queue())
call('HSET', DOCUMENTS .. piece, place, pack(
  'ready', owner, 0, 0, ATTEMPTS_DEFAULT, ready, cost, false, false, false, false, id,
  kind, now, version, terms, weight, customer[RESETS], priority, counter, false, false
))
call('HSET', PAYLOADS .. piece, place, ARGV[7])
call('HSET', IDS .. sub(id, 1, ID_PIECE), id, place)
call('ZADD', prefix .. 'documents-of:' .. owner, place, place)
call('ZADD', prefix .. 'ready:' .. lane, '0', place .. ready)
call('HSET', CUSTOMERS, owner, packed_customer(customer))
if is_new then
  call('HSET', NUMBERS, name, owner)
  call('ZADD', prefix .. 'names', '0', name)
end
if not stored then
  call('SADD', prefix .. 'lanes-of:' .. owner, digit .. kind)
  call('SADD', prefix .. 'kinds', kind)
end
if not head then
  call('HSET', LANES, lane, pack(place, ready, start, finish))
  if start then
    local member = place .. digit .. owner
    call('ZADD', prefix .. 'turns:' .. digit .. kind, start, member)
    call('ZADD', prefix .. 'ages:' .. kind, ready, member)
  end
end
call('RPUSH', FEED, pack(now, 'submitted', false, false, owner, place, 0))
if is_news then
  redis.pcall('PUBLISH', prefix .. 'signal', '1')
end
return {number, priority, counter, now, version, terms, false}
