-- Several rules for one request, which passes if all of them let it pass; a refusal takes no units.
--
-- KEYS     of each question the keys of its rules, in the rules' order
-- ARGV[2]  how many rules there are
-- ARGV     then of each rule: the name of its script, how many parameters that has, and these
-- ARGV     then the requests of each question as in the other scripts, and pairs n c with one more meaning:
--            c = -1   asks whether n units would pass
-- stored   as by the rules' own scripts
-- reply    of each question their replies for their keys, joined with ','. A sliding log replies for each request that it
--          would refuse the time that must leave the window.

-- state asks a rule whose state is a few numbers: x, y, z as they were stored, and a, b, c as they are now.
local function state(rule)
  local self = {}
  local key, text, x, y, z, a, b, c, touched
  function self.open(name)
    key, touched = name, false
    local readable
    text = redis.pcall('GET', key)
    readable, text, x, y, z = read(key, type(text) == 'string' and text, rule.parse)
    if readable then
      a, b, c = rule.load(x, y, z)
    end
    return readable
  end
  function self.fits(n, taking)
    touched = touched or taking and x > a -- a state that lies too far ahead is pulled in, as by a single rule's refusal
    local _, _, _, granted = rule.take(a, b, c, n, 1)
    return granted > 0
  end
  function self.take(n)
    a, b, c = rule.take(a, b, c, n, 1)
    touched = true
  end
  function self.refund(n)
    a, b, c = rule.refund(a, b, c, n)
    touched = true
  end
  function self.close()
    if touched and (a ~= x or b ~= y or c ~= z) then
      write(key, text, rule.keep(a, b, c))
    end
    return text or ''
  end
  return self
end

-- log asks a sliding log, by running its script.
local function log(arguments)
  local self = {}
  local key, said
  local requests = #arguments + 1
  local function run(what)
    arguments[requests] = what
    return match(parts.slidinglog({ key }, arguments), ';(.*)$')
  end
  function self.open(name)
    key = name
    said = run('')
    return said ~= '?'
  end
  local function add(text)
    local more = match(text, '^%d+ %d+( .*)$')
    if more then
      said = said .. more
    end
    return more
  end
  function self.fits(n, taking)
    return not add(run(format(WHOLE .. (taking and ' -2' or ' -1'), n)))
  end
  function self.take(n)
    run(format(WHOLE .. ' 1', n))
  end
  function self.refund(n)
    add(run(format(WHOLE .. ' 1', -n)))
  end
  function self.close()
    return said
  end
  return self
end

local rules, at = {}, 3
for i = 1, tonumber(ARGV[2]) do
  local name, arguments = ARGV[at], { ARGV[1] }
  for j = 1, tonumber(ARGV[at + 1]) do
    arguments[j + 1] = ARGV[at + 1 + j]
  end
  at = at + 1 + #arguments
  if name == 'slidinglog' then
    rules[i] = log(arguments)
  else
    rules[i] = state(parts[name](nil, arguments, function(_, rule)
      return rule
    end))
  end
end

local function ask(n, times)
  if n < 0 then
    for _, rule in ipairs(rules) do
      rule.refund(-n)
    end
    return
  end
  for _ = 1, math.abs(times) do
    local fits = true
    for _, rule in ipairs(rules) do
      fits = rule.fits(n, times > 0) and fits
    end
    if fits and times > 0 then
      for _, rule in ipairs(rules) do
        rule.take(n)
      end
    end
  end
end

local said = { format(WHOLE, now) }
for question = 1, #KEYS / #rules do
  local readable, answers = true, {}
  for i, rule in ipairs(rules) do
    if not rule.open(KEYS[(question - 1) * #rules + i]) then
      readable, answers[i] = false, '?'
    end
  end
  local requests = ARGV[at + question - 1]
  if readable then
    local n = tonumber(requests)
    if n then
      ask(n, 1)
    else
      for cost, times in string.gmatch(requests, '(%-?%d+) (%-?%d+)') do
        ask(tonumber(cost), tonumber(times))
      end
    end
  end
  for i, rule in ipairs(rules) do
    answers[i] = answers[i] or rule.close()
  end
  said[question + 1] = table.concat(answers, ',')
end
return table.concat(said, ';')
