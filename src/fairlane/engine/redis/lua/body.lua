-- Body: what was handed in and what came out of a document. ARGV: id.
local number = call('HGET', IDS, ARGV[1])
if not number then
  return false
end
return {call('HGET', PAYLOADS, number), call('HGET', RESULTS, number)}
