-- Decides one request against all its limits, on the store's clock: every limit is charged, or none.
--
-- KEYS     one for each limit
-- ARGV[1]  tag, echoed first
-- ARGV     then 7 for each limit: algorithm, enforce (1 or 0), cost, and four numbers:
--            bucket   capacity, units of a token, units added each quantum, quantum in us
--            counter  limit, window in quanta, quantum in us, -
--            log      limit, window in us, -, -
--            window   limit, window in us, -, -
-- Returns  { tag, then for each limit: admitted (1 or 0), remaining, reset in us, retry in us }
--
-- Numbers are doubles and every product is below 2^53 (the policy's loader sees to that), so all of this is exact;
-- divisions use fmod, which is exact where floor(a / b) is not. What cannot be read at a key counts as absent.
local time = redis.call('TIME'); local now = time[1] * 1e6 + time[2]

local keys, argv = KEYS, ARGV
local call, pcall = redis.call, redis.pcall
local match, format, fmod, floor = string.match, string.format, math.fmod, math.floor
local EXACT_MAX = 9007199254740991
-- Expiry runs on the server's millisecond clock, and after a failover on another server's: a key outlives its state by
-- a second, so that small differences between clocks hand out no fresh allowance.
local SLACK_MS = 1000

local function ceil_div(a, b)
  local part = fmod(a, b)
  if part > 0 then return (a - part) / b + 1 end
  return a / b
end

-- 1. Read and judge.
local plans, allowed = {}, true
for i = 1, #keys do
  local key, at = keys[i], i * 7 - 5
  local algorithm, cost = argv[at], tonumber(argv[at + 2])
  local limit, second = tonumber(argv[at + 3]), tonumber(argv[at + 4])
  local plan

  if algorithm == 'bucket' then
    local unit, refill, quantum = second, tonumber(argv[at + 5]), tonumber(argv[at + 6])
    local mark_now = now - fmod(now, quantum)
    local full, healed = limit * unit, false
    local level = full
    local stored = pcall('GET', key)
    if type(stored) == 'string' then
      local units, mark, old_unit = match(stored, '^(%d+):(%d+):(%d+)$')
      units, mark, old_unit = tonumber(units), tonumber(mark), tonumber(old_unit)
      if units and units <= EXACT_MAX and mark <= EXACT_MAX and old_unit <= EXACT_MAX and old_unit > 0 then
        if old_unit ~= unit then
          -- The refill has changed: keep whole tokens.
          local tokens = (units - fmod(units, old_unit)) / old_unit
          units = (tokens < limit and tokens or limit) * unit
        end
        local part = fmod(mark, quantum)
        if part > 0 then mark = mark - part + quantum end
        local elapsed = (mark_now - mark) / quantum
        if elapsed < 0 then
          elapsed, healed = 0, true
        end
        if units < full then
          level = units + elapsed * refill
          if level > full then level = full end
        end
      end
    end
    plan = { admitted = cost * unit <= level, healed = healed, level = level, full = full, unit = unit,
      refill = refill, quantum = quantum, mark = mark_now }

  elseif algorithm == 'counter' then
    local quanta, quantum = second, tonumber(argv[at + 5])
    local window = quanta * quantum
    local elapsed = fmod(now, window)
    local start, covered = now - elapsed, quanta - (elapsed - fmod(elapsed, quantum)) / quantum
    local current, previous, healed = 0, 0, false
    local stored = pcall('GET', key)
    if type(stored) == 'string' then
      local mark, newer, older = match(stored, '^(%d+):(%d+):(%d+)$')
      mark, newer, older = tonumber(mark), tonumber(newer), tonumber(older)
      if mark and mark <= EXACT_MAX and newer <= EXACT_MAX and older <= EXACT_MAX then
        if mark >= start then
          current, previous, healed = newer, older, mark > start
        elseif mark + window >= start then
          previous = newer
        end
        if current > limit then current = limit end
        if previous > limit then previous = limit end
      end
    end
    plan = { admitted = previous * covered <= (limit - current - cost) * quanta, healed = healed, current = current,
      previous = previous, start = start, covered = covered, quanta = quanta, quantum = quantum, window = window }

  elseif algorithm == 'window' then
    local start = now - fmod(now, second)
    local count, healed = 0, false
    local stored = pcall('GET', key)
    if type(stored) == 'string' then
      local mark, stored_count = match(stored, '^(%d+):(%d+)$')
      mark, stored_count = tonumber(mark), tonumber(stored_count)
      if mark and mark <= EXACT_MAX and stored_count <= EXACT_MAX and mark >= start then
        count, healed = stored_count, mark > start
      end
    end
    plan = { admitted = cost <= limit - count, healed = healed, count = count, start = start, ends = start + second }

  else -- log: a list of time:before:after, oldest first; before and after are running totals
    local window, horizon = second, now - second
    -- The first entry from low to high whose time, or running total after it, reaches bound; the one at high does.
    local function seek(low, high, bound, by_total)
      local step, mark, before = 0, nil, nil
      repeat
        local probe = low + step
        if probe >= high then probe = floor((low + high) / 2) end
        local time, total_before, total_after = match(call('LINDEX', key, probe), '^(%d+):(%d+):(%d+)$')
        local reached = tonumber(by_total and total_after or time) or 0
        if reached >= bound or probe == high then
          high, mark, before = probe, tonumber(time), tonumber(total_before)
        else
          low, step = probe + 1, step * 2 + 1
        end
      until mark and low >= high
      return low, mark, before
    end

    local used, total, first, head, tail, healed = 0, 0, 0, nil, nil, false
    local stored = pcall('LINDEX', key, -1)
    if type(stored) == 'string' then
      local newest, _, after = match(stored, '^(%d+):(%d+):(%d+)$')
      newest, after = tonumber(newest), tonumber(after)
      local oldest, before = match(call('LINDEX', key, 0), '^(%d+):(%d+):%d+$')
      oldest, before = tonumber(oldest), tonumber(before)
      if newest and oldest and newest <= EXACT_MAX and after <= EXACT_MAX and before <= after and newest > horizon then
        total, head, tail = after, oldest, newest
        local last
        if newest > now then
          -- The clock stepped back: everything ahead becomes one entry at now.
          local ahead
          last, _, ahead = seek(0, call('LLEN', key) - 1, now + 1)
          call('LSET', key, last, format('%.0f:%.0f:%.0f', now, ahead, total))
          call('LTRIM', key, 0, last)
          tail, healed = now, true
          if last == 0 then head = now end
        end
        if head <= horizon then
          last = last or call('LLEN', key) - 1
          first, head, before = seek(1, last, horizon + 1)
        end
        used = total - before
      end
    end
    plan = { admitted = cost <= limit - used, healed = healed, used = used, total = total, first = first, head = head,
      tail = tail, window = window, foreign = type(stored) == 'table' }
    if head then
      plan.reset = head + window - now
      if not plan.admitted then
        local last = call('LLEN', key) - 1
        local amount = cost < limit and cost or limit
        local _, leaves = seek(first, last, total + amount - limit, true)
        plan.retry = leaves + window - now
        if used > limit then
          _, leaves = seek(first, last, total + 1 - limit, true)
          plan.reset = leaves + window - now
        end
      end
    end
  end

  plan.cost, plan.limit = cost, limit
  plans[i] = plan
  if not plan.admitted and argv[at + 1] == '1' then allowed = false end
end

-- 2. Charge all that admit, or none, and answer.
local reply = { argv[1] }
for i = 1, #keys do
  local key, plan = keys[i], plans[i]
  local algorithm = argv[i * 7 - 5]
  local admitted, limit, cost = plan.admitted, plan.limit, plan.cost
  local charged = allowed and admitted
  local write = charged or plan.healed
  local amount = cost < limit and cost or limit
  local remaining, reset, retry, fresh, text = 0, 0, 0, now, nil

  if algorithm == 'bucket' then
    local level, full, unit, refill, quantum, mark = plan.level, plan.full, plan.unit, plan.refill, plan.quantum, plan.mark
    if charged then level = level - cost * unit end
    remaining = (level - fmod(level, unit)) / unit
    if remaining < limit then reset = mark + ceil_div((remaining + 1) * unit - level, refill) * quantum - now end
    if not admitted and amount > remaining then
      retry = mark + ceil_div(amount * unit - level, refill) * quantum - now
    end
    fresh = mark + ceil_div(full - level, refill) * quantum
    if write then text = format('%.0f:%.0f:%.0f', level, mark, unit) end

  elseif algorithm == 'counter' then
    local current, previous, start, covered = plan.current, plan.previous, plan.start, plan.covered
    local quanta, quantum, window = plan.quanta, plan.quantum, plan.window
    if charged then current = current + cost end
    local function wait(wanted)
      local ends, spent, room = start + window, previous, limit - wanted
      if room >= current then
        room = room - current
      else
        ends, spent = ends + window, current
      end
      room = room * quanta
      local still = (room - fmod(room, spent)) / spent
      return ends - still * quantum - now
    end
    local used = current + ceil_div(previous * covered, quanta)
    if used < limit then remaining = limit - used end
    if remaining < limit then reset = wait(remaining + 1) end
    if not admitted and amount > remaining then retry = wait(amount) end
    fresh = start
    if current > 0 then
      fresh = start + 2 * window
    elseif previous > 0 then
      fresh = start + window
    end
    if write then text = format('%.0f:%.0f:%.0f', start, current, previous) end

  elseif algorithm == 'window' then
    local count, ends = plan.count, plan.ends
    if charged then count = count + cost end
    if count < limit then remaining = limit - count end
    if remaining < limit then reset = ends - now end
    if not admitted and amount > remaining then retry = ends - now end
    fresh = count > 0 and ends or plan.start
    if write then text = format('%.0f:%.0f', plan.start, count) end

  else -- log
    local used, total, window, first = plan.used, plan.total, plan.window, plan.first
    reset, retry = plan.reset or 0, plan.retry or 0
    if plan.tail then fresh = plan.tail + window end
    if charged then
      if plan.foreign then
        call('SET', key, '')
        call('DEL', key)
      end
      call('RPUSH', key, format('%.0f:%.0f:%.0f', now, total, total + cost))
      if not plan.head then first, reset = -1, window end
      used, fresh = used + cost, now + window
    end
    if write and first ~= 0 then call('LTRIM', key, first, -1) end
    if used < limit then remaining = limit - used end
  end

  local lifetime = fresh > now and floor((fresh - now) / 1000) + 1 or 0
  if text then
    call('SET', key, text, 'PX', floor(lifetime + SLACK_MS))
  else
    -- Heals a key that would never expire, or too early because the limit's numbers or the clock have changed.
    local expires = write and -1 or call('PTTL', key)
    if expires ~= -2 and expires < lifetime then call('PEXPIRE', key, floor(lifetime + SLACK_MS)) end
  end

  local at = i * 4 - 2
  reply[at], reply[at + 1] = admitted and 1 or 0, floor(remaining)
  reply[at + 2], reply[at + 3] = floor(reset), floor(retry)
end
return reply
