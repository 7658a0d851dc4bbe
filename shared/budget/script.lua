-- One portal's call budget: the arithmetic of window.go, on Redis' clock.
--
-- KEYS[1]  the portal's state, one string (window.go: encode)
-- ARGV[1]  what to do: reserve, refund or learn
-- ARGV[2]  window in ms, the guard included
-- ARGV[3]  1: a missing key is an unused window; 0: it counts as a window spent,
--          because a fail-over or a flush looks the same as an idle one
-- reserve: ARGV[4] lane, [5] n, [6] limit, [7] daily, [8..10] three resets of the day,
--          [11] id, [12] charge
-- refund:  ARGV[4] lane, [5] n
-- learn:   ARGV[4] calls that HubSpot has seen (-1: not stated), [5] ms to close
-- Answer:  {granted 0|1, wait in ms, reason, server's time in ms}
-- Three commands: TIME, GET, SET.

local SLOT, GUARD, RECENT, PACE, MAX_IDS, DAY, OPT_OUT_DAILY = 50, 1000, 2000, 1000, 32, 86400000, 20

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local what, window = ARGV[1], tonumber(ARGV[2])
local text = redis.call('GET', KEYS[1])

local s = {0, 0, 0, 0, 0, 0, 0}
local CLOSED, RESET, USED, OTHERS, OTHERS_UNTIL, WANT_OPT_OUT, WANT_LIVE = 1, 2, 3, 4, 5, 6, 7
local slots, ids = {}, {}
if text then
  local head, middle, tail = string.match(text, '^([^|]*)|([^|]*)|(.*)$')
  local i = 0
  for number in string.gmatch(head, '[^,]+') do
    i = i + 1
    s[i] = tonumber(number)
  end
  for index, out, rest in string.gmatch(middle, '(%d+):(%d+):(%d+)') do
    index = tonumber(index)
    if (index + 1) * SLOT + window > now then
      slots[#slots + 1] = {index, tonumber(out), tonumber(rest)}
    end
  end
  for id in string.gmatch(tail, '%S+') do ids[#ids + 1] = id end
elseif ARGV[3] ~= '1' then
  s[CLOSED] = now + window
end

local function number(n) return string.format('%.0f', n) end

local function save()
  local head, middle = {}, {}
  for i = 1, 7 do head[i] = number(s[i]) end
  for i, x in ipairs(slots) do middle[i] = number(x[1]) .. ':' .. number(x[2]) .. ':' .. number(x[3]) end
  local value = table.concat(head, ',') .. '|' .. table.concat(middle, ' ') .. '|' .. table.concat(ids, ' ')
  redis.call('SET', KEYS[1], value, 'PX', number(math.max(s[RESET] - now, 0) + 3600000))
end

local function take(lane, n)
  local index = math.floor(now / SLOT)
  if #slots == 0 or slots[#slots][1] ~= index then slots[#slots + 1] = {index, 0, 0} end
  local last = slots[#slots]
  if lane == 0 then last[2] = last[2] + n else last[3] = last[3] + n end
  s[USED] = s[USED] + n
end

if what == 'refund' then
  local lane, n = tonumber(ARGV[4]), tonumber(ARGV[5])
  local field = lane == 0 and 2 or 3
  for i = #slots, 1, -1 do
    local back = math.min(n, slots[i][field])
    slots[i][field] = slots[i][field] - back
    n = n - back
    s[USED] = math.max(s[USED] - back, 0)
    if n == 0 then break end
  end
  save()
  return {1, 0, '', now}
end

if what == 'learn' then
  local spent, close = tonumber(ARGV[4]), tonumber(ARGV[5])
  if close > 0 then s[CLOSED] = math.max(s[CLOSED], now + close) end
  if spent >= 0 then
    local ours = 0
    for _, x in ipairs(slots) do ours = ours + x[2] + x[3] end
    s[OTHERS], s[OTHERS_UNTIL] = math.max(spent - ours, 0), now + window - GUARD
  end
  save()
  return {1, 0, '', now}
end

local lane, n, limit, daily = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local id, charge = ARGV[11], tonumber(ARGV[12])

if now >= s[RESET] then
  s[USED], s[RESET] = 0, now + DAY
  for i = 8, 10 do
    if tonumber(ARGV[i]) > now then
      s[RESET] = tonumber(ARGV[i])
      break
    end
  end
end
if charge > 0 then take(2, charge) end
for _, known in ipairs(ids) do
  if known == id then
    save()
    return {1, 0, '', now}
  end
end

local function recent(at) return at > 0 and now - at < RECENT end

local function refuse(wait, reason)
  if lane == 0 then s[WANT_OPT_OUT] = now elseif lane == 1 then s[WANT_LIVE] = now end
  save()
  return {0, wait, reason, now}
end

if now < s[CLOSED] then return refuse(s[CLOSED] - now, 'closed') end
local dayLimit = daily
if lane ~= 0 then dayLimit = daily - math.floor(daily / OPT_OUT_DAILY) end
if s[USED] + n > dayLimit then return refuse(s[RESET] - now, 'daily') end

local used, optOuts, paced, pacedOptOuts, others = 0, 0, 0, 0, 0
for _, x in ipairs(slots) do
  used = used + x[2] + x[3]
  optOuts = optOuts + x[2]
  if (x[1] + 1) * SLOT + PACE > now then
    paced = paced + x[3]
    pacedOptOuts = pacedOptOuts + x[2]
  end
end
if now < s[OTHERS_UNTIL] then others = s[OTHERS] end
used = used + others

local tenth, share = math.floor(limit / 10), limit
if lane ~= 0 then
  share = share - math.max(math.floor(limit / 100), 1)
  if recent(s[WANT_OPT_OUT]) then share = share - tenth end
  if lane >= 2 and recent(s[WANT_LIVE]) then share = share - tenth end
  if lane == 3 then share = share - math.floor(limit / 2) end
end
if used + n > share then
  local missing, wait = used + n - share, nil
  for _, x in ipairs(slots) do
    missing = missing - x[2] - x[3]
    if missing <= 0 then
      wait = math.max((x[1] + 1) * SLOT + window - now, 1)
      break
    end
  end
  return refuse(wait or math.max(s[OTHERS_UNTIL] - now, SLOT), share == limit and 'burst' or 'share')
end
if lane == 0 and recent(s[WANT_LIVE]) and optOuts + n > limit - tenth then return refuse(2 * SLOT, 'share') end
local left = math.max(limit - others - math.max(optOuts, math.floor(pacedOptOuts * window / PACE)), 0)
if lane >= 2 and paced + n > math.max(math.ceil(left * 1100 / window), 1) then return refuse(SLOT, 'pace') end

take(lane, n)
ids[#ids + 1] = id
while #ids > MAX_IDS do table.remove(ids, 1) end
save()
return {1, 0, '', now}
