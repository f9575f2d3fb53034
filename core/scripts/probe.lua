-- Asks whether the store takes writes again.
--
-- KEYS[1]  a key of its own
-- ARGV[1]  tag, echoed
-- Returns  { tag }
redis.call('SET', KEYS[1], '', 'PX', 1000)
return { ARGV[1] }
