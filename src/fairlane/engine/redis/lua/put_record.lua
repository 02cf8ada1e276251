-- Put record: set a value or remove it; returns the new version, or -1 if a version was passed in that is not current.
--
-- ARGV: group, key, 1 if there is a value, the value, the version or nothing.
local group, keys, key = prefix .. 'records:' .. ARGV[1], prefix .. 'record-keys:' .. ARGV[1], ARGV[2]
local record = call('HGET', group, key)
local version = record and decode(record) or 0
if ARGV[5] ~= '' and tonumber(ARGV[5]) ~= version then
  return -1
end
if ARGV[3] ~= '1' then
  if record then
    remove('HDEL', group, key)
    remove('ZREM', keys, key)
    flush()
  end
  return 0
end
version = write_record(ARGV[1], key, ARGV[4])
flush()
return version
