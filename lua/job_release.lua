#!lua flags=allow-oom
-- Give a claimed job back to the queue.
-- Request: job_id; of the library also milliseconds of delay, reason
-- Reply:   'queued', 'replay' when it answers a repeat
-- Refuses: UNAUTHENTICATED, REQUEST_ID_REUSED, JOB_NOT_FOUND, JOB_NOT_CLAIMED, LEASE_EXPIRED
-- Touches: token, principal, replay, job, ready, kinds, projects, projects_of, spent, running, limits, waiting,
--          waiter, wake, watched, profile, history
-- Cost:    O(log N) in the jobs of the same project and kind
-- Again:   under the same request id the first answer, nothing written; else JOB_NOT_CLAIMED
-- Pieces:  clock, call, token, caller, replay, event, ready, waiter, wake, running, job
local job_id, delay, reason = ARGV[7], tonumber(ARGV[8]) or 0, ARGV[9]

-- check
local job = read_job(job_id)
local live, conductor, covered = caller(job.project)
if not live then return refuse('UNAUTHENTICATED') end
local answer, reused = recall()
if reused then return reused end
if answer then return { 'queued', 'replay' } end
if not job.exists or not covered then return refuse('JOB_NOT_FOUND') end
if job.standing ~= 'claimed' then return refuse('JOB_NOT_CLAIMED') end
if fence ~= '' and fence ~= job.fence then return refuse('LEASE_EXPIRED') end
if job.owner ~= client_id and not conductor then return refuse('JOB_NOT_CLAIMED') end

-- write
local event = record(next_event(), 'job.released', job_id, { project = job.project, from = 'claimed', to = 'queued',
  attempts = whole(job.attempts), fence = job.fence, reason = reason, prev = job.last_event })
redis.call('HSET', key_job(job_id), 'standing', 'queued', 'owner', '', 'holder', '', 'lease_until', '',
  'changed_at', whole(now), 'last_event', event)
if delay > 0 then redis.call('HSET', key_job(job_id), 'due_at', whole(now + delay)) end
restand(job_id, job, now + delay)
local woken = stop_running(job_id, job)
remember('')
if not woken and delay <= WAIT_LOOK then wake(job.project, job.kind) end
return { 'queued' }
