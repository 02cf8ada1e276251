-- Count: what documents take that were stored in form 4, newest first; returns 1 while there may be more. ARGV: limit.
local UNCOUNTED = prefix .. 'uncounted'
local last, seqs = tonumber(call('GET', UNCOUNTED) or 0), {}
if last == 0 then
  return 0
end
local first = max(1, last - tonumber(ARGV[1]) + 1)
for number = first, last do
  seqs[#seqs + 1] = seq_of(number)
end
load_documents(seqs)
load_customers_of(seqs)

-- Return the bytes of a payload and a result, and of the files that they name.
local function stored_bytes(payload, result)
  local bytes = #payload + (tonumber(string.match(payload, '^{"fairlane%.file":{.-"size": (%d+)')) or 0)
  if result then
    bytes = bytes + #result
    local files = string.match(result, '"fairlane%.results":(%b{})') or ''
    for size in string.gmatch(files, '"size":(%d+),"sha256":"%w+"') do
      bytes = bytes + tonumber(size)
    end
  end
  return bytes
end

local payloads, results = read_seqs(PAYLOADS, seqs), read_seqs(RESULTS, seqs)
for at, seq in ipairs(seqs) do
  local document = document_of(seq)
  if document and not document.bytes then
    document.bytes = stored_bytes(payloads[at], results[at])
    keep(document, 1, document.bytes)
    changed_documents[seq] = document
  end
end
flush()
if first == 1 then
  call('DEL', UNCOUNTED)
  return 0
end
call('SET', UNCOUNTED, as_text(first - 1))
return 1
