#!lua
-- Let one principal take part in a quorum.
-- Request: quorum_id, client_id
-- Reply:   1 when something changed, else 0
-- Refuses: REQUEST_ID_REUSED, UNKNOWN_QUORUM, UNKNOWN_PRINCIPAL, LIMIT_REACHED
-- Touches: replay, quorum, joined, principal, profile, history
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
if redis.call('EXISTS', key_principal(participant)) == 0 then return refuse('UNKNOWN_PRINCIPAL') end
if quorum[4] then return 0 end
-- Four fields of the hash are not participants.
if redis.call('HLEN', key_quorum(id)) - 4 >= MAX_PARTICIPANTS then return refuse('LIMIT_REACHED') end

-- write
local event = record(next_event(), 'quorum.participant_added', id,
  { project = quorum[2], reason = participant, prev = quorum[3] })
redis.call('HSET', key_quorum(id), 'participant:' .. participant, '1', 'last_event', event)
redis.call('HSET', key_joined(participant), id, quorum[2])
remember('1')
return 1
