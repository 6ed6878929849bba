#!lua flags=allow-oom
-- Take one principal out of a quorum; it holds from the very next call.
-- Request: quorum_id, client_id
-- Reply:   1 when something changed, else 0
-- Refuses: REQUEST_ID_REUSED, UNKNOWN_QUORUM
-- Touches: replay, quorum, joined, profile, history
-- Cost:    O(1)
-- Again:   under the same request id the first answer; else nothing is left to change: 0, no event
-- Pieces:  clock, call, replay, event
local id, participant = ARGV[7], ARGV[8]

-- check
local answer, reused = recall()
if reused then return reused end
if answer then return 1 end
local quorum = redis.call('HMGET', key_quorum(id), 'standing', 'project', 'last_event', 'participant:' .. participant)
if not quorum[1] then return refuse('UNKNOWN_QUORUM') end
if not quorum[4] then return 0 end

-- write
local event = record(next_event(), 'quorum.participant_removed', id,
  { project = quorum[2], reason = participant, prev = quorum[3] })
redis.call('HSET', key_quorum(id), 'last_event', event)
redis.call('HDEL', key_quorum(id), 'participant:' .. participant)
redis.call('HDEL', key_joined(participant), id)
remember('1')
return 1
