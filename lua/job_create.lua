#!lua
-- Create one durable job in queued standing.
-- Request: job_id, kind, payload, project, lane_id ('' where not given), digest of the immutable facts, milliseconds
--          of delay if any
-- Reply:   job_id, 'replay' when it answers a repeat
-- Refuses: UNAUTHENTICATED, REQUEST_ID_REUSED, DENIED, LANE_NOT_FOUND, PROJECT_MISMATCH
-- Touches: token, principal, replay, lane, profile, history, job, payload, jobs_of, ready, kinds, projects,
--          projects_of, waiting, waiter, wake, watched
-- Cost:    O(log N) in the jobs of the same project and kind, and in those of the lane
-- Again:   under the same request id the first answer; for the same job_id too, however late; nothing written
-- Pieces:  clock, call, token, caller, replay, event, ready, waiter, wake
local job_id, kind, payload, project, lane_id, digest = ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11], ARGV[12]
local delay = tonumber(ARGV[13]) or 0

-- check
local lane = { false }
if lane_id ~= '' then lane = redis.call('HMGET', key_lane(lane_id), 'project', 'seq') end
local result_project = project
if lane[1] and project == '' then result_project = lane[1] end
local live, conductor, _, explicit = caller(result_project)
if not live then return refuse('UNAUTHENTICATED') end
local answer, reused = recall()
if reused then return reused end
if answer or redis.call('EXISTS', key_job(job_id)) == 1 then return { answer or job_id, 'replay' } end
if not conductor then return refuse('DENIED') end
if lane_id ~= '' then
  if not lane[2] then return refuse('LANE_NOT_FOUND') end
  if project ~= '' and project ~= lane[1] then return refuse('PROJECT_MISMATCH') end
end
if not explicit then return refuse('DENIED') end

-- write
local seq = next_event()
local event = record(seq, 'job.created', job_id, { project = result_project, to = 'queued', digest = digest })
local job = { 'kind', kind, 'project', result_project, 'standing', 'queued', 'attempts', '0',
  'created_at', whole(now), 'changed_at', whole(now), 'seq', event, 'last_event', event }
local function also(field, value)
  job[#job + 1] = field
  job[#job + 1] = value
end
if lane_id ~= '' then also('lane_id', lane_id) end
if delay > 0 then also('due_at', whole(now + delay)) end
redis.call('HSET', key_job(job_id), unpack(job))
if payload ~= '' then redis.call('SET', key_payload(job_id), payload) end
if lane_id ~= '' then redis.call('ZADD', key_jobs_of(lane_id), event, job_id) end
stand(job_id, seq, result_project, kind, now + delay)
remember(job_id)
if delay <= WAIT_LOOK then wake(result_project, kind) end
return { job_id }
