-- Body: what was handed in and what came out of a document. ARGV: id.
local place = call('HGET', IDS, ARGV[1])
if not place then
  return false
end
return {call('HGET', PAYLOADS, place), call('HGET', prefix .. 'results', place)}
