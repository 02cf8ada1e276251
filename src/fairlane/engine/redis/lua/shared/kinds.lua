-- Kinds: their clocks, their limits, and which of their lanes is first.
--
-- Laws:
-- A kind at its limit is blocked as a whole: its lanes stay in their indexes, and nothing is written for each of them. Its own
-- clocks stand still meanwhile, so start tags stay as they are; cross tags count as no less than the floor, which is the clock of
-- the priority at the moment when the kind was unblocked.
-- Only kinds that have or had a limit are ever blocked, or have floors.

local KINDS, LIMITED_KINDS = prefix .. 'kinds', prefix .. 'limited'
local kinds, changed_kinds = {}, {} -- by name

local CLOCKS_FORMAT, CLOCKS_SIZE = '>' .. string.rep('i7', 9), 63
local LEVEL_CLOCKS = string.rep('\0', CLOCKS_SIZE)

-- Make a kind of its stored record, false: there is none. `version` is 0 for one that never had a limit.
local function make_kind(name, record)
  local kind = {
    name = name, clocks = {struct.unpack(CLOCKS_FORMAT, record or LEVEL_CLOCKS)}, version = 0, json = false, running_max = false,
    rate = false, burst = STEP, running = 0, tokens = false, tokens_at = 0, blocked = false, floors = false,
  }
  kinds[name] = kind
  if record and #record > CLOCKS_SIZE then
    kind.version, kind.json, kind.running_max, kind.rate, kind.burst, kind.running, kind.tokens, kind.tokens_at, kind.blocked,
      kind.floors = decode(sub(record, CLOCKS_SIZE + 1))
  end
  kind.stored_blocked = kind.blocked
  return kind
end

local function encode_kind(kind)
  local clocks = struct.pack(CLOCKS_FORMAT, unpack(kind.clocks, 1, 9))
  return kind.version == 0 and clocks or clocks .. pack(
    kind.version, kind.json, kind.running_max, kind.rate, kind.burst, kind.running, kind.tokens, kind.tokens_at, kind.blocked,
    kind.floors
  )
end

local function kind_of(name)
  return kinds[name] or make_kind(name, call('HGET', KINDS, name))
end

-- Return the kinds that have, or had, a limit.
local function limited_kinds()
  local names, limited = queue[LIMITED] > 0 and call('ZRANGE', LIMITED_KINDS, 0, -1) or {}, {}
  for at, record in ipairs(read_many(KINDS, names)) do
    limited[at] = kinds[names[at]] or make_kind(names[at], record)
  end
  return limited
end

-- Return a kind if it has, or had, a limit.
local function limited_kind(name)
  local kind = queue[LIMITED] > 0 and kind_of(name)
  return kind and kind.version > 0 and kind
end

-- Return a cross tag as it counts.
local function cross_of(kind, priority, cross)
  return kind.floors and max(cross, kind.floors[priority]) or cross
end

-- -- limits ---------------------------------------------------------------------------------------------------------

-- Return from when on there is a whole start in a kind's bucket.
local function next_start(kind)
  if not kind.tokens or not kind.rate or kind.tokens >= STEP then
    return 0
  end
  return kind.tokens_at + divide((STEP - kind.tokens) * 1000 + kind.rate - 1, kind.rate)
end

-- Return which limit a kind is at, or false.
local function limit_reached(kind, now)
  if now < next_start(kind) then
    return 'kind rate'
  end
  return kind.running_max and kind.running >= kind.running_max and 'kind running'
end

-- Take a start out of a kind's bucket. What has flowed in since is multiplied only while that is less than what is missing.
local function take_start(kind, now)
  local tokens = kind.burst
  if kind.tokens and kind.rate then
    local missing, elapsed = kind.burst - kind.tokens, max(0, now - kind.tokens_at)
    if elapsed < divide(missing * 1000, kind.rate) + 1 then
      tokens = min(kind.burst, kind.tokens + divide(elapsed * kind.rate, 1000))
    end
  end
  kind.tokens, kind.tokens_at = tokens - STEP, max(kind.tokens_at, now)
  changed_kinds[kind.name] = kind
end

-- Block or unblock a kind, as its limit demands.
local function update_kind(kind, now)
  local is_blocked_now = limit_reached(kind, now) and true or false
  if is_blocked_now == kind.blocked then
    return
  end
  kind.blocked, changed_kinds[kind.name] = is_blocked_now, kind
  if not is_blocked_now then
    kind.floors = not is_strict and {unpack(queue, CLOCK + 1, CLOCK + 9)}
  end
end

-- -- the first head of a kind, as the indexes are stored ------------------------------------------------------------

-- Return the seq and the cross tag of a kind's first head in a priority, or nothing. If the tag is below the floor another head may
-- be first, with the floor as its tag: never one that comes before this.
local function first_by_turn(priority, name)
  local member = call('ZRANGE', turns_key(priority, name), 0, 0)[1]
  return member and sub(member, 17, 32), member and tonumber(sub(member, 1, 16))
end

-- Return the seq of a kind's head that has been ready longest, and since when; or nothing.
local function first_by_age(name)
  local first = call('ZRANGE', ages_key(name), 0, 0, 'WITHSCORES')
  return first[1] and sub(first[1], 1, 16), tonumber(first[2])
end

-- Return how many documents of a kind run; they are few.
local function count_running_of(name)
  local seqs, count = call('ZRANGE', LEASES, 0, -1), 0
  load_documents(seqs)
  for _, seq in ipairs(seqs) do
    if fixed(document_of(seq)).kind == name then
      count = count + 1
    end
  end
  return count
end
