#!lua
-- Queue an exhausted or failed job again, with no attempt spent; with a fence only when it was not claimed since.
-- Request: job_id
-- Reply:   'queued', 'replay' when it answers a repeat
-- Refuses: UNAUTHENTICATED, DENIED, REQUEST_ID_REUSED, JOB_NOT_FOUND, LEASE_EXPIRED, JOB_NOT_REQUEUEABLE
-- Touches: token, principal, replay, job, ready, kinds, projects, projects_of, spent, running, waiting, waiter, wake,
--          watched, profile, history
-- Cost:    O(log N) in the jobs of the same project and kind
-- Again:   under the same request id the first answer, nothing written; else JOB_NOT_REQUEUEABLE
-- Pieces:  clock, call, token, caller, replay, event, ready, waiter, wake, job
local job_id = ARGV[7]

-- check
local job = read_job(job_id)
if presented then -- role gives authority, grants give sight
  local live, conductor, covered = caller(job.project)
  if not live then return refuse('UNAUTHENTICATED') end
  if not conductor then return refuse('DENIED') end
  if not covered then return refuse('JOB_NOT_FOUND') end
end
local answer, reused = recall()
if reused then return reused end
if answer then return { 'queued', 'replay' } end
if not job.exists then return refuse('JOB_NOT_FOUND') end
local held = job.standing == 'claimed' and job.lease_until > now
local exhausted = not job.terminal and job.attempts >= MAX_ATTEMPTS and not held
local last = job.fence == '' and '0' or job.fence
if fence ~= '' and fence ~= last then return refuse('LEASE_EXPIRED') end
if job.standing ~= 'failed' and not exhausted then return refuse('JOB_NOT_REQUEUEABLE') end

-- write
local event = record(next_event(), 'job.requeued', job_id, { project = job.project, from = job.standing, to = 'queued',
  attempts = '0', fence = job.fence, prev = job.last_event })
redis.call('HSET', key_job(job_id), 'standing', 'queued', 'owner', '', 'holder', '', 'lease_until', '',
  'attempts', '0', 'changed_at', whole(now), 'last_event', event)
redis.call('HDEL', key_job(job_id), 'result_ref', 'reason', 'due_at')
redis.call('ZREM', key_spent(), job_id)
redis.call('ZREM', key_running(job.kind), job_id)
stand(job_id, job.seq, job.project, job.kind, now)
remember('')
wake(job.project, job.kind)
return { 'queued' }
