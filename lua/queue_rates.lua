#!lua flags=no-writes
-- Count the events of a few minutes, and read some of each, evenly spread, to tell moves and lengths of time from them.
-- Request: 'operator' or ''; the first minute since 1970 ('' for as many before this one as the next says), how many
--          minutes before the present one, how many minutes, at most 15
-- Reply:   server time, the first minute; a list of minutes, each: events, events read, of these jobs created, claimed,
--          completed, failed, then how many waits and the milliseconds of all, how many runs and their milliseconds
-- Refuses: UNAUTHENTICATED
-- Touches: principal, history, token
-- Cost:    O(M log N): M minutes, N events; at most 32 events of a minute are read
-- Again:   the minutes as they are then; those before the present one do not change
-- Pieces:  clock, call, token, caller, sight
local minute = tonumber(ARGV[8]) or math.floor(now / 60000) - tonumber(ARGV[9])
local many, READ = tonumber(ARGV[10]), 32
if not covers('*') then return { whole(now), whole(minute), {} } end

local function number_of(event) return event and tonumber(event[1]:match('^%d+')) end

-- The fields of an event stand in one order, in pairs of name and value: event, …, at (sixth), …, prev (fourteenth).
local function at_of(event) return tonumber(event[2][12]) or 0 end

local function read(number)
  local spelled = whole(number) .. '-0'
  return redis.call('XRANGE', key_history(), spelled, spelled)[1]
end

local oldest = redis.call('XRANGE', key_history(), '-', '+', 'COUNT', 1)[1]
local newest = redis.call('XREVRANGE', key_history(), '+', '-', 'COUNT', 1)[1]
local last = number_of(newest) or 0

-- Give the number of the first event from an instant on, looking from a number on; the numbers are consecutive.
local function first_from(instant, low)
  local high = last + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    local event = redis.call('XRANGE', key_history(), whole(middle) .. '-0', '+', 'COUNT', 1)[1]
    if event and at_of(event) < instant then low = number_of(event) + 1 else high = middle end
  end
  return low
end

local WAITED = { ['job.created'] = true, ['job.released'] = true, ['job.requeued'] = true }

-- Read some events from one number to another. Where one stands in its part of the row follows the golden ratio, for
-- moves come in rhythms that an even step would fall in with.
local function sample(from, to)
  local names, waits, waited, runs, ran, seen = {}, 0, 0, 0, 0, 0
  local step = math.max(1, (to - from) / READ)
  for n = 0, math.min(READ, to - from) - 1 do
    local event = read(from + math.floor((n + (step > 1 and n * 0.6180339887 % 1 or 0)) * step))
    if event then
      seen = seen + 1
      local name, prev = event[2][2], tonumber(event[2][28])
      names[name] = (names[name] or 0) + 1
      local ended = name == 'job.completed' or name == 'job.failed'
      local former = prev and (ended or name == 'job.claimed') and read(prev)
      if former and ended and former[2][2] == 'job.claimed' then
        runs, ran = runs + 1, ran + at_of(event) - at_of(former)
      elseif former and not ended and WAITED[former[2][2]] then
        waits, waited = waits + 1, waited + at_of(event) - at_of(former)
      end
    end
  end
  local row = { to - from, seen }
  for n, name in ipairs({ 'job.created', 'job.claimed', 'job.completed', 'job.failed' }) do row[n + 2] = names[name] or 0 end
  for n, number in ipairs({ waits, waited, runs, ran }) do row[n + 6] = number end
  return row
end

-- check
local rows = {}
local from = first_from(minute * 60000, number_of(oldest) or 1)
for n = 1, many do
  local to = first_from((minute + n) * 60000, from)
  rows[n] = sample(from, to)
  from = to
end
return { whole(now), whole(minute), rows }
