
-- Finishes a claim: keeps the outcome of what ran under it.
--
-- KEYS     its record and its fence
-- ARGV     tag, echoed first; owner, fence, expiry in ms; state (D with the response, S sealed without);
--          status, headers, body, encoding ('' or base64), reason why it is sealed ('' if not);
--          head and body of the fingerprint (body may be ''), recipe, attempt
-- Returns  { tag, word: ok (also when it was finished before), busy (another's that runs, and may be given back),
--          lost (another's), corrupt }
local key, fence_key, ttl = KEYS[1], KEYS[2], ARGV[4]
local record, fence = read(key), ARGV[3] + 0
local last, attempt = remembered(fence_key)
local word = standing(record, ARGV[2], ARGV[3])
if word == 'corrupt' then return { ARGV[1], word } end
if word == 'done' then return { ARGV[1], 'ok' } end
if word == 'lost' and record and record.state == 'R' and record.deadline > now then return { ARGV[1], 'busy' } end
-- A record that is gone was evicted or lost: nobody may have taken the claim since.
if word == 'lost' or word == 'gone' and last > fence then return { ARGV[1], 'lost' } end

local body = ARGV[12]
if record and body == '' then body = record.body end
record = record or { deadline = now, lease = 0, attempt = ARGV[14] + 0, started = now }
call('HSET', key, 'v', '1', 's', ARGV[5], 'o', ARGV[2], 'f', format('%.0f', fence),
  'd', format('%.0f', record.deadline), 'l', format('%.0f', record.lease), 'p', ARGV[11], 'q', body, 'pv', ARGV[13],
  'n', format('%.0f', record.attempt), 't', format('%.0f', record.started),
  'c', ARGV[6], 'h', ARGV[7], 'b', ARGV[8], 'e', ARGV[9], 'x', ARGV[10])
call('PEXPIRE', key, ttl)
remember(fence_key, fence > last and fence or last, record.attempt > attempt and record.attempt or attempt, ttl)
return { ARGV[1], 'ok' }
