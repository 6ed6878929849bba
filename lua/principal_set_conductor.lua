#!lua flags=allow-oom
-- Give a principal the conductor role, or take it.
-- Request: client_id, '1' or '0'
-- Reply:   1 when something changed, else 0
-- Refuses: REQUEST_ID_REUSED, UNKNOWN_PRINCIPAL
-- Touches: replay, principal, profile, history
-- Cost:    O(1)
-- Again:   under the same request id the first answer; else nothing is left to change: 0, no event
-- Pieces:  clock, call, replay, event
local id, conductor = ARGV[7], ARGV[8]

-- check
local answer, reused = recall()
if reused then return reused end
if answer then return 1 end
local principal = redis.call('HMGET', key_principal(id), 'standing', 'last_event', 'conductor')
if not principal[1] then return refuse('UNKNOWN_PRINCIPAL') end
if principal[3] == conductor then return 0 end

-- write
local event = record(next_event(), 'principal.conductor_set', id,
  { from = principal[3], to = conductor, prev = principal[2] })
redis.call('HSET', key_principal(id), 'conductor', conductor, 'last_event', event)
remember('1')
return 1
