
-- Renews what a request holds: each lasts one lease from now on.
--
-- KEYS     for each claim its record and its fence, then one for each slot
-- ARGV[1]  tag, echoed first
-- ARGV     then the number of claims,
--          then 4 for each claim: owner, fence ('' for any), lease in us, expiry in ms,
--          then 2 for each slot: owner, lease in us
-- Returns  { tag, then a word for each: ok, done (finished), gone (nothing is there), lost (another's),
--            corrupt (none of ours) }
local claims, reply = ARGV[2] + 0, { ARGV[1] }

for i = 1, claims do
  local at, record = 4 * i - 1, read(KEYS[2 * i - 1])
  local word = standing(record, ARGV[at], ARGV[at + 1])
  if word == 'ok' then extend(KEYS[2 * i - 1], KEYS[2 * i], record, ARGV[at + 2], ARGV[at + 3]) end
  reply[i + 1] = word
end

-- An admission removes every slot whose lease has ended, so one that is still there has been given to nobody else.
for i = 1, #KEYS - 2 * claims do
  local key, at = KEYS[2 * claims + i], 4 * claims + 2 * i + 1
  local deadline, word = pcall('ZSCORE', key, ARGV[at]), 'gone'
  if type(deadline) == 'string' then
    local lifetime, expires = floor(ARGV[at + 1] / 1000) + RENEWED_MS, call('PTTL', key)
    call('PEXPIRE', key, format('%.0f', expires > lifetime and expires or lifetime))
    call('ZADD', key, format('%.0f', now + ARGV[at + 1]), ARGV[at])
    word = 'ok'
  end
  reply[claims + i + 1] = word
end
return reply
