#!lua flags=no-writes
-- Find the events with which minutes begin, by halving.
-- Request: 'operator' or ''; how many minutes, at most 60: the present one and those before it
-- Reply:   server time, the profile's key, the number after the newest event; a list of minutes, oldest first, each: the
--          number of its first event, or of the first after it, and what tells that event from any other; no minutes
--          unless the caller covers all
-- Refuses: UNAUTHENTICATED
-- Touches: principal, history, token
-- Cost:    O(M log^2 N): M minutes, N events; at most 20 events are read for one minute
-- Again:   the minutes as they are then; those before the present one do not change
-- Pieces:  clock, call, token, caller, sight
local many = tonumber(ARGV[8])
if not covers('*') then return { whole(now), KEYS[1], '', {} } end

local function number_of(event) return event and tonumber(event[1]:match('^%d+')) end

-- The fields of an event stand in one order, in pairs of name and value: event, entity_id, …, at (sixth), …
local function at_of(event) return tonumber(event[2][12]) or 0 end

local oldest = redis.call('XRANGE', key_history(), '-', '+', 'COUNT', 1)[1]
local newest = redis.call('XREVRANGE', key_history(), '+', '-', 'COUNT', 1)[1]
local after = (number_of(newest) or 0) + 1

local function read(number)
  return redis.call('XRANGE', key_history(), whole(number) .. '-0', '+', 'COUNT', 1)[1]
end

-- Give the number of the first event from an instant on, which stands from `low` to `high`: numbers are consecutive.
local function first_from(instant, low, high)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local event = read(middle)
    if event and at_of(event) < instant then low = number_of(event) + 1 else high = middle end
  end
  return low
end

-- check
local minute, firsts, rows = math.floor(now / 60000) - many, {}, {}

-- Find the minutes of a row from the middle one out, so that each halves where its neighbours are looked for.
local function find(from, to, low, high)
  if from > to then return end
  local middle = math.floor((from + to) / 2)
  firsts[middle] = first_from((minute + middle) * 60000, low, high)
  find(from, middle - 1, low, firsts[middle])
  find(middle + 1, to, firsts[middle], high)
end

find(1, many, number_of(oldest) or 1, after)
for n = 1, many do
  local event = firsts[n] < after and read(firsts[n])
  rows[n] = { whole(firsts[n]), event and event[2][4] .. ' ' .. event[2][12] or '' }
end
return { whole(now), KEYS[1], whole(after), rows }
