#!lua flags=no-writes
-- Walk back the events of one job or lane that the caller sees, from its newest.
-- Request: 'operator' or ''; job or lane, its id, the number of the event to walk on from ('' for the newest), how many,
--          of which one run gives 200
-- Reply:   server time, the number of the event to walk on from ('' at the end), a list of entries, newest first
-- Refuses: UNAUTHENTICATED, JOB_NOT_FOUND, UNKNOWN_LANE
-- Touches: principal, history, job, lane, joined, token
-- Cost:    O(M log N) in the events given, at most 200
-- Again:   the events as they are then
-- Pieces:  clock, call, token, caller, sight, visible
local family, entity_id, number, most = ARGV[8], ARGV[9], ARGV[10], math.min(200, ARGV[11])

-- check
local key = family == 'job' and key_job(entity_id) or key_lane(entity_id)
local entity = redis.pcall('HMGET', key, family == 'job' and 'standing' or 'state', 'project', 'last_event')
local there, project = entity[1], entity[2] or ''
if family == 'job' and not (there and covers(project)) then return refuse('JOB_NOT_FOUND') end
if family == 'lane' and not (there and sees_lane(project, entity_id)) then return refuse('UNKNOWN_LANE') end
if number == '' then number = entity[3] or '' end
local found = {}
while number:match('^%d+$') and #found < most do
  local event = redis.call('XRANGE', key_history(), number .. '-0', number .. '-0')[1]
  if not event or event[2][4] ~= entity_id then return { whole(now), '', found } end -- no part of this chain
  found[#found + 1], number = event, event[2][28]
end
return { whole(now), number, found }
