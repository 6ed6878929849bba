#!lua flags=allow-oom
-- Disable a principal, or enable it again; it holds from the very next call.
-- Request: client_id, live or disabled
-- Reply:   1 when something changed, else 0
-- Refuses: REQUEST_ID_REUSED, UNKNOWN_PRINCIPAL
-- Touches: replay, principal, profile, history
-- Cost:    O(1)
-- Again:   under the same request id the first answer; else nothing is left to change: 0, no event
-- Pieces:  clock, call, replay, event
local id, standing = ARGV[7], ARGV[8]

-- check
local answer, reused = recall()
if reused then return reused end
if answer then return 1 end
local principal = redis.call('HMGET', key_principal(id), 'standing', 'last_event')
if not principal[1] then return refuse('UNKNOWN_PRINCIPAL') end
if principal[1] == standing then return 0 end

-- write
local event = record(next_event(), standing == 'live' and 'principal.enabled' or 'principal.disabled', id,
  { from = principal[1], to = standing, prev = principal[2] })
redis.call('HSET', key_principal(id), 'standing', standing, 'last_event', event)
remember('1')
return 1
