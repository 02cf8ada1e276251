-- Sweep: empty the lines that forgotten customers left in the feed, some lines at a time; answers whether more is to do.
--
-- `forgotten` holds each such customer with the number of the line before which its lines may stand; lines from
-- `swept` on are still to be looked at. ARGV: lines at most.
local forgotten = call('ZRANGE', prefix .. 'forgotten', 0, -1, 'WITHSCORES')
if #forgotten == 0 then
  return 0
end
local owners, last = {}, 0
for place = 1, #forgotten, 2 do
  owners[tonumber(forgotten[place])] = true
  last = math.max(last, tonumber(forgotten[place + 1]))
end
local swept = tonumber(call('GET', prefix .. 'swept') or 0)
local first = math.max(swept, queue.feed_first)
local stop = math.min(last, first + tonumber(ARGV[1]))
for place, text in ipairs(first < stop and call('LRANGE', FEED, first - queue.feed_first, stop - 1 - queue.feed_first) or {}) do
  local line = text ~= '' and cmsgpack.unpack(text)
  if line and line[3] and owners[line[3]] then
    call('LSET', FEED, first - queue.feed_first + place - 1, '')
  end
end
if stop < last then
  call('SET', prefix .. 'swept', stop)
  return 1
end
call('UNLINK', prefix .. 'swept', prefix .. 'forgotten')
return 0
