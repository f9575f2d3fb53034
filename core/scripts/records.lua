
-- A fence further ahead of now than a year of 365 days is corrupt and counts as none.
local FENCE_AHEAD_US = 31536000000000

-- The number that a text is, or nothing.
local function number(text)
  local value = text and match(text, '^%d+$') and text + 0
  return value and value <= EXACT_MAX and value or nil
end

-- The record at a key: nothing when there is none, false when what is there is none of ours. `healed` says that its
-- deadline was further ahead than its lease, because the clock stepped back.
local function read(key)
  local found = pcall('HMGET', key, 'v', 's', 'o', 'f', 'd', 'l', 'p', 'q', 'pv', 'n', 't',
    'c', 'h', 'e', 'x')
  if found.err then return false end
  if not found[1] and call('EXISTS', key) == 0 then return nil end
  local state, owner = found[2], found[3]
  if found[1] ~= '1' or not (state and match(state, '^[RDS]$')) then return false end
  if not (owner and #owner == 32 and match(owner, '^%x+$')) then return false end
  local fence, deadline, lease = number(found[4]), number(found[5]), number(found[6])
  local head, body, recipe, attempt, started = found[7], found[8], found[9], number(found[10]), number(found[11])
  if not (fence and deadline and lease and head and body and recipe and attempt and started) then return false end
  local status, headers, encoding, reason = found[12], found[13], found[14], found[15]
  if state ~= 'R' and not (status and match(status, '^%d%d%d$') and headers) then return false end
  if state == 'S' and not reason then return false end
  if state == 'D' and encoding ~= '' and encoding ~= 'base64' then return false end
  if state == 'D' and call('HEXISTS', key, 'b') == 0 then return false end
  local healed = deadline - now > lease
  if healed then deadline = now + lease end
  return {
    state = state, owner = owner, fence = fence, deadline = deadline, lease = lease, healed = healed,
    head = head, body = body, recipe = recipe, attempt = attempt, started = started,
    status = status, headers = headers, encoding = encoding, reason = reason,
  }
end

-- The highest fence and the last attempt that are remembered beside the record, 0 when none is.
local function remembered(key)
  local stored = pcall('GET', key)
  local fence, attempt
  if type(stored) == 'string' then fence, attempt = match(stored, '^(%d+):(%d+)$') end
  fence, attempt = number(fence), number(attempt)
  if not (fence and attempt) then return 0, 0 end
  return fence <= now + FENCE_AHEAD_US and fence or 0, attempt
end

local function remember(key, fence, attempt, ttl)
  call('SET', key, format('%.0f:%.0f', fence, attempt), 'PX', ttl)
end

-- Lets a running record last from now on, and never shorter than it did. The expiry comes first: it is no growing
-- write, so a store without memory refuses none of this and nobody loses a lease to it.
local function extend(key, fence_key, record, lease, ttl)
  call('PEXPIRE', key, ttl)
  if record.deadline - now < lease + 0 then
    call('HSET', key, 'd', format('%.0f', now + lease), 'l', lease)
  elseif record.healed then
    call('HSET', key, 'd', format('%.0f', record.deadline))
  end
  local fence, attempt = remembered(fence_key)
  if fence < record.fence then
    remember(fence_key, record.fence, attempt > record.attempt and attempt or record.attempt, ttl)
  else
    call('PEXPIRE', fence_key, ttl)
  end
end

-- What a record is to an owner, whose fence may be '' for any.
local function standing(record, owner, fence)
  if record == nil then return 'gone' end
  if record == false then return 'corrupt' end
  if record.owner ~= owner or fence ~= '' and fence + 0 ~= record.fence then return 'lost' end
  return record.state == 'R' and 'ok' or 'done'
end
