
-- The fence is above every one before it that is known here, and above the floor that the gateway knows.
local function next_fence(last, lower)
  local fence = now
  if last >= fence then fence = last + 1 end
  lower = number(lower) or 0
  if lower <= now + FENCE_AHEAD_US and lower >= fence then fence = lower + 1 end
  return fence
end

local function take(i)
  local key, fence_key = KEYS[first_key + 2 * i - 1], KEYS[first_key + 2 * i]
  local at, record = first_argument + 9 * (i - 1), found[i]
  local owner, lease, ttl = ARGV[at + 1], ARGV[at + 5], ARGV[at + 6]
  if record and record.owner == owner then
    extend(key, fence_key, record, lease, ttl)
    return record.fence, record.attempt
  end
  local last, attempt = remembered(fence_key)
  if record then
    if record.fence > last and record.fence <= now + FENCE_AHEAD_US then last = record.fence end
    if record.attempt > attempt then attempt = record.attempt end
  end
  local fence = next_fence(last, ARGV[at + 8])
  attempt = attempt + 1
  call('HSET', key, 'v', '1', 's', 'R', 'o', owner, 'f', format('%.0f', fence), 'd', format('%.0f', now + lease),
    'l', lease, 'p', ARGV[at + 2], 'q', ARGV[at + 3], 'pv', ARGV[at + 4], 'n', format('%.0f', attempt),
    't', format('%.0f', now))
  call('PEXPIRE', key, ttl)
  remember(fence_key, fence, attempt, ttl)
  return fence, attempt
end

if outcome then
  if not allowed then outcome = { ARGV[1], 'limited' } end
elseif not allowed then
  outcome = { ARGV[1], 'denied' }
else
  outcome = { ARGV[1], again and 'mine' or 'new' }
  for i = 1, claims do
    local fence, attempt = take(i)
    outcome[2 * i + 1], outcome[2 * i + 2] = format('%.0f', fence), floor(attempt)
  end
end
if reply then
  for i = 2, #reply do outcome[#outcome + 1] = reply[i] end
end
return outcome
