#!lua
-- Record how merging a lane ended.
-- Request: lane_id, outcome (merged, conflicted or skipped), result_commit ('' when not given)
-- Reply:   merge_state, 'replay' when it answers a repeat
-- Refuses: UNAUTHENTICATED, REQUEST_ID_REUSED, DENIED, UNKNOWN_LANE, LANE_NOT_MERGEABLE
-- Touches: token, principal, replay, lane, profile, history
-- Cost:    O(1)
-- Again:   under the same request id the first answer, nothing written; else as the gate stands
-- Pieces:  clock, call, token, caller, replay, event, lane
local lane_id, outcome, result_commit = ARGV[7], ARGV[8], ARGV[9]

local function gate_is_met(lane)
  if lane.merge_state == 'merged' then return false end
  if outcome == 'merged' then
    return lane.state == 'done' and lane.review_state == 'approved' and result_commit ~= ''
  end
  if outcome == 'conflicted' then return lane.state == 'in_progress' or lane.state == 'done' end
  return lane.state ~= 'done'
end

-- check
local live, conductor = caller('')
if not live then return refuse('UNAUTHENTICATED') end
local answer, reused = recall()
if reused then return reused end
if answer then return { outcome, 'replay' } end
if not conductor then return refuse('DENIED') end
local lane = read_lane(lane_id)
if not lane.exists then return refuse('UNKNOWN_LANE') end
if not gate_is_met(lane) then return refuse('LANE_NOT_MERGEABLE') end

-- write
if result_commit ~= '' then
  move_lane(lane_id, lane, 'lane.merged', 'merge_state', outcome, 'result_commit', result_commit)
else
  move_lane(lane_id, lane, 'lane.merged', 'merge_state', outcome)
end
return { outcome }
