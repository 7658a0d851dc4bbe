-- One portal's call budget: the arithmetic of window.go and share.go, on Redis' clock.
--
-- KEYS[1]  the portal's state, one string:
--            closedUntil,dayReset,dayUsed,dayCap,dayCapUntil,burstCap,burstUntil,wantOptOut,wantLive,restNext
--            |at:optOut:rest ...        (slots)
--            |at:lane:n:id ...          (known reservations)
-- ARGV[1]  what to do: reserve, refund or learn
-- ARGV[2]  window in ms, the guard included
-- ARGV[3]  1: a missing key is an unused window; 0: it counts as a window spent,
--          because a fail-over or a flush looks the same as an idle one
-- reserve: ARGV[4] lane, [5] n, [6] limit, [7] daily, [8..10] three resets of the day,
--          [11] id, [12] charge, [13] elsewhere
-- refund:  ARGV[4] id, [5] calls to keep
-- learn:   ARGV[4] calls left in HubSpot's window, [5] left of the day (-1: not
--          stated), [6] ms to close
-- Answer:  {granted 0|1, wait in ms, reason}
-- Three commands: TIME, GET, SET.

local SLOT, GUARD, RECENT, KNOWN, MAX_KNOWN = 100, 1000, 2000, 3000, 64
local DAY, DAY_CAP, KEEP = 86400000, 300000, 7 * 86400000
local FLOOR_PART, FLOOR_MS, OPT_OUT_DAILY, WAIT_SHARE = 8, 1000, 20, 200
local LIVE_EARLY, BULK_EARLY, PUSH_MOST = 1000000, 200000, 2000000

local floor, max, min = math.floor, math.max, math.min
local time = redis.call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
local what, window = ARGV[1], tonumber(ARGV[2])

local s = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
local CLOSED, RESET, USED, DAY_CAP_N, DAY_CAP_UNTIL = 1, 2, 3, 4, 5
local BURST_CAP, BURST_UNTIL, WANT_OPT_OUT, WANT_LIVE, REST_NEXT = 6, 7, 8, 9, 10
local slots, known = {}, {}

