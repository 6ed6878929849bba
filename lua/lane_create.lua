#!lua
-- Create one lane in open standing under an open quorum.
-- Request: lane_id, quorum_id, assignee, task_id, depends_on, repo, branch, base_ref, worktree ('' where not given), digest of the immutable facts
-- Reply:   lane_id, project, 'replay' when it answers a repeat
-- Refuses: UNAUTHENTICATED, REQUEST_ID_REUSED, DENIED, UNKNOWN_LANE, QUORUM_NOT_OPEN, UNKNOWN_CLIENT, TASK_NOT_FOUND, DEPENDENCY_NOT_IN_QUORUM
-- Touches: token, principal, replay, quorum, task, lane, lanes, profile, history
-- Cost:    O(log N) in the lanes of the profile
-- Again:   under the same request id the first answer; for the same lane_id too, however late; nothing written
-- Pieces:  clock, call, token, caller, replay, event, lane
local lane_id, quorum_id, assignee, task_id, depends_on = ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]

-- check
local quorum = redis.call('HMGET', key_quorum(quorum_id), 'project', 'standing')
local project = quorum[1] or ''
local live, conductor, covered, explicit = caller(project)
if not live then return refuse('UNAUTHENTICATED') end
local answer, reused = recall()
if reused then return reused end
if not answer and redis.call('EXISTS', key_lane(lane_id)) == 1 then answer = lane_id end
if answer then return { answer, redis.call('HGET', key_lane(answer), 'project') or '', 'replay' } end
if not conductor then return refuse('DENIED') end
if not quorum[2] or not covered then return refuse('UNKNOWN_LANE') end
if not explicit then return refuse('DENIED') end
if quorum[2] ~= 'open' then return refuse('QUORUM_NOT_OPEN') end
if assignee ~= '' and redis.call('HGET', key_principal(assignee), 'standing') ~= 'live' then
  return refuse('UNKNOWN_CLIENT')
end
if task_id ~= '' and redis.call('HGET', key_task(task_id), 'standing') ~= 'live' then
  return refuse('TASK_NOT_FOUND')
end
if depends_on ~= '' and redis.call('HGET', key_lane(depends_on), 'quorum_id') ~= quorum_id then
  return refuse('DEPENDENCY_NOT_IN_QUORUM')
end

-- write
local seq = next_event()
local event = record(seq, 'lane.created', lane_id, { project = project, to = 'open', digest = ARGV[16] })
local lane = { 'quorum_id', quorum_id, 'project', project, 'state', 'open', 'review_state', '', 'merge_state', '',
  'created_at', whole(now), 'changed_at', whole(now), 'seq', event, 'last_event', event }
for n, field in ipairs({ 'assignee', 'task_id', 'depends_on', 'repo', 'branch', 'base_ref', 'worktree' }) do
  if ARGV[8 + n] ~= '' then
    lane[#lane + 1] = field
    lane[#lane + 1] = ARGV[8 + n]
  end
end
redis.call('HSET', key_lane(lane_id), unpack(lane))
each_scope({ project = project, quorum_id = quorum_id }, 'open', function(index)
  redis.call('ZADD', index, event, lane_id)
end)
remember(lane_id)
return { lane_id, project }
