#!lua flags=allow-oom
-- End a job that has no outcome yet as failed, with an operator's reason.
-- Request: job_id, reason
-- Reply:   'failed', 'replay' when it answers a repeat
-- Refuses: REQUEST_ID_REUSED, JOB_NOT_FOUND, JOB_ALREADY_TERMINAL
-- Touches: principal, replay, job, ready, kinds, projects, projects_of, spent, running, limits, waiting, waiter, wake,
--          watched, profile, history
-- Cost:    O(log N) in the jobs of the same project and kind
-- Again:   under the same request id the first answer, nothing written; else JOB_ALREADY_TERMINAL
-- Pieces:  clock, call, replay, event, ready, waiter, wake, running, job
local job_id, reason = ARGV[7], ARGV[8]

-- check
local answer, reused = recall()
if reused then return reused end
if answer then return { 'failed', 'replay' } end
local job = read_job(job_id)
if not job.exists then return refuse('JOB_NOT_FOUND') end
if job.terminal then return refuse('JOB_ALREADY_TERMINAL') end

-- write
local event = record(next_event(), 'job.failed', job_id, { project = job.project, from = job.standing, to = 'failed',
  attempts = whole(job.attempts), fence = job.fence, reason = reason, prev = job.last_event })
redis.call('HSET', key_job(job_id), 'standing', 'failed', 'lease_until', '', 'reason', reason,
  'changed_at', whole(now), 'last_event', event)
redis.call('HDEL', key_job(job_id), 'due_at')
restand(job_id, job, nil)
if job.standing == 'claimed' then stop_running(job_id, job) end
remember('')
return { 'failed' }
