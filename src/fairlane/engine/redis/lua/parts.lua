-- Parts: those into which a document was split last, in order, each with its result. ARGV: id.
local document = document_by_id(ARGV[1])
local seqs, reply = document and part_seqs(document) or {}, {}
load_documents(seqs)
local results = read_seqs(RESULTS, seqs)
for at, seq in ipairs(seqs) do
  local part = document_of(seq)
  if part and fixed(part).whole == document.id then
    reply[#reply + 1] = {snapshot(part), results[at]}
  end
end
return reply
