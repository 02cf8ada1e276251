-- Rules: the current rules as JSON, and their version.
return {call('HGET', prefix .. 'rules', rules.version), rules.version}
