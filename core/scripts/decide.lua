-- Decides one request against all its limits, on the store's clock: every limit is charged, or none.
--
-- KEYS     one for each limit
-- ARGV[1]  tag, echoed first
-- ARGV     then 7 for each limit
-- Returns  { tag, then for each limit: admitted (1 or 0), remaining, reset in us, retry in us }
local keys, argv, limits = KEYS, ARGV, #KEYS
