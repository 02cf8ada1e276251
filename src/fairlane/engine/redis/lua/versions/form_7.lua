-- Form 7: documents that go on as another kind, or are split into parts and wait for them.
--
-- What is stored stays as it is. Programs of form 6 know no parts, so they may not go on. ARGV: a cursor, which it does not need.
return ''
