#!lua
-- Move one lane along its execution axis.
-- Request: lane_id, state
-- Reply:   state, 'replay' when it answers a repeat
-- Refuses: UNAUTHENTICATED, REQUEST_ID_REUSED, DENIED, UNKNOWN_LANE, ILLEGAL_LANE_TRANSITION
-- Touches: token, principal, replay, lane, lanes, profile, history
-- Cost:    O(log N) in the lanes of the profile
-- Again:   under the same request id the first answer, nothing written; else ILLEGAL_LANE_TRANSITION
-- Pieces:  clock, call, token, caller, replay, event, lane
local lane_id, state = ARGV[7], ARGV[8]
local MOVES = {
  open = { in_progress = true, cancelled = true },
  in_progress = { done = true, failed = true, cancelled = true },
  done = {}, failed = {}, cancelled = {},
}

-- check
local live, conductor = caller('')
if not live then return refuse('UNAUTHENTICATED') end
local answer, reused = recall()
if reused then return reused end
if answer then return { state, 'replay' } end
if not conductor then return refuse('DENIED') end
local lane = read_lane(lane_id)
if not lane.exists or not MOVES[state] then return refuse('UNKNOWN_LANE') end
if not (MOVES[lane.state] or {})[state] then return refuse('ILLEGAL_LANE_TRANSITION') end

-- write
move_lane(lane_id, lane, 'lane.state_changed', 'state', state)
each_scope(lane, lane.state, function(index) redis.call('ZREM', index, lane_id) end)
each_scope(lane, state, function(index) redis.call('ZADD', index, lane.seq, lane_id) end)
return { state }
