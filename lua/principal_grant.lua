#!lua
-- Grant one project to a principal.
-- Request: client_id, project ('*' star scope, '' untagged)
-- Reply:   1 when something changed, else 0
-- Refuses: REQUEST_ID_REUSED, UNKNOWN_PRINCIPAL, LIMIT_REACHED
-- Touches: replay, principal, profile, history
-- Cost:    O(1)
-- Again:   under the same request id the first answer; else nothing is left to change: 0, no event
-- Pieces:  clock, call, replay, event
local id, project = ARGV[7], ARGV[8]

-- check
local answer, reused = recall()
if reused then return reused end
if answer then return 1 end
local principal = redis.call('HMGET', key_principal(id), 'standing', 'last_event', 'grant:' .. project)
if not principal[1] then return refuse('UNKNOWN_PRINCIPAL') end
if principal[3] then return 0 end
-- Four fields of the hash are not grants.
if redis.call('HLEN', key_principal(id)) - 4 >= MAX_GRANTS then return refuse('LIMIT_REACHED') end

-- write
local event = record(next_event(), 'principal.granted', id, { project = project, prev = principal[2] })
redis.call('HSET', key_principal(id), 'grant:' .. project, '1', 'last_event', event)
remember('1')
return 1
