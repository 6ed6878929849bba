-- One lane as the moves on a lane read it, and the index of lanes: by state, each in three scopes.
local LANE = { 'state', 'review_state', 'merge_state', 'project', 'quorum_id', 'assignee', 'seq', 'last_event' }

local function read_lane(lane_id)
  local found, lane = redis.call('HMGET', key_lane(lane_id), unpack(LANE)), {}
  for n = 1, #LANE do lane[LANE[n]] = found[n] or '' end
  lane.exists = lane.state ~= ''
  return lane
end

local function each_scope(lane, state, act)
  act(key_lanes(state, 'all', ''))
  act(key_lanes(state, 'project', lane.project))
  act(key_lanes(state, 'quorum', lane.quorum_id))
end

-- Write one accepted move of a lane: the field that changed, its event, and what else is given.
local function move_lane(lane_id, lane, event, field, to, ...)
  local number = record(next_event(), event, lane_id,
    { project = lane.project, from = lane[field], to = to, prev = lane.last_event })
  redis.call('HSET', key_lane(lane_id), field, to, 'changed_at', whole(now), 'last_event', number, ...)
  remember('')
end
