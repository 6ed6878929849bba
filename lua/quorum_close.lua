#!lua flags=allow-oom
-- Close one quorum to new lanes; it holds from the very next call.
-- Request: quorum_id
-- Reply:   1 when something changed, else 0
-- Refuses: UNKNOWN_QUORUM
-- Touches: quorum, profile, history
-- Cost:    O(1)
-- Again:   nothing is left to change: 0, no event
-- Pieces:  clock, call, event
local id = ARGV[7]

-- check
local quorum = redis.call('HMGET', key_quorum(id), 'standing', 'project', 'last_event')
if not quorum[1] then return refuse('UNKNOWN_QUORUM') end
if quorum[1] == 'closed' then return 0 end

-- write
local event = record(next_event(), 'quorum.closed', id,
  { project = quorum[2], from = quorum[1], to = 'closed', prev = quorum[3] })
redis.call('HSET', key_quorum(id), 'standing', 'closed', 'last_event', event)
return 1
