-- Fixed window: how many units passed in a window.
--
-- ARGV[2]  the limit
-- ARGV[3]  the window in microseconds
-- ARGV[4]  how much later than a Monday's its windows begin, in microseconds
-- stored   the window's start in microseconds since 1970 ':' the units

local limit, window, offset = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local current = window_start(now, window, offset)
local current_text, PAIR = format(WHOLE, current), WHOLE .. ':' .. WHOLE

local function parse(text)
  if not text then
    return 0, 0
  end
  local start, used = match(text, '^(%d+):(%d+)$')
  return start == current_text and current or tonumber(start), tonumber(used)
end

local function load(start, used)
  start = load_start(start, window, offset)
  if start < current or used == 0 then
    return current, 0
  end
  return start, used
end

local function take(start, used, _, n, times)
  local granted = n * min(times, floor(max(0, limit - used) / n))
  return start, used + granted, nil, granted
end

local function refund(start, used, _, n)
  if n >= used then
    return current, 0
  end
  return start, used - n
end

local function keep(start, used)
  if used == 0 then
    return nil
  end
  return format(PAIR, start, used), lifetime(start + window - now)
end

return answer(5, { parse = parse, load = load, take = take, refund = refund, keep = keep })
