-- While the queue is frozen, what begins or changes something is refused; it stands behind shared.lua in such verbs.
if rules[FROZEN] then
  return redis.error_reply('FAIRLANE_FROZEN ' .. rules[FROZEN])
end
