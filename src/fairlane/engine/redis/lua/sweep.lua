-- Sweep: empty the lines that forgotten customers left in the feed, some lines at a time; returns whether more is to do.
--
-- `forgotten` holds each such customer with the number of the line before which its lines stand, `swept` the number of the
-- next line to read; a customer that is forgotten meanwhile lets the sweep begin again. ARGV: lines at most.
local forgotten = call('ZRANGE', prefix .. 'forgotten', 0, -1, 'WITHSCORES')
if #forgotten == 0 then
  return 0
end
local owners, last = {}, 0
for at = 1, #forgotten, 2 do
  owners[forgotten[at]] = true
  last = max(last, tonumber(forgotten[at + 1]))
end
local first = max(tonumber(call('GET', prefix .. 'swept') or 0), queue[FEED_FIRST])
local stop = min(last, first + tonumber(ARGV[1]))
if first < stop then
  local offset = first - queue[FEED_FIRST]
  for at, text in ipairs(call('LRANGE', FEED, offset, offset + stop - first - 1)) do
    local line = decode_line(text)
    if line and line.owner and owners[line.owner] then
      call('LSET', FEED, offset + at - 1, '')
    end
  end
end
if stop < last then
  call('SET', prefix .. 'swept', stop)
  return 1
end
call('UNLINK', prefix .. 'swept', prefix .. 'forgotten')
return 0
