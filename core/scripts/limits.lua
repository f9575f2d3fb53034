
-- Decides `limits` limits: their keys are keys, their arguments begin at argv[2], 7 for each: algorithm, enforce (1 or
-- 0), cost, and four:
--   bucket   capacity, units of a token, units added each quantum, quantum in us
--   counter  limit, window in quanta, quantum in us, -
--   log      limit, window in us, -, -
--   slots    limit, lease in us, owner, -
--   window   limit, window in us, -, -
-- Leaves   allowed, and reply: { argv[1], then for each limit: admitted (1 or 0), remaining, reset in us, retry in us }
--
-- Numbers are doubles and every product is below 2^53 (the policy's loader sees to that), so all of this is exact; so
-- is a % b, because the multiple of b above a is below 2^53 too. What cannot be read at a key counts as absent.
local allowed, reply = true, nil

-- The first pass judges all limits but the first. The second judges that one and then knows: it charges all limits that
-- admit, or none, and answers.
for pass = 1, 2 do
  for i = 3 - pass, limits do
    local key, at = keys[i], i * 7 - 5
    local algorithm, cost, limit, second = argv[at], argv[at + 2] + 0, argv[at + 3] + 0, argv[at + 4] + 0
    local amount = cost < limit and cost or limit
    local admitted, charged, healed, text = false, false, false, nil
    local remaining, reset, retry, fresh = 0, 0, 0, now

    if algorithm == 'bucket' then
      local unit, refill, quantum = second, argv[at + 5] + 0, argv[at + 6] + 0
      local mark, full = now - now % quantum, limit * unit
      local level = full
      local stored = pcall('GET', key)
      if type(stored) == 'string' then
        local units, old_mark, old_unit = match(stored, '^(%d+):(%d+):(%d+)$')
        if units then units, old_mark, old_unit = units + 0, old_mark + 0, old_unit + 0 end
        if units and units <= EXACT_MAX and old_mark <= EXACT_MAX and old_unit <= EXACT_MAX and old_unit > 0 then
          if old_unit ~= unit then
            -- The refill has changed: keep whole tokens.
            local tokens = (units - math.fmod(units, old_unit)) / old_unit
            units = (tokens < limit and tokens or limit) * unit
          end
          local elapsed = (mark - old_mark - -old_mark % quantum) / quantum
          if elapsed < 0 then elapsed, healed = 0, true end
          if units < full then
            -- An inexact product is above full anyway.
            level = units + elapsed * refill
            if level > full then level = full end
          end
        end
      end
      admitted = cost * unit <= level
      if pass == 2 then
        charged = allowed and admitted
        if charged then level = level - cost * unit end
        remaining = (level - level % unit) / unit
        if remaining < limit then
          local missing = (remaining + 1) * unit - level
          reset = (missing + -missing % refill) / refill * quantum + mark - now
        end
        if not admitted and amount > remaining then
          local missing = amount * unit - level
          retry = (missing + -missing % refill) / refill * quantum + mark - now
        end
        local missing = full - level
        fresh = (missing + -missing % refill) / refill * quantum + mark
        if charged or healed then
          local mark_text = quantum == 1 and time[1] .. sub('000000' .. time[2], -6) or format('%.0f', mark)
          text = format('%.0f:', level) .. mark_text .. ':' .. argv[at + 4]
        end
      end

    elseif algorithm == 'counter' then
      local quanta, quantum = second, argv[at + 5] + 0
      local window = quanta * quantum
      local elapsed = now % window
      local start, covered = now - elapsed, quanta - (elapsed - elapsed % quantum) / quantum
      local current, previous, start_text = 0, 0, nil
      local stored = pcall('GET', key)
      if type(stored) == 'string' then
        local old_start, newer, older = match(stored, '^(%d+):(%d+):(%d+)$')
        local old
        if old_start then old, newer, older = old_start + 0, newer + 0, older + 0 end
        if old and old <= EXACT_MAX and newer <= EXACT_MAX and older <= EXACT_MAX then
          if old == start then
            current, previous, start_text = newer, older, old_start
          elseif old > start then
            current, previous, healed = newer, older, true
          elseif old + window >= start then
            previous = newer
          end
          if current > limit then current = limit end
          if previous > limit then previous = limit end
        end
      end
      admitted = previous * covered <= (limit - current - cost) * quanta
      if pass == 2 then
        charged = allowed and admitted
        if charged then current = current + cost end
        local weight = previous * covered
        remaining = limit - current - (weight + -weight % quanta) / quanta
        if remaining < 0 then remaining = 0 end
        local function wait(wanted)
          local ends, spent, room = start + window, previous, limit - wanted
          if room >= current then
            room = room - current
          else
            ends, spent = ends + window, current
          end
          room = room * quanta
          return ends - (room - room % spent) / spent * quantum - now
        end
        if remaining < limit then reset = wait(remaining + 1) end
        if not admitted and amount > remaining then retry = wait(amount) end
        if current > 0 then
          fresh = start + 2 * window
        elseif previous > 0 then
          fresh = start + window
        end
        if charged or healed then
          text = (start_text or format('%.0f', start)) .. format(':%.0f:%.0f', current, previous)
        end
      end

    elseif algorithm == 'window' then
      local elapsed = now % second
      local start, count, start_text = now - elapsed, 0, nil
      local stored = pcall('GET', key)
      if type(stored) == 'string' then
        local old_start, old_count = match(stored, '^(%d+):(%d+)$')
        local old
        if old_start then old, old_count = old_start + 0, old_count + 0 end
        if old and old <= EXACT_MAX and old_count <= EXACT_MAX then
          if old == start then
            count, start_text = old_count, old_start
          elseif old > start then
            count, healed = old_count, true
          end
        end
      end
      admitted = cost <= limit - count
      if pass == 2 then
        charged = allowed and admitted
        if charged then count = count + cost end
        if count < limit then remaining = limit - count end
        if remaining < limit then reset = second - elapsed end
        if not admitted and amount > remaining then retry = second - elapsed end
        if count > 0 then fresh = start + second end
        if charged or healed then text = (start_text or format('%.0f', start)) .. format(':%.0f', count) end
      end

    elseif algorithm == 'log' then -- a list of time:before:after, oldest first; before and after are running totals
      local window, horizon = second, now - second
      -- The first entry from low on whose time, or total after it, reaches bound. The newest entry always does.
      local function seek(low, bound, by_total)
        local step, high, reached, before = 0, nil, now, 0
        repeat
          local probe = low + step
          if high and probe >= high then probe = floor((low + high) / 2) end
          local entry = call('LINDEX', key, probe)
          local at_time, total_before, total_after = match(entry or '', '^(%d+):(%d+):(%d+)$')
          if not entry then
            high = probe
          elseif (tonumber(by_total and total_after or at_time) or 0) >= bound then
            high, reached, before = probe, tonumber(at_time), tonumber(total_before)
          else
            low, step = probe + 1, step * 2 + 1
          end
        until high and low >= high
        return low, reached, before
      end

      local used, total, first, oldest, before, newest = 0, '0', 0, nil, 0, nil
      local stored = pcall('LINDEX', key, '-1')
      if type(stored) == 'string' then
        local last_time, last_total = match(stored, '^(%d+):%d+:(%d+)$')
        local first_time, first_total = match(call('LINDEX', key, '0'), '^(%d+):(%d+):%d+$')
        local last, after, start
        if last_time and first_time then last, after, start = last_time + 0, last_total + 0, first_total + 0 end
        if last and last <= EXACT_MAX and start <= after and after <= EXACT_MAX and last > horizon then
          total, oldest, before, newest = last_total, first_time + 0, start, last
          if oldest <= horizon then first, oldest, before = seek(1, horizon + 1) end
          used = after - before
        end
      end
      admitted = cost <= limit - used
      if pass == 2 then
        charged = allowed and admitted
        if newest and newest > now then
          -- The clock stepped back: everything ahead becomes one entry at now.
          local last, _, ahead = seek(first, now + 1)
          call('LSET', key, last, format('%.0f:%.0f:', now, ahead) .. total)
          call('LTRIM', key, first, last)
          first, newest, healed = 0, now, true
          if oldest > now then oldest = now end
        end
        if oldest then
          reset, fresh = oldest + window - now, newest + window
          if not admitted then
            local _, leaves = seek(first, total + amount - limit, true)
            retry = leaves + window - now
            if used > limit then
              _, leaves = seek(first, total + 1 - limit, true)
              reset = leaves + window - now
            end
          end
        end
        if charged then
          if type(stored) == 'table' then
            -- A foreign type. A growing write comes first, so that a store without memory refuses the whole decision.
            call('SET', key, '')
            call('DEL', key)
          end
          local now_text = time[1] .. sub('000000' .. time[2], -6)
          call('RPUSH', key, now_text .. ':' .. total .. format(':%.0f', total + cost))
          if not oldest then
            if type(stored) == 'string' then call('LTRIM', key, '-1', '-1') end
            reset = window
          elseif first == 1 then
            call('LPOP', key)
          elseif first > 1 then
            call('LTRIM', key, first, '-1')
          end
          used, fresh = used + cost, now + window
        end
        if used < limit then remaining = limit - used end
      end

    else -- slots: a sorted set of owners, each with its deadline; cost is one
      local owner, latest = argv[at + 5], now + second
      local used = pcall('ZCOUNT', key, format('(%.0f', now), '+inf')
      local foreign, mine = type(used) == 'table', false
      if foreign then
        used = 0
      else
        local deadline = call('ZSCORE', key, owner)
        mine = deadline and deadline + 0 > now
      end
      admitted = mine or used < limit
      if pass == 2 then
        charged = allowed and admitted
        if not foreign then
          -- The clock stepped back: nobody holds longer than from now on.
          local ahead = call('ZRANGEBYSCORE', key, format('(%.0f', latest), '+inf')
          for one = 1, #ahead do call('ZADD', key, format('%.0f', latest), ahead[one]) end
        end
        if charged then
          if foreign then
            call('SET', key, '')
            call('DEL', key)
          end
          call('ZADD', key, format('%.0f', latest), owner)
          call('ZREMRANGEBYSCORE', key, '-inf', format('%.0f', now))
          if not mine then used = used + 1 end
        end
        if used < limit then remaining = limit - used end
        if used > 0 then
          local earliest = call('ZRANGEBYSCORE', key, format('(%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
          local newest = call('ZRANGE', key, '-1', '-1', 'WITHSCORES')
          reset, fresh = earliest[2] - now, newest[2] + 0
          -- A holder may release at any moment.
          if not admitted then retry = reset < 1000000 and reset or 1000000 end
        end
      end
    end

    if not admitted and argv[at + 1] == '1' then allowed = false end
    if pass == 2 then
      local lifetime = fresh > now and floor((fresh - now) / 1000) + 1 or 0
      local expires = call('PTTL', key)
      if expires >= lifetime + MARGIN_MS then
        if text then call('SET', key, text, 'KEEPTTL') end
      elseif text then
        call('SET', key, text, 'PX', format('%.0f', lifetime + RENEWED_MS))
      elseif expires ~= -2 then
        call('PEXPIRE', key, format('%.0f', lifetime + RENEWED_MS))
      end
      local verdict = admitted and 1 or 0
      if i == 1 then
        reply = { argv[1], verdict, floor(remaining), floor(reset), floor(retry) }
      else
        local place = i * 4 - 2
        reply[place], reply[place + 1] = verdict, floor(remaining)
        reply[place + 2], reply[place + 3] = floor(reset), floor(retry)
      end
    end
  end
end
