#!lua flags=no-writes
-- Count moves among the events from one number to before another: all of them, or blocks of 20 evenly spread.
-- Request: 'operator' or ''; the first number, the number after the last, how many to read at most, at most 500
-- Reply:   server time; events read, of these jobs created, claimed, completed, failed, then how many waits and the
--          milliseconds of all, how many runs and their milliseconds; nothing unless the caller covers all
-- Refuses: UNAUTHENTICATED
-- Touches: principal, history, token
-- Cost:    O(L log N): N events, L those read, and the event before each that ends a wait or a run
-- Again:   the same: events do not change
-- Pieces:  clock, call, token, caller, sight
local from, to, most, BLOCK = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), 20
if not covers('*') then return { whole(now) } end

local WAITED = { ['job.created'] = true, ['job.released'] = true, ['job.requeued'] = true }
local names, seen, waits, waited, runs, ran = {}, 0, 0, 0, 0, 0
local events = {} -- of events read: by number, name and instant

-- The fields of an event stand in one order, in pairs of name and value: event, …, at (sixth), …, prev (fourteenth).
local function facts_of(event)
  local facts = { event[2][2], tonumber(event[2][12]) or 0 }
  events[event[1]] = facts
  return facts
end

local function former_of(event)
  local id = event[2][28] .. '-0'
  if events[id] or id == '-0' then return events[id] end
  local former = redis.call('XRANGE', key_history(), id, id)[1]
  return former and facts_of(former)
end

local function count(event)
  local facts = facts_of(event)
  local name, at = facts[1], facts[2]
  names[name], seen = (names[name] or 0) + 1, seen + 1
  local ended = name == 'job.completed' or name == 'job.failed'
  local former = (ended or name == 'job.claimed') and former_of(event)
  if not former then return end
  if ended and former[1] == 'job.claimed' then runs, ran = runs + 1, ran + at - former[2] end
  if not ended and WAITED[former[1]] then waits, waited = waits + 1, waited + at - former[2] end
end

-- Read one block; every event of it stands before `stop`.
local function read(start, stop)
  local last = whole(stop - 1) .. '-0'
  for _, event in ipairs(redis.call('XRANGE', key_history(), whole(start) .. '-0', last, 'COUNT', 20)) do count(event) end
end

-- check
-- Where a block stands in its part of the row follows the golden ratio, for moves come in rhythms that an even step
-- would fall in with.
local blocks = math.ceil(math.min(most, to - from) / BLOCK)
local part = (to - from) / blocks
for n = 0, blocks - 1 do
  local free = math.max(0, part - BLOCK)
  local start = to - from <= most and from + n * BLOCK or from + math.floor(n * part + n * 0.6180339887 % 1 * free)
  read(start, math.min(start + BLOCK, to))
end
local row = { whole(now), seen }
for n, name in ipairs({ 'job.created', 'job.claimed', 'job.completed', 'job.failed' }) do row[n + 2] = names[name] or 0 end
for n, number in ipairs({ waits, waited, runs, ran }) do row[n + 6] = number end
return row
