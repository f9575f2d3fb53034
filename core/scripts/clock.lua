local time = redis.call('TIME')

local call, pcall = redis.call, redis.pcall
local match, format, sub, floor = string.match, string.format, string.sub, math.floor
local EXACT_MAX = 9007199254740991
-- Expiry runs on the server's millisecond clock, and after a failover on another server's: a key outlives its state by
-- a second at least, so that small differences between clocks hand out no fresh allowance. It is set to three, because
-- keeping a sufficient expiry is cheaper than setting it each time.
local MARGIN_MS, RENEWED_MS = 1000, 3000
local now = time[1] * 1e6 + time[2]
