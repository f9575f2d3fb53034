
-- Admits one request: looks at its claims, decides its limits, takes the claims; or changes nothing but the clock's
-- faults. A request that finds its own claim has been here before: it is not charged again and keeps its fences.
--
-- KEYS     one for each limit, one for the replay limit if there is one, then for each claim its record and its fence
-- ARGV[1]  tag, echoed first
-- ARGV     then 7 for each limit and the replay limit,
--          then 9 for each claim: kind (idem or lock), owner, head and body of the fingerprint (body may be ''),
--            recipe, lease in us, expiry in ms, on unknown (reject or retry), floor of the fence,
--          then the number of limits, the number of claims
-- Returns  { tag, word, fields, then 4 for each limit that was decided }
--   new, mine                 for each claim: fence, attempt
--   denied, limited           by a limit; by the replay limit
--   busy                      index of the claim from 0, rest of its holder's lease in us
--   mismatch, unknown, corrupt  index of the claim
--   done                      status, headers, body, encoding
--   sealed                    status, headers, reason
-- mine, busy and what follows decide none of the limits; what an idempotency record answers decides the replay limit.
local n, claims = ARGV[#ARGV - 1] + 0, ARGV[#ARGV] + 0
local keys, argv, limits = KEYS, ARGV, n
local replay_limits = #KEYS - n - 2 * claims
local first_key, first_argument = n + replay_limits, 2 + 7 * (n + replay_limits)

local function differs(record, head, body, recipe)
  if record.recipe ~= recipe then return false end
  return record.head ~= head or record.body ~= body and record.body ~= '' and body ~= ''
end

-- What a finished record answers.
local function finished(key, record)
  if record.state == 'S' then return { argv[1], 'sealed', record.status, record.headers, record.reason } end
  return { argv[1], 'done', record.status, record.headers, call('HGET', key, 'b'), record.encoding }
end

local found, outcome, again, charges_replay = {}, nil, false, false
for i = 1, claims do
  local key, at = KEYS[first_key + 2 * i - 1], first_argument + 9 * (i - 1)
  local is_lock, record, word = argv[at] == 'lock', read(key), nil
  found[i] = record
  if record == false or record and is_lock and record.state ~= 'R' then
    word = 'corrupt'
  elseif record and record.state == 'R' and record.owner == argv[at + 1] then
    again = true
  elseif record then
    local rest = record.deadline - now
    if not is_lock and differs(record, argv[at + 2], argv[at + 3], argv[at + 4]) then
      word = 'mismatch'
    elseif record.state ~= 'R' then
      outcome = finished(key, record)
    elseif rest > 0 then
      outcome = { argv[1], 'busy', i - 1, floor(rest) }
      if record.healed then pcall('HSET', key, 'd', format('%.0f', record.deadline)) end
    elseif not is_lock and argv[at + 7] ~= 'retry' then
      word = 'unknown'
    end
  end
  if word then outcome = { argv[1], word, i - 1 } end
  if outcome then
    charges_replay = not is_lock and word ~= 'corrupt' and replay_limits == 1
    break
  end
end

if charges_replay then
  keys, argv, limits = { KEYS[n + 1] }, { ARGV[1] }, 1
  for i = 1, 7 do argv[i + 1] = ARGV[7 * n + i + 1] end
  -- A store without memory still answers from what it has.
  call = pcall
elseif outcome or again then
  limits = 0
end
