-- Sliding counter: the units that passed in a window of the clock, and in the previous one.
--
-- ARGV[2]  the limit
-- ARGV[3]  the window in microseconds
-- stored   the window's start in microseconds since 1970 ':' the units before it ':' the units in it

local limit, window = tonumber(ARGV[2]), tonumber(ARGV[3])
local current_start = window_start(now, window)
local current_text, TRIPLE = format(WHOLE, current_start), WHOLE .. ':' .. WHOLE .. ':' .. WHOLE

local function parse(text)
  if not text then
    return 0, 0, 0
  end
  local start, previous, current = match(text, '^(%d+):(%d+):(%d+)$')
  return start == current_text and current_start or tonumber(start), tonumber(previous), tonumber(current)
end

local function load(start, previous, current)
  start = load_start(start, window)
  if previous == 0 and current == 0 or start < current_start - window then
    return current_start, 0, 0
  end
  if start < current_start then
    return current_start, current, 0
  end
  return start, previous, current
end

local function take(start, previous, current, n, times)
  local weighted = mul_div(previous, window - max(0, now - start), window)
  local free = max(0, limit - weighted - current)
  local granted = n * min(times, floor(free / n))
  return start, previous, current + granted, granted
end

local function refund(start, previous, current, n)
  if n >= previous + current then
    return current_start, 0, 0
  end
  local latest = min(n, current)
  return start, previous - (n - latest), current - latest
end

-- fades is how long after its window began to weigh less a count weighs nothing.
local function fades(count)
  return window + 1 - ceil(window / count)
end

local function keep(start, previous, current)
  local till
  if current > 0 then
    till = start + window + fades(current)
  elseif previous > 0 then
    till = start + fades(previous)
  else
    return nil
  end
  return format(TRIPLE, start, previous, current), lifetime(till - now)
end

return answer(4, { parse = parse, load = load, take = take, refund = refund, keep = keep })
