-- The queue's own record and rules, the names of keys, and the server's clock.
--
-- Laws:
-- Numbers are doubles: whole numbers below 2^53 only, and products that could be larger are split.
-- A document is named by its number as text of 16 digits (`seq`), so that text sorts by number; a customer by its number as
-- text (`owner`).
-- All other files of a script stand in one function, which may use at most 60 variables of this file and have 200 of its own. Their
-- functions are made anew in every call, and made faster there.

local call, pack, decode, format, sub = redis.call, cmsgpack.pack, cmsgpack.unpack, string.format, string.sub
local fmod, max, min = math.fmod, math.max, math.min

local ARGUMENTS_MAX = 4000 -- of one command; Lua's stack holds about 8000
local ATTEMPTS_DEFAULT = 3

-- Positions in the queue's own record: 48 numbers. The last four are each before the first of a group: for each priority its
-- clock, its ready documents, its lanes, and its documents that were taken after they had waited.
local LAST_NUMBER, LAST_CHANGE, LAST_RECORD, LAST_CUSTOMER, DISPATCHES, FEED_FIRST, FEED_FLOOR = 2, 3, 4, 5, 6, 7, 8
local BUSY, TICKED, USUAL, LIMITED = 9, 10, 11, 12
local CLOCK, READY_IN, LANES_IN, TAKEN = 12, 21, 30, 39
local NUMBERS_FORMAT, NUMBERS_LAST = '>B' .. string.rep('i7', 47), 48
local NO_USUAL = -1 -- no attempt has ended

local prefix = sub(KEYS[1], 1, -6) -- KEYS[1] is '{...}:queue'; all other keys have the same prefix
local DOCUMENTS, PAYLOADS, RESULTS = prefix .. 'documents:', prefix .. 'payloads:', prefix .. 'results:'
local CUSTOMERS, OWNERS, LANES, FEED = prefix .. 'customers', prefix .. 'numbers', prefix .. 'lanes', prefix .. 'feed'
local DELAYED, LEASES, ENDINGS = prefix .. 'delayed', prefix .. 'leases', prefix .. 'endings'

local stored_queue = call('GET', KEYS[1])
if not stored_queue then
  return redis.error_reply('FAIRLANE_GONE the queue is not there')
end
local stored_form = string.byte(stored_queue)
if stored_form ~= FORM then -- `scripts.py` says which one this program knows
  local oldest = tonumber(call('GET', prefix .. 'oldest') or stored_form)
  if stored_form < FORM or oldest > FORM then
    return redis.error_reply('FAIRLANE_FORM ' .. stored_form .. ' ' .. oldest)
  end
end
local queue = {struct.unpack(NUMBERS_FORMAT, stored_queue)}
local stored_rules = sub(stored_queue, queue[NUMBERS_LAST + 1])

-- Make limits of five values in the order of `CustomerLimits`; false or nothing: none.
local function decode_limits(waiting_max, descendants_max, documents_max, bytes_max, retries_max)
  return {
    waiting_max = tonumber(waiting_max) or false, descendants_max = tonumber(descendants_max) or false,
    documents_max = tonumber(documents_max) or false, bytes_max = tonumber(bytes_max) or false,
    retries_max = tonumber(retries_max) or false,
  }
end

local function decode_rules(version, interval, reset, dispatch, turns, every, frozen, w, de, do_, b, r, ...)
  return {
    version = version, interval = interval, reset = reset, dispatch = dispatch, turns = turns, open_turn_every = every,
    frozen = frozen, limits = decode_limits(w, de, do_, b, r), depths = {...},
  }
end

local rules = decode_rules(decode(stored_rules))
local is_strict = rules.dispatch == 'strict'

-- Replace the rules in the queue's own record.
local function store_rules()
  local limits = rules.limits
  stored_rules = pack(
    rules.version, rules.interval, rules.reset, rules.dispatch, rules.turns, rules.open_turn_every, rules.frozen,
    limits.waiting_max, limits.descendants_max, limits.documents_max, limits.bytes_max, limits.retries_max, unpack(rules.depths)
  )
end

local function encode_queue()
  return struct.pack(NUMBERS_FORMAT, unpack(queue, 1, NUMBERS_LAST)) .. stored_rules
end

-- Refuse a verb that begins or changes something, because the queue is frozen.
local function frozen_error()
  return redis.error_reply('FAIRLANE_FROZEN ' .. rules.frozen)
end

local function as_text(number)
  return format('%d', number)
end

local function seq_of(number)
  return format('%016d', number)
end

-- Hashes with an entry for each document are split into pieces (see README.md): by the first digits of a seq, of an id.
local function piece_of(seq)
  return sub(seq, 1, 11)
end

local function ids_key(id)
  return prefix .. 'ids:' .. sub(id, 1, 10)
end

local DIGIT = {'1', '2', '3', '4', '5', '6', '7', '8', '9'}

local function lane_name(owner, priority, kind)
  return owner .. ':' .. DIGIT[priority] .. kind
end

local function turns_key(priority, kind)
  return prefix .. 'turns:' .. DIGIT[priority] .. kind
end

-- The same heads as in `turns`, by start tag and number, whatever their cross tags are; of kinds that have or had a limit.
local function tied_key(priority, kind)
  return prefix .. 'tied:' .. DIGIT[priority] .. kind
end

local function ages_key(kind)
  return prefix .. 'ages:' .. kind
end

-- The first heads of kinds in a priority (0: by age).
local function firsts_key(priority)
  return prefix .. 'firsts:' .. priority
end

-- Return the time that was passed in, or else the server's, in milliseconds.
local function now_of(argument)
  if argument ~= '' then
    return tonumber(argument)
  end
  local time = call('TIME')
  return time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
end

-- Return the numbers at the end of ARGV, from a position on.
local function numbers_from(first)
  local numbers = {}
  for at = first, #ARGV do
    numbers[at - first + 1] = tonumber(ARGV[at])
  end
  return numbers
end
