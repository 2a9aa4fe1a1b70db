-- Sliding log: the time of each unit. Its state is too large to return, so the script looks up the data for the decisions.
--
-- ARGV[2]  the limit
-- ARGV[3]  the window in microseconds
-- ARGV[4]  1 if refused requests are not recorded
-- ARGV     the requests of a key as in the other scripts, and pairs n c with two more meanings:
--            c = 0    takes as many of n units as there is room for
--            c = -1   asks whether n units would pass
--            c = -2   asks so and moves times ahead of now to now
-- stored   a list of microseconds since 1970, oldest first, one for each unit, at most limit of them
-- reply    of each key: how many units count, the latest time, and then, in the order of the requests, for each that
--          was refused the time that must leave the window for it to pass, and for each refund the latest time after
--          it, if one is left; separated by spaces. Times ahead of now mean now.

local limit, window, only_accepted = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1'
local oldest = now - window -- this and older ones no longer count
local now_text = format(WHOLE, now)
local UNREADABLE = {}
local nows = {} -- now_text again and again

-- Of the key in hand: its first entry that counts, how many do, the latest time, and whether it was written.
local key, first, have, latest, changed

local function entry(i)
  local text = call('LINDEX', key, i)
  if not text or not find(text, '^%d+$') then
    error(UNREADABLE)
  end
  return text
end

-- up_to is how many of the first length entries are not later than an instant.
local function up_to(instant, length)
  if tonumber(entry(0)) > instant then
    return 0
  end
  local low, high = 0, 1 -- entry low is not later
  while high < length and tonumber(entry(high)) <= instant do
    low, high = high, high * 2
  end
  high = min(high, length)
  while high - low > 1 do
    local middle = floor((low + high) / 2)
    if tonumber(entry(middle)) <= instant then
      low = middle
    else
      high = middle
    end
  end
  return high
end

-- cut keeps n entries, beginning with entry from.
local function cut(from, n)
  if n > 0 then
    call('LTRIM', key, from, from + n - 1)
  else
    call('DEL', key)
  end
end

local function push(n)
  changed, latest = true, now
  for i = #nows + 1, min(n, 1000) do -- unpack has a limit
    nows[i] = now_text
  end
  while n > 0 do
    call('RPUSH', key, unpack(nows, 1, min(n, 1000)))
    n = n - 1000
  end
end

-- record adds n units and drops what is too old to matter.
local function record(n)
  n = min(n, limit)
  local room = limit - n
  if have > room then
    cut(have - room, room)
    have = room
  end
  push(n)
  have = have + n
end

-- tidy drops what no longer counts, and moves what lies ahead of now to now.
local function tidy()
  if first > 0 then
    cut(first, have)
    first = 0
  end
  if have > 0 and latest > now then
    local past = up_to(now, have)
    cut(0, past)
    push(have - past)
  end
end

local function take(n, times, say)
  local granted = min(times, floor((limit - have) / n))
  if granted > 0 then
    record(n * granted)
  end
  local refused = times - granted
  if refused == 0 then
    return
  end
  if only_accepted then
    local text = entry(have + n - limit - 1)
    for _ = 1, refused do
      say(text)
    end
    return
  end
  -- Each refused request pushes n entries out at the front, so the one it waits for is n further on than the last one's.
  for i = 1, refused do
    local wanted = have - limit + n * (i + 1) - 1
    say(wanted < have and entry(wanted) or now_text)
  end
  record(n * refused)
end

local function take_up_to(n, say)
  local free = limit - have
  if free > 0 and only_accepted then
    record(min(n, free))
  elseif free > 0 then
    record(n)
  elseif only_accepted then
    say(entry(0))
  else
    say(n < have and entry(n) or now_text)
    record(n)
  end
end

local function refund(n, say)
  have = max(0, have - n)
  cut(0, have)
  changed = true
  if have > 0 then
    local text = entry(-1)
    latest = tonumber(text)
    say(text)
  end
end

local function decide(requests)
  local length = redis.pcall('LLEN', key)
  if type(length) == 'table' then
    local text = redis.pcall('GET', key)
    if type(text) ~= 'string' or not former(text) then
      error(UNREADABLE)
    end
    call('DEL', key)
    length = 0
  end
  first, latest, changed = 0, 0, false
  if length > 0 then
    latest = tonumber(entry(-1))
    first = max(up_to(oldest, length), length - limit)
  end
  have = length - first

  local said = { format(WHOLE .. ' ' .. WHOLE, have, latest) }
  local function say(text)
    said[#said + 1] = text
  end
  local function step(n, times)
    if n > 0 and times < 0 then
      if times < -1 and latest > now then
        tidy()
      end
      local excess = have + n - limit
      if excess > 0 then
        say(entry(first + excess - 1))
      end
      return
    end
    tidy()
    if n < 0 then
      refund(-n, say)
    elseif times == 0 then
      take_up_to(n, say)
    else
      take(n, times, say)
    end
  end

  local n = tonumber(requests)
  if n then
    step(n, 1)
  else
    for cost, times in string.gmatch(requests, '(%-?%d+) (%-?%d+)') do
      step(tonumber(cost), tonumber(times))
    end
  end
  if changed and have > 0 then
    call('PEXPIRE', key, lifetime(latest + window - now))
  end
  return table.concat(said, ' ')
end

local said = { now_text }
for i, name in ipairs(KEYS) do
  key = name
  local ok, text = pcall(decide, ARGV[4 + i])
  if not ok then
    if text ~= UNREADABLE then
      error(text)
    end
    text = '?'
  end
  said[i + 1] = text
end
return table.concat(said, ';')
