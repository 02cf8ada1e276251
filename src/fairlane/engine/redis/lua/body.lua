-- Body: the payload and the result of a document. ARGV: id.
local seq = call('HGET', ids_key(ARGV[1]), ARGV[1])
if not seq then
  return false
end
return {call('HGET', PAYLOADS .. piece_of(seq), seq), call('HGET', RESULTS .. piece_of(seq), seq)}
