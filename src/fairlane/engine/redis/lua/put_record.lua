-- Put a record: set a value or remove it, perhaps only from one version. ARGV: group, key, has value, value, version. Answers -1 if refused.
local group, keys, key = prefix .. 'records:' .. ARGV[1], prefix .. 'record-keys:' .. ARGV[1], ARGV[2]
local record = call('HGET', group, key)
local version = record and cmsgpack.unpack(record)[1] or 0
if ARGV[5] ~= '' and tonumber(ARGV[5]) ~= version then
  return -1
end
if ARGV[3] ~= '1' then
  if record then
    write('HDEL', group, key)
    write('ZREM', keys, key)
    flush()
  end
  return 0
end
queue.last_record = queue.last_record + 1
write('HSET', group, key, pack({queue.last_record, ARGV[4]}))
write('ZADD', keys, 0, key)
flush()
return queue.last_record
