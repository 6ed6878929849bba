#!lua
-- Open one quorum over a project, with its first participants.
-- Request: quorum_id, project, digest of both, participants (client_ids)
-- Reply:   1 when something changed, else 0
-- Refuses: REQUEST_ID_REUSED, UNKNOWN_PRINCIPAL
-- Touches: replay, quorum, quorums, joined, principal, profile, history
-- Cost:    O(M) in the participants given, at most 1,000
-- Again:   under the same request id the first answer; else the quorum exists: 0, no event
-- Pieces:  clock, call, replay, event
local id, project = ARGV[7], ARGV[8]

-- check
local answer, reused = recall()
if reused then return reused end
if answer then return 1 end
if redis.call('EXISTS', key_quorum(id)) == 1 then return 0 end
for n = 10, #ARGV do
  if redis.call('EXISTS', key_principal(ARGV[n])) == 0 then return refuse('UNKNOWN_PRINCIPAL') end
end

-- write
local number = next_event(1 + #ARGV - 9)
local first = number - (#ARGV - 9)
local last = record(first, 'quorum.opened', id, { project = project, to = 'open', digest = ARGV[9] })
redis.call('HSET', key_quorum(id), 'project', project, 'standing', 'open', 'created_at', whole(now))
for n = 10, #ARGV do
  last = record(first + n - 9, 'quorum.participant_added', id, { project = project, reason = ARGV[n], prev = last })
  redis.call('HSET', key_quorum(id), 'participant:' .. ARGV[n], '1')
  redis.call('HSET', key_joined(ARGV[n]), id, project)
end
redis.call('HSET', key_quorum(id), 'last_event', last)
redis.call('ZADD', key_quorums(), whole(first), id)
remember('1')
return 1
