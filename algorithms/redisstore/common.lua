-- Every script of this package begins with this file.
--
-- A script decides for one or more keys of a policy, all at one instant.
--
-- KEYS     the keys
-- ARGV[1]  the time in microseconds since 1970, or empty for the server's own; or '<' and a time of the server's:
--          a later call has no effect and replies the error LATE, because its client does not wait any more
-- ARGV     then the rule's parameters, as the script lists them
-- ARGV     then the requests of each key, one argument per key:
--            n        one request of n units, all or none; n < 0 gives -n units back; 0 only asks for the state
--            n c …    pairs: c requests of n units each, one after the other; c is 1 where n < 0
-- reply    the time, then of each key the former value, empty if there was none; joined with ';'. A '?' means a
--          value that the script cannot read and leaves unchanged.
--
-- Lua's numbers are doubles: whole ones are exact below 2^53, in microseconds until the year 2255. So what may be
-- larger goes through mul_div, and numbers become text by WHOLE, also for redis.call, which needs longer to print them.

local call, floor, ceil, min, max = redis.call, math.floor, math.ceil, math.min, math.max
local find, match, format = string.find, string.match, string.format

local EXACT = 9007199254740992 -- 2^53
local GRACE = 60000 -- ms that a state is kept longer than needed, in case the clock steps back

-- WHOLE is the format of a whole number. As an integer it is printed in half the time, but only where C's long, which
-- Lua makes of it, has 64 bits.
local WHOLE = format('%d', EXACT) == '9007199254740992' and '%d' or '%.0f'

local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
  local last = tonumber(match(ARGV[1], '^<(%d+)$'))
  if last and now > last then
    return redis.error_reply('LATE')
  end
end

-- mul_div is a*b/c rounded down, and the remainder of a*b: exact for a and b below 2^53 and c below 2^45, if the
-- quotient is below 2^53. Where a*b is not, b is split into whole*c + b; what b leaves over is a long division, with a
-- in digits of 7 bits, where rest*128 + digit*b < 255*c.
local function mul_div(a, b, c)
  local product = a * b
  if product < EXACT then
    local quotient = floor(product / c)
    return quotient, product - quotient * c
  end
  local whole = floor(b / c)
  b = b - whole * c
  local quotient, rest, left, unit = 0, 0, a, 562949953421312 -- 128^7
  while unit >= 1 do
    local digit = floor(left / unit)
    left = left - digit * unit
    rest = rest * 128 + digit * b
    local part = floor(rest / c)
    rest = rest - part * c
    quotient = quotient * 128 + part
    unit = unit / 128
  end
  return a * whole + quotient, rest
end

-- window_start is the start of the window of w microseconds that t lies in. They are counted from a Monday, three days
-- before 1970, or from offset microseconds later.
local function window_start(t, w, offset)
  return t - (t + 259200000000 - (offset or 0)) % w
end

-- load_start is the start of a stored window, aligned to windows of w and at most one ahead of the present one.
local function load_start(start, w, offset)
  return window_start(max(0, min(start, now + w)), w, offset)
end

-- lifetime is for how many milliseconds to keep what counts for us microseconds more, or no more, as text. It is made
-- once for keys that end together, as windows do.
local last_us, last_lifetime
local function lifetime(us)
  if us ~= last_us then
    last_us, last_lifetime = us, format(WHOLE, ceil(max(0, us) / 1000) + GRACE)
  end
  return last_lifetime
end

-- former reports whether a text is a state of another rule, which a policy of the same name had before.
local function former(text)
  if #text > 64 then -- no state is so long, and the time of patterns grows with the square
    return false
  end
  if not (find(text, '^%d+[+:]?%d*$') or find(text, '^%d+:%d+:%d+$')) then
    return false
  end
  for number in string.gmatch(text, '%d+') do
    if tonumber(number) >= EXACT then
      return false
    end
  end
  return not find(text, '[+:]$')
end

-- read is the state that is stored as text under a key: whether it can be read, the text and the state. A state of
-- another rule counts as none. MGET returns nil for a value that is not a text, such as a sliding log's.
local function read(key, text, parse)
  local x, y, z = parse(text)
  if x and y and x < EXACT and y < EXACT and (not z or z < EXACT) then
    if text or type(redis.pcall('GET', key)) ~= 'table' then
      return true, text, x, y, z
    end
    local first = redis.pcall('LINDEX', key, 0)
    return type(first) == 'string' and former(first), false, x, y, z
  end
  if former(text) then
    return true, false, parse(false)
  end
  return false, text
end

-- write stores a text for ms milliseconds in place of the former one, which it deletes without a new one.
local function write(key, former_text, text, ms)
  if text then
    call('SET', key, text, 'PX', ms)
  elseif former_text then
    call('DEL', key)
  end
end

-- answer runs the requests of all keys, whose arguments begin at ARGV[first], and writes the changes. A state is
-- up to three numbers. The rule has functions:
--
-- parse(text)                  the state stored as text, with nil in it if it cannot be read; text may be false
-- load(x, y, z)                the state brought into the range that is possible now
-- take(x, y, z, n, times)      up to this many requests of n units each; the fourth result is the number of passed units
-- refund(x, y, z, n)           n units given back
-- keep(x, y, z)                the text to store and for how many milliseconds, or nil for a state like a new one
local function answer(first, rule)
  local parse, load, take, refund, keep = rule.parse, rule.load, rule.take, rule.refund, rule.keep
  local function step(x, y, z, n, times)
    if n > 0 then
      return take(x, y, z, n, times)
    end
    return refund(x, y, z, -n)
  end

  local said = call('MGET', unpack(KEYS))
  local units = {} -- of requests that were seen, which are mostly the same
  for i = 1, #KEYS do
    local key, requests = KEYS[i], ARGV[first + i - 1]
    local readable, text, x, y, z = read(key, said[i], parse)
    said[i] = text or ''
    if not readable then
      said[i] = '?'
    elseif requests ~= '0' then
      local a, b, c = load(x, y, z)
      local n = units[requests] or tonumber(requests)
      if n then
        units[requests] = n
        a, b, c = step(a, b, c, n, 1)
      else
        for cost, times in string.gmatch(requests, '(%-?%d+) (%d+)') do
          a, b, c = step(a, b, c, tonumber(cost), tonumber(times))
        end
      end
      if a ~= x or b ~= y or c ~= z then
        write(key, text, keep(a, b, c))
      end
    end
  end
  return format(WHOLE, now) .. ';' .. table.concat(said, ';')
end

