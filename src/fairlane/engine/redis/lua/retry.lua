-- Retry: a failed document becomes ready with fresh attempts, without a check; returns whether it was. ARGV: now, id.
if rules.frozen then
  return frozen_error()
end
local now, document = now_of(ARGV[1]), document_by_id(ARGV[2])
if not document or document.state ~= 'failed' then
  return 0
end
leave_state(document)
move_count(document, 'ready')
document.attempts, document.worker, document.ended, document.reason = 0, false, false, false
queue_up(document, now, false)
change(document)
log(now, 'revived', document.owner, document.seq, document.token)
flush()
return 1
