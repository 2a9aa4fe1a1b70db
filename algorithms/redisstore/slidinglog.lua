-- Sliding log: when units were taken. Its state is too large to return, so the script looks up the data for the decisions.
--
-- ARGV[2]  the limit
-- ARGV[3]  the window in microseconds
-- ARGV[4]  1 if refused requests are not recorded
-- ARGV[5]  microseconds whose instants are one, the latest of them
-- ARGV     the requests of a key as in the other scripts, and pairs n c with two more meanings:
--            c = 0    takes as many of n units as there is room for
--            c = -1   asks whether n units would pass
--            c = -2   asks so and moves times ahead of now to now
-- stored   a list: a number of units, and then of each instant, oldest first, the microseconds since 1970 and the
--          units until then; so those of an instant are the number after it less the one before it
-- reply    of each key: how many units count, the latest time, and then, in the order of the requests, for each that
--          was refused the time that must leave the window for it to pass, and for each refund the latest time after
--          it, if one is left; separated by spaces. Times ahead of now mean now.

local limit, window, only_accepted, grain = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1', tonumber(ARGV[5])
local oldest = now - window -- this and older ones no longer count
local now_text = format(WHOLE, now)
local UNREADABLE = {}

-- Of the key in hand: how many instants it has, the first one that counts, how many units do, whether the list has
-- others, the units until the latest instant, that instant, and whether it was written.
local key, instants, first, have, more, total, latest, changed

local function whole(text)
  if not text or not find(text, '^%d+$') then
    error(UNREADABLE)
  end
  return tonumber(text)
end

local function number(i)
  return whole(call('LINDEX', key, i))
end

local function before(i) return number(2 * i) end
local function time(i) return number(2 * i + 1) end
local function later(i) return total - number(2 * i + 2) end

-- search returns the first instant from one on of which past is true, or their number.
local function search(from, past)
  local low, high, probe = from, instants, from -- mostly it is the first
  while low < high do
    if past(probe) then
      high = probe
    else
      low = probe + 1
    end
    probe = floor((low + high) / 2)
  end
  return low
end

local function after(t)
  if latest <= t then
    return instants
  end
  return search(0, function(i) return time(i) > t end)
end

-- find_last returns the instant of the n-th last unit.
local function find_last(n)
  return search(first, function(i) return later(i) < n end)
end

-- one reports whether units of now are one with those of the latest instant.
local function one()
  return have > 0 and latest - latest % grain == now - now % grain
end

local function clear()
  call('DEL', key)
  instants, first, have, more, total = 0, 0, 0, false, 0
end

-- keep drops all but the n latest units.
local function keep(n)
  if n <= 0 then
    clear()
    return
  end
  local i = find_last(n)
  if i > 0 then
    call('LTRIM', key, 2 * i, -1)
  end
  instants, first, have, more = instants - i, 0, n, false
  if before(0) ~= total - n then
    call('LSET', key, 0, format(WHOLE, total - n))
  end
end

local function record(n)
  n = min(n, limit)
  if have > limit - n then
    keep(limit - n)
  end
  local sum = format(WHOLE, total + n)
  if one() then
    call('LSET', key, -2, now_text)
    call('LSET', key, -1, sum)
  elseif instants > 0 then
    call('RPUSH', key, now_text, sum)
    instants = instants + 1
  else
    call('RPUSH', key, '0', now_text, sum)
    instants = 1
  end
  changed, have, total, latest = true, have + n, total + n, now
end

-- tidy drops what no longer counts, and moves what lies ahead of now to now.
local function tidy()
  if more then
    keep(have)
  end
  if have > 0 and latest > now then
    local past = after(now)
    call('LTRIM', key, 0, 2 * past)
    call('RPUSH', key, now_text, format(WHOLE, total))
    changed, instants, latest = true, past + 1, now
  end
end

-- refused returns the time that a request waits for after it and others have recorded n units: that of the unit which
-- then is the last but as many.
local function refused(last, n)
  if last <= n then
    return now_text
  end
  local i = find_last(last - n)
  if n > 0 and i == instants - 1 and one() then
    return now_text
  end
  return format(WHOLE, time(i))
end

local function take(n, times, say)
  local granted = min(times, floor((limit - have) / n))
  if granted > 0 then
    record(n * granted)
  end
  local others = times - granted
  if others == 0 then
    return
  end
  if only_accepted then
    local text = refused(limit - n + 1, 0)
    for _ = 1, others do
      say(text)
    end
    return
  end
  for i = 1, others do
    say(refused(limit - n + 1, n * i))
  end
  record(n * others)
end

local function take_up_to(n, say)
  local free = limit - have
  if free > 0 and only_accepted then
    record(min(n, free))
  elseif free > 0 then
    record(n)
  elseif only_accepted then
    say(refused(limit, 0))
  else
    say(refused(limit, n))
    record(n)
  end
end

local function refund(n, say)
  changed = true
  if n >= have then
    clear()
    return
  end
  local i = find_last(n + 1)
  latest, total, have, instants = time(i), total - n, have - n, i + 1
  call('LTRIM', key, 0, 2 * i + 1)
  call('RPUSH', key, format(WHOLE, total))
  say(format(WHOLE, latest))
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
  instants, first, have, more, total, latest, changed = 0, 0, 0, false, 0, 0, false
  if length > 0 then
    instants = (length - 1) / 2
    if instants < 1 or instants ~= floor(instants) then
      error(UNREADABLE)
    end
    local last = call('LRANGE', key, -2, -1)
    latest, total = whole(last[1]), whole(last[2])
    first = after(oldest)
    if first < instants then
      have = total - before(first)
    end
    more = first > 0 or have > limit
    have = min(have, limit)
  end

  local said = { format(WHOLE .. ' ' .. WHOLE, have, latest) }
  local function say(text)
    said[#said + 1] = text
  end
  local function step(n, times)
    if n > 0 and times < 0 then
      if times < -1 and latest > now then
        tidy()
      end
      if n > limit - have then
        say(refused(limit - n + 1, 0))
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
  local ok, text = pcall(decide, ARGV[5 + i])
  if not ok then
    if text ~= UNREADABLE then
      error(text)
    end
    text = '?'
  end
  said[i + 1] = text
end
return table.concat(said, ';')
