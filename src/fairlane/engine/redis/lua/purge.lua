-- Purge: forget old changes and then documents that ended as long ago, at most `limit` of each. ARGV: now, age, limit.
-- Returns the documents as id, customer, token, and how many changes.
if rules.frozen then
  return frozen_error()
end
local before, limit = now_of(ARGV[1]) - tonumber(ARGV[2]), tonumber(ARGV[3])

-- Return whether a line is one that readers get; those of a forgotten customer are removed without being counted.
local function is_shown(line)
  return line and (not line.owner or customers[line.owner] or call('HEXISTS', CUSTOMERS, line.owner) == 1)
end

-- Return how many old lines there are at the beginning of the feed, and how many lines to remove with them.
local function old_lines()
  local BLOCK = 500
  local old, position, last = 0, 0, 0
  while true do
    local lines = call('LRANGE', FEED, position, position + BLOCK - 1)
    for _, text in ipairs(lines) do
      local line = decode_line(text)
      if is_shown(line) then
        if line.at > before or old == limit then
          return old, last
        end
        old, last = old + 1, position + 1
      end
      position = position + 1
    end
    if #lines < BLOCK then
      return old, last
    end
  end
end

-- Return whether a document is a part of one that is kept: it is kept as long.
local function is_part_of_kept(document)
  local whole = fixed(document).whole
  return whole and call('HEXISTS', ids_key(whole), whole) == 1
end

-- Return the documents to purge, oldest first.
local function old_documents()
  local old, position = {}, 0
  while true do
    local seqs = call('ZRANGEBYSCORE', ENDINGS, '-inf', before, 'LIMIT', position, limit)
    load_documents(seqs)
    for _, seq in ipairs(seqs) do
      if #old < limit and not is_part_of_kept(document_of(seq)) then
        old[#old + 1] = seq
      end
    end
    position = position + #seqs
    if #seqs < limit or #old == limit then
      return old
    end
  end
end

local changes, lines = old_lines()
local ended = changes < limit and old_documents() or {}
load_customers_of(ended)
local removed = {}
for at, seq in ipairs(ended) do
  local document = document_of(seq)
  leave_state(document)
  erase(document)
  removed[at] = removed_row(document)
end
if lines > 0 then
  queue[FEED_FLOOR] = queue[FEED_FIRST] + lines - 1
  queue[FEED_FIRST] = queue[FEED_FIRST] + lines
end
if lines > 0 or #ended > 0 then
  flush()
end
if lines > 0 then
  call('LTRIM', FEED, lines, -1)
end
return {removed, changes}
