-- Token bucket and leaking bucket, which are the same meter: when the debt is paid off.
--
-- ARGV[2]  the capacity
-- ARGV[3]  the rate's period in microseconds
-- ARGV[4]  the rate's count
-- stored   the instant in microseconds since 1970; '+frac' behind it if there is a fraction of frac/count microseconds

local most, per, count = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local latest, latest_frac = mul_div(most, per, count) -- the time that a full meter takes to empty
latest = now + latest

local function parse(text)
  if not text then
    return 0, 0
  end
  if find(text, '^%d+$') then
    return tonumber(text), 0
  end
  local us, frac = match(text, '^(%d+)%+(%d+)$')
  return tonumber(us), tonumber(frac)
end

local function load(us, frac)
  if frac >= count then -- of another rate
    us, frac = us + 1, 0
  end
  if us > latest or us == latest and frac > latest_frac then
    return latest, latest_frac
  end
  return us, frac
end

local function take(us, frac, _, n, times)
  if us < now then
    us, frac = now, 0
  end
  local free, free_frac = latest - us, latest_frac - frac
  if free_frac < 0 then
    free, free_frac = free - 1, free_frac + count
  end
  if times > 1 then
    local units, rest = mul_div(free, count, per)
    if rest + free_frac >= per then
      units = units + 1
    end
    n = n * min(times, floor(units / n))
  end
  local span, span_frac = mul_div(n, per, count)
  if span > free or span == free and span_frac > free_frac then
    return us, frac, nil, 0
  end
  us, frac = us + span, frac + span_frac
  if frac >= count then
    us, frac = us + 1, frac - count
  end
  return us, frac, nil, n
end

local function refund(us, frac, _, n)
  local span, span_frac = mul_div(min(n, most), per, count)
  us, frac = us - span, frac - span_frac
  if frac < 0 then
    us, frac = us - 1, frac + count
  end
  if us < now then
    return 0, 0
  end
  return us, frac
end

local function keep(us, frac)
  if us == 0 then
    return nil
  end
  if frac == 0 then
    return format(WHOLE, us), lifetime(us - now)
  end
  return format(WHOLE .. '+' .. WHOLE, us, frac), lifetime(us + 1 - now)
end

return answer(5, { parse = parse, load = load, take = take, refund = refund, keep = keep })