local text = redis.call('GET', KEYS[1])
local head, middle, tail
if text then head, middle, tail = string.match(text, '^([%d,]+)|([^|]*)|(.*)$') end
if head then
  local i = 0
  for number in string.gmatch(head, '%d+') do
    i = i + 1
    s[i] = tonumber(number)
  end
  -- Each keeps its text, to be written as it is unless it changes: formatting is half
  -- of the script's time.
  for raw, at, out, rest in string.gmatch(middle, '((%d+):(%d+):(%d+))') do
    slots[#slots + 1] = {tonumber(at), tonumber(out), tonumber(rest), text = raw}
  end
  for raw, at, lane, n, id in string.gmatch(tail, '((%d+):(%d+):(%d+):(%S+))') do
    known[#known + 1] = {tonumber(at), tonumber(lane), tonumber(n), id, text = raw}
  end
elseif ARGV[3] ~= '1' then
  s[CLOSED] = now + window
end

local function text_of(n) return string.format('%.0f', n) end

local function answer(granted, wait, reason)
  local a, b, c = {}, {}, {}
  for i = 1, #s do a[i] = text_of(s[i]) end
  for i, x in ipairs(slots) do b[i] = x.text or text_of(x[1]) .. ':' .. text_of(x[2]) .. ':' .. text_of(x[3]) end
  for i, k in ipairs(known) do c[i] = k.text or text_of(k[1]) .. ':' .. text_of(k[2]) .. ':' .. text_of(k[3]) .. ':' .. k[4] end
  local value = table.concat(a, ',') .. '|' .. table.concat(b, ' ') .. '|' .. table.concat(c, ' ')
  redis.call('SET', KEYS[1], value, 'PX', text_of(max(s[RESET] - now, 0) + KEEP))
  return {granted, wait, reason}
end

local function find(id)
  for i, k in ipairs(known) do
    if k[4] == id then return i end
  end
end

local function field(lane) return lane == 0 and 2 or 3 end

local function drop(at, lane, n)
  for _, x in ipairs(slots) do
    if floor(x[1] / SLOT) == floor(at / SLOT) then
      x[field(lane)], x.text = max(x[field(lane)] - n, 0), nil
      return
    end
  end
end

local function take(lane, n, id)
  if #slots == 0 or floor(slots[#slots][1] / SLOT) ~= floor(now / SLOT) then slots[#slots + 1] = {now, 0, 0} end
  local last = slots[#slots]
  last[1], last[field(lane)], last.text = now, last[field(lane)] + n, nil
  known[#known + 1] = {now, lane, n, id}
  while #known > MAX_KNOWN do table.remove(known, 1) end
end

if what == 'refund' then
  local i, keep = find(ARGV[4]), tonumber(ARGV[5])
  if i and known[i][3] > keep then
    local k = known[i]
    drop(k[1], k[2], k[3] - keep)
    s[USED] = max(s[USED] - (k[3] - keep), 0)
    k[3], k.text = keep, nil
    if keep == 0 then table.remove(known, i) end
  end
  return answer(1, 0, '')
end

if what == 'learn' then
  local remaining, day_left, close = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
  if close > 0 then s[CLOSED] = max(s[CLOSED], now + close) end
  if remaining >= 0 then
    local ours = remaining
    for _, x in ipairs(slots) do
      if x[1] + window > now then ours = ours + x[2] + x[3] end
    end
    s[BURST_CAP], s[BURST_UNTIL] = ours, now + window - GUARD
  end
  if day_left >= 0 then s[DAY_CAP_N], s[DAY_CAP_UNTIL] = s[USED] + day_left, now + DAY_CAP end
  return answer(1, 0, '')
end

local lane, n, daily = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[7])
local whole, id, charge, elsewhere = tonumber(ARGV[6]), ARGV[11], tonumber(ARGV[12]), tonumber(ARGV[13])

-- what is over leaves
local kept = {}
for _, x in ipairs(slots) do
  if x[1] + window > now then kept[#kept + 1] = x end
end
slots, kept = kept, {}
for _, k in ipairs(known) do
  if k[1] + KNOWN > now then kept[#kept + 1] = k end
end
known = kept
if now >= s[RESET] then
  s[USED], s[DAY_CAP_UNTIL], s[RESET] = 0, 0, now + DAY
  for i = 8, 10 do
    if tonumber(ARGV[i]) > now then
      s[RESET] = tonumber(ARGV[i])
      break
    end
  end
end

local limit = whole
if now < s[BURST_UNTIL] then limit = min(whole, s[BURST_CAP]) end
s[USED] = s[USED] + charge
if elsewhere > 0 then
  s[BURST_CAP], s[BURST_UNTIL] = max(min(limit, whole - elsewhere), 1), now + window
  limit = min(whole, s[BURST_CAP])
end

local i = find(id)
if i then
  local k = table.remove(known, i)
  drop(k[1], k[2], k[3])
  take(k[2], k[3], k[4])
  return answer(1, 0, '')
end

local function recent(at) return at > 0 and now - at < RECENT end

local function refuse(wait, reason)
  if lane == 0 then s[WANT_OPT_OUT] = now elseif lane == 1 then s[WANT_LIVE] = now end
  return answer(0, wait, reason)
end

local function wait_for(soon, missing)
  for _, x in ipairs(slots) do
    local leaves = x[1] + window - soon
    if leaves > now then
      missing = missing - x[2] - x[3]
      if missing <= 0 then return leaves - now end
    end
  end
  return max(s[BURST_UNTIL] - now, SLOT)
end

if now < s[CLOSED] then return refuse(s[CLOSED] - now, 'closed') end

local day_used = s[USED] + n
if lane ~= 0 then day_used = day_used + floor(daily / OPT_OUT_DAILY) end
if day_used > daily then return refuse(s[RESET] - now, 'daily') end
if now < s[DAY_CAP_UNTIL] and day_used > s[DAY_CAP_N] then
  return refuse(min(s[DAY_CAP_UNTIL], s[RESET]) - now, 'daily')
end

local used, opt_outs = 0, 0
for _, x in ipairs(slots) do
  used = used + x[2] + x[3]
  opt_outs = opt_outs + x[2]
end
local tenth, share = floor(limit / 10), limit
local within = lane == 1 and used - opt_outs + n <= tenth
if lane ~= 0 and not within then
  if recent(s[WANT_OPT_OUT]) then share = share - tenth end
  if lane >= 2 and recent(s[WANT_LIVE]) then share = share - tenth end
  if lane == 3 then share = share - floor(limit / 2) end
  share = max(share, min(limit, 1))
end
if used + n > share then return refuse(wait_for(0, used + n - share), share == limit and 'burst' or 'share') end
if lane == 0 and recent(s[WANT_LIVE]) and opt_outs + n > limit - tenth then return refuse(WAIT_SHARE, 'share') end

if lane ~= 0 and not within then
  for urgent = 1, min(lane, 2) do
    local soon = urgent * FLOOR_MS
    local missing = min(urgent * max(floor(limit * FLOOR_PART / 100), 1), max(limit - 1, 0)) - (limit - used - n)
    for _, x in ipairs(slots) do
      if x[1] + window <= now + soon then missing = missing - x[2] - x[3] end
    end
    if missing > 0 then return refuse(wait_for(soon, missing), 'share') end
  end
  local early = s[REST_NEXT] - now * 1000 - (lane == 1 and LIVE_EARLY or BULK_EARLY)
  if early > 0 then return refuse(math.ceil(early / 1000), 'pace') end
end

local next_at = max(s[REST_NEXT], now * 1000) + n * max(floor(window * 10000 / (whole * 11)), 1)
if lane == 0 then next_at = max(s[REST_NEXT], min(next_at, now * 1000 + PUSH_MOST)) end
s[REST_NEXT] = next_at
take(lane, n, id)
s[USED] = s[USED] + n
return answer(1, 0, '')
