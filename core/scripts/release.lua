
-- Gives back what a request holds and has not finished.
--
-- KEYS     for each claim its record and its fence, then one for each slot
-- ARGV[1]  tag, echoed first
-- ARGV     then the number of claims,
--          then 3 for each claim: owner, fence ('' for any), 1 when its attempt does not count, else 0,
--          then 1 for each slot: owner
-- Returns  { tag, then a word for each: ok, done (finished), gone (nothing is there), lost (another's),
--            corrupt (none of ours) }
local claims, reply = ARGV[2] + 0, { ARGV[1] }
local DAY_MS = 86400000

-- The fence outlives the record. Deleting comes first: a store without memory gives claims back too.
local function delete(key, fence_key, record, uncounted)
  local last, attempt = remembered(fence_key)
  local expires, record_expires = call('PTTL', fence_key), call('PTTL', key)
  if record_expires > expires then expires = record_expires end
  if expires < 0 then expires = DAY_MS end
  local fence = record.fence > last and record.fence or last
  local counted = (record.attempt > attempt and record.attempt or attempt) - uncounted
  call('DEL', key)
  remember(fence_key, fence, counted < 0 and 0 or counted, format('%.0f', expires))
end

for i = 1, claims do
  local at, record = 3 * i, read(KEYS[2 * i - 1])
  local word = standing(record, ARGV[at], ARGV[at + 1])
  if word == 'ok' then delete(KEYS[2 * i - 1], KEYS[2 * i], record, ARGV[at + 2] + 0) end
  reply[i + 1] = word
end

for i = 1, #KEYS - 2 * claims do
  local removed = pcall('ZREM', KEYS[2 * claims + i], ARGV[3 * claims + 2 + i])
  reply[claims + i + 1] = removed == 1 and 'ok' or 'gone'
end
return reply
