-- Which lanes are seen, as `lane_list` has it: all by conductors and stars, else those of a covered project in whose
-- quorum the caller takes part.
local _, conductor = caller('')

local function sees_lane(project, lane_id)
  if star or conductor then return true end
  if not covers(project) then return false end
  local quorum_id = redis.call('HGET', key_lane(lane_id), 'quorum_id')
  return redis.call('HEXISTS', key_joined(client_id), quorum_id or '') == 1
end
