-- Body: what was handed in and what came out of a document. ARGV: id.
local place = call('HGET', IDS .. sub(ARGV[1], 1, ID_PIECE), ARGV[1])
if not place then
  return false
end
local piece = sub(place, 1, PIECE)
return {call('HGET', PAYLOADS .. piece, place), call('HGET', prefix .. 'results:' .. piece, place)}
