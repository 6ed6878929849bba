#!lua flags=no-writes
-- Show one lane that the caller sees.
-- Request: 'operator' or ''; lane_id
-- Reply:   server time; quorum_id, project, state, review_state, merge_state, assignee, task_id, result_commit,
--          created_at, changed_at, depends_on, repo, branch, base_ref, worktree ('' where unset)
-- Refuses: UNAUTHENTICATED, UNKNOWN_LANE
-- Touches: principal, lane, joined, token
-- Cost:    O(1)
-- Again:   the lane as it is then
-- Pieces:  clock, call, token, caller, sight, visible
local lane_id = ARGV[8]

-- check
local lane = redis.pcall('HMGET', key_lane(lane_id), 'quorum_id', 'project', 'state', 'review_state', 'merge_state',
  'assignee', 'task_id', 'result_commit', 'created_at', 'changed_at', 'depends_on', 'repo', 'branch', 'base_ref',
  'worktree')
if not lane[3] or not sees_lane(lane[2] or '', lane_id) then return refuse('UNKNOWN_LANE') end
for n = 1, 15 do lane[n] = lane[n] or '' end
return { whole(now), lane }
