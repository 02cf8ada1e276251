-- Ready: whether a claim may find a document, and in how many milliseconds the next delayed one is due (-1: none).
--
-- ARGV: kinds; one that is empty stands for all.
local first = call('ZRANGE', DELAYED, 0, 0, 'WITHSCORES')[2]
local due_in = first and max(0, tonumber(first) - now_of('')) or -1
if due_in == 0 then
  return {1, 0}
end
if ARGV[1] == '' then
  return {call('EXISTS', firsts_key(0)), due_in}
end
for _, kind in ipairs(ARGV) do
  if call('EXISTS', ages_key(kind)) == 1 then
    return {1, due_in}
  end
end
return {0, due_in}
