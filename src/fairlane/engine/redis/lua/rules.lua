-- Rules: what holds for everybody, as JSON, and its version.
return {call('HGET', prefix .. 'rules', rules[VERSION]), rules[VERSION]}
