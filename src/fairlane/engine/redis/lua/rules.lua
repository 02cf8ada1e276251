-- Rules: what holds for everybody, as JSON, and its version.
return {call('HGET', prefix .. 'rules', queue.rules.version), queue.rules.version}
