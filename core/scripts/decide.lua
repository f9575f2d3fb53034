-- Decides one request against all its limits, on the store's clock: every limit is charged, or none.
--
-- KEYS     one for each limit
-- ARGV[1]  tag, echoed first
-- ARGV     then 7 for each limit: algorithm, enforce (1 or 0), cost, and four numbers:
--            bucket   capacity, units of a token, units added each quantum, quantum in us
--            window   limit, window in us, -, -
--            counter  limit, window in quanta, quantum in us, -
--            log      limit, window in us, -, -
-- Returns  { tag, then for each limit: admitted (1 or 0), remaining, reset in us, retry in us }
--
-- Numbers are doubles and every product is below 2^53 (the policy's loader sees to that), so all of this is exact.
-- Divisions use fmod, which is exact where floor(a / b) is not. Whatever cannot be read at a key counts as absent.
local time = redis.call('TIME'); local now = time[1] * 1e6 + time[2]

local keys, argv = KEYS, ARGV
local call, pcall = redis.call, redis.pcall
local match, format, fmod, floor = string.match, string.format, math.fmod, math.floor
local EXACT_MAX = 9007199254740991
-- Expiry runs on the server's millisecond clock, replicas on their own: a key outlives its state by a second, so that
-- small differences between clocks never hand out a fresh allowance.
local SLACK_MS = 1001

-- 1. Read and judge. Nothing is written here.
local plans, allowed = {}, true
for i = 1, #keys do
  local key, at = keys[i], i * 7 - 5
  local algorithm, cost = argv[at], tonumber(argv[at + 2])
  local limit, second = tonumber(argv[at + 3]), tonumber(argv[at + 4])
  local plan

  if algorithm == 'bucket' then
    local unit, refill, quantum = second, tonumber(argv[at + 5]), tonumber(argv[at + 6])
    local full = limit * unit
    local rest = fmod(now, quantum)
    local level, healed = full, false
    local stored = pcall('GET', key)
    if type(stored) == 'string' then
      local stored_level, mark, stored_unit = match(stored, '^(%d+):(%d+):(%d+)$')
      stored_level, mark, stored_unit = tonumber(stored_level), tonumber(mark), tonumber(stored_unit)
      if mark and stored_level <= EXACT_MAX and mark <= EXACT_MAX and stored_unit <= EXACT_MAX and stored_unit > 0 then
        if stored_unit ~= unit then
          local tokens = (stored_level - fmod(stored_level, stored_unit)) / stored_unit
          stored_level = (tokens < limit and tokens or limit) * unit
        end
        local part = fmod(mark, quantum)
        if part > 0 then mark = mark - part + quantum end
        local elapsed = (now - rest - mark) / quantum
        if elapsed < 0 then
          elapsed, healed = 0, true
        end
        level = stored_level < full and stored_level or full
        level = level + elapsed * refill
        if level > full then level = full end
      end
    end
    plan = { admitted = cost * unit <= level, healed = healed, level = level, full = full, unit = unit,
      refill = refill, quantum = quantum, rest = rest }

  else -- window
    local start = now - fmod(now, second)
    local count, healed = 0, false
    local stored = pcall('GET', key)
    if type(stored) == 'string' then
      local stored_start, stored_count = match(stored, '^(%d+):(%d+)$')
      stored_start, stored_count = tonumber(stored_start), tonumber(stored_count)
      if stored_start and stored_start <= EXACT_MAX and stored_count <= EXACT_MAX and stored_start >= start then
        count, healed = stored_count, stored_start > start
      end
    end
    plan = { admitted = cost <= limit - count, healed = healed, count = count, start = start, fresh = start + second }
  end

  plan.cost, plan.limit = cost, limit
  plans[i] = plan
  if not plan.admitted and argv[at + 1] == '1' then allowed = false end
end

-- 2. Charge all that admit, or none, and answer.
local reply = { argv[1] }
for i = 1, #keys do
  local key, plan, at = keys[i], plans[i], i * 4 - 2
  local algorithm = argv[i * 7 - 5]
  local admitted, limit, cost = plan.admitted, plan.limit, plan.cost
  local charged = allowed and admitted
  local write = charged or plan.healed
  local remaining, reset, retry, fresh, text = 0, 0, 0

  if algorithm == 'bucket' then
    local level, full, unit = plan.level, plan.full, plan.unit
    local refill, quantum, rest = plan.refill, plan.quantum, plan.rest
    if charged then level = level - cost * unit end
    remaining = (level - fmod(level, unit)) / unit
    if remaining < limit then
      local missing = (remaining + 1) * unit - level
      local part = fmod(missing, refill)
      reset = ((missing - part) / refill + (part > 0 and 1 or 0)) * quantum - rest
    end
    if not admitted then
      local missing = (cost < limit and cost or limit) * unit - level
      local part = fmod(missing, refill)
      retry = ((missing - part) / refill + (part > 0 and 1 or 0)) * quantum - rest
    end
    local missing = full - level
    local part = fmod(missing, refill)
    fresh = now - rest + ((missing - part) / refill + (part > 0 and 1 or 0)) * quantum
    if write then text = format('%.0f:%.0f:%.0f', level, now - rest, unit) end

  else -- window
    local count = plan.count
    fresh = plan.fresh
    if charged then count = count + cost end
    if count < limit then remaining = limit - count end
    if count > 0 then reset = fresh - now end
    if not admitted then retry = fresh - now end
    if write then text = format('%.0f:%.0f', plan.start, count) end
  end

  local lifetime = floor((fresh - now) / 1000)
  if write then
    call('SET', key, text, 'PX', floor(lifetime + SLACK_MS))
  else
    -- Heals a key that would never expire, or would too early because the limit's numbers have changed.
    local expires = call('PTTL', key)
    if expires ~= -2 and expires < lifetime then call('PEXPIRE', key, floor(lifetime + SLACK_MS)) end
  end

  reply[at], reply[at + 1] = admitted and 1 or 0, floor(remaining)
  reply[at + 2], reply[at + 3] = floor(reset), floor(retry)
end
return reply
