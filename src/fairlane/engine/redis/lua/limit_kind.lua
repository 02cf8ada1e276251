-- Limit kind: replace a kind's limit, with a full bucket; returns its new version, or 0 if the version is not current.
--
-- ARGV: now, kind, version, JSON, running at once or nothing, rate or nothing, burst, note.
if rules.frozen then
  return frozen_error()
end
local now, kind, version = now_of(ARGV[1]), kind_of(ARGV[2]), tonumber(ARGV[3])
if version ~= kind.version then
  return 0
end
begin_limit(kind)
kind.version, kind.json, kind.running_max, kind.rate, kind.burst =
  version + 1, ARGV[4], tonumber(ARGV[5]) or false, tonumber(ARGV[6]) or false, tonumber(ARGV[7])
kind.running, kind.tokens, kind.tokens_at, changed_kinds[kind.name] = count_running_of(kind.name), false, 0, kind
update_kind(kind, now)
log(now, 'limited', nil, nil, nil, ARGV[8])
flush()
return version + 1
