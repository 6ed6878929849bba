#!lua flags=allow-oom
-- Close one quorum to new lanes; it holds from the very next call.
-- Request: quorum_id
-- Reply:   1 when something changed, else 0
-- Refuses: REQUEST_ID_REUSED, UNKNOWN_QUORUM
-- Touches: replay, quorum, profile, history
-- Cost:    O(1)
-- Again:   under the same request id the first answer; else nothing is left to change: 0, no event
-- Pieces:  clock, call, replay, event
local id = ARGV[7]

-- check
local answer, reused = recall()
if reused then return reused end
if answer then return 1 end
local quorum = redis.call('HMGET', key_quorum(id), 'standing', 'project', 'last_event')
if not quorum[1] then return refuse('UNKNOWN_QUORUM') end
if quorum[1] == 'closed' then return 0 end

-- write
local event = record(next_event(), 'quorum.closed', id,
  { project = quorum[2], from = quorum[1], to = 'closed', prev = quorum[3] })
redis.call('HSET', key_quorum(id), 'standing', 'closed', 'last_event', event)
remember('1')
return 1
