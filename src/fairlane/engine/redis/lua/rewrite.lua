-- Rewrite: replace texts, each only if it is still what it was; returns how many.
--
-- ARGV: payload, result, reason, digest or note; then seq (of a note: the number of its line), text before and text after of each.
local BODIES = {payload = PAYLOADS, result = RESULTS}
local DIGEST_AT = 10 -- among the values that never change otherwise, see `fixed`

-- Payloads and results stand in hashes of their own.
local function rewrite_body(hash, seq, before, after)
  local key = hash .. piece_of(seq)
  if call('HGET', key, seq) ~= before then
    return 0
  end
  write('HSET', key, seq, after)
  return 1
end

local function rewrite_reason(seq, before, after)
  local document = document_of(seq)
  if not document or document.reason ~= before then
    return 0
  end
  document.reason, changed_documents[seq] = after, document
  return 1
end

local function rewrite_digest(seq, before, after)
  local document = document_of(seq)
  if not document or fixed(document).digest ~= before then
    return 0
  end
  local values = {decode(sub(document.record, document.fixed_at + 1))}
  values[DIGEST_AT] = after
  document.record = sub(document.record, 1, document.fixed_at) .. pack(unpack(values))
  changed_documents[seq] = document
  return 1
end

-- Lines stand in a list, which `flush` only appends to: they are changed at once, as `sweep` does.
local function rewrite_note(seq, before, after)
  local offset = tonumber(seq) - queue[FEED_FIRST]
  local line = offset >= 0 and decode_line(call('LINDEX', FEED, offset) or '')
  if not line or line.note ~= before then
    return 0
  end
  call('LSET', FEED, offset, pack(line.at, line.what, after, line.call_id, line.owner, line.seq, line.token))
  return 1
end

local part, count = ARGV[1], 0
local rewrites = {reason = rewrite_reason, digest = rewrite_digest, note = rewrite_note}
for at = 2, #ARGV, 3 do
  local seq, before, after = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local is_body = BODIES[part]
  count = count + (is_body and rewrite_body(is_body, seq, before, after) or not is_body and rewrites[part](seq, before, after) or 0)
end
if part ~= 'note' and count > 0 then
  flush()
end
return count
