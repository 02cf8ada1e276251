-- Retry: a failed document becomes ready with fresh attempts, without a check. ARGV: now, id.
local now, one = now_of(ARGV[1]), document_by_id(ARGV[2])
if not one or one[STATE] ~= 'failed' then
  return 0
end
leave_place(one)
move_count(one, 'ready')
one[ATTEMPTS], one[WORKER], one[ENDED], one[REASON] = 0, false, false, false
queue_up(one, now, false)
touch(one)
log(now, 'revived', one[OWNER], one[PLACE], one[TOKEN])
flush()
return 1
