-- Retry: a failed document becomes ready with fresh attempts, without a check. ARGV: now, id.
local now, one = now_of(ARGV[1]), document_by_id(ARGV[2])
if not one or one.moving[STATE] ~= 'failed' then
  return 0
end
local moving = one.moving
leave_place(one)
move_count(one, 'ready')
moving[ATTEMPTS], moving[WORKER], moving[ENDED], moving[REASON] = 0, false, false, false
queue_up(one, now, false)
touch(one)
log(now, 'revived', moving[OWNER], one.place, moving[TOKEN])
flush()
return 1
