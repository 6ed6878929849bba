#!lua
-- Submit a lane for review, or give the verdict.
-- Request: lane_id, decision (submit, approve or request-changes)
-- Reply:   review_state, 'replay' when it answers a repeat
-- Refuses: UNAUTHENTICATED, REQUEST_ID_REUSED, DENIED, UNKNOWN_LANE, REVIEW_CLOSED, NOTHING_UNDER_REVIEW
-- Touches: token, principal, replay, lane, quorum, profile, history
-- Cost:    O(1)
-- Again:   under the same request id the first answer, nothing written; else as the review stands
-- Pieces:  clock, call, token, caller, replay, event, lane
local lane_id, decision = ARGV[7], ARGV[8]
local TO = { submit = 'pending', approve = 'approved', ['request-changes'] = 'changes_requested' }

-- check
local lane = read_lane(lane_id)
local live, conductor, covered = caller(lane.project)
if not live then return refuse('UNAUTHENTICATED') end
local answer, reused = recall()
if reused then return reused end
if answer then return { TO[decision], 'replay' } end
if decision ~= 'submit' and not conductor then return refuse('DENIED') end
local star = redis.call('HGET', key_principal(client_id), 'grant:*')
local takes_part = redis.call('HGET', key_quorum(lane.quorum_id), 'participant:' .. client_id)
if not lane.exists or not (conductor or star or (covered and takes_part)) then return refuse('UNKNOWN_LANE') end
if decision == 'submit' then
  if not conductor and lane.assignee ~= client_id then return refuse('DENIED') end
  if lane.review_state ~= '' and lane.review_state ~= 'changes_requested' then return refuse('REVIEW_CLOSED') end
elseif lane.review_state ~= 'pending' then
  return refuse('NOTHING_UNDER_REVIEW')
end

-- write
move_lane(lane_id, lane, 'lane.reviewed', 'review_state', TO[decision])
return { TO[decision] }
