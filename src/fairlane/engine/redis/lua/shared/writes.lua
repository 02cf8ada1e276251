-- Writes are collected, with all arguments for one key in one command; `flush` makes them. And lines of the feed.

local writes, removals = {}, {} -- in order, and by key: a command with all its arguments
local feed = {'RPUSH', FEED}
local call_id = false -- by which a repeated settle recognises its own lines
local due_first = nil -- when the first document is due that this call delays

local function write(command, key, field, value)
  local words = writes[key]
  if not words then
    words = {command, key, field, value}
    writes[key], writes[#writes + 1] = words, words
    return
  end
  local size = #words
  words[size + 1], words[size + 2] = field, value
end

local function remove(command, key, member)
  local words = removals[key]
  if not words then
    words = {command, key, member}
    removals[key], removals[#removals + 1] = words, words
    return
  end
  words[#words + 1] = member
end

-- Make one command, or as many as its arguments need.
local function call_many(words)
  for first = 3, #words, ARGUMENTS_MAX do
    call(words[1], words[2], unpack(words, first, min(first + ARGUMENTS_MAX - 1, #words)))
  end
end

-- Add a line to the feed.
local function log(now, what, owner, seq, token, note)
  queue[LAST_CHANGE] = queue[LAST_CHANGE] + 1
  feed[#feed + 1] = pack(now, what, note or false, call_id, owner or false, seq or false, token or false)
end

-- Set a record; returns its new version.
local function write_record(group, key, value)
  queue[LAST_RECORD] = queue[LAST_RECORD] + 1
  write('HSET', prefix .. 'records:' .. group, key, pack(queue[LAST_RECORD], value))
  write('ZADD', prefix .. 'record-keys:' .. group, 0, key)
  write('ZADD', prefix .. 'groups', 0, group)
  return queue[LAST_RECORD]
end

-- Make a customer that was never seen; returns its owner.
local function new_customer(id)
  queue[LAST_CUSTOMER] = queue[LAST_CUSTOMER] + 1
  local owner = as_text(queue[LAST_CUSTOMER])
  customers[owner] = {
    waiting = 0, running = 0, done = 0, failed = 0, cancelled = 0, documents = 0, bytes = 0, usual = NO_USUAL,
    stored = false, id = id, terms_version = 0, terms = false, counter = 0, updated = false, resets = 0, parts = false,
  }
  changed_customers[owner] = true
  write('HSET', OWNERS, id, owner)
  write('ZADD', prefix .. 'names', '0', id)
  return owner
end
