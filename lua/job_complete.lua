#!lua flags=allow-oom
-- End a claimed job as completed or failed.
-- Request: job_id, outcome, result_ref; of the library also a reason
-- Reply:   outcome, 'idempotent' when it already stood so
-- Refuses: UNAUTHENTICATED, REQUEST_ID_REUSED, JOB_NOT_FOUND, JOB_ALREADY_TERMINAL, JOB_NOT_CLAIMED, LEASE_EXPIRED
-- Touches: token, principal, replay, job, ready, kinds, projects, projects_of, spent, running, limits, waiting,
--          waiter, wake, watched, profile, history
-- Cost:    O(log N) in the jobs of the same project and kind
-- Again:   the same outcome by the owner or a conductor is 'idempotent', whatever the lease; nothing written
-- Pieces:  clock, call, token, caller, replay, event, ready, waiter, wake, running, job
local job_id, outcome, result_ref, reason = ARGV[7], ARGV[8], ARGV[9], ARGV[10] or ''

-- check
local job = read_job(job_id)
local live, conductor, covered = caller(job.project)
if not live then return refuse('UNAUTHENTICATED') end
local _, reused = recall()
if reused then return reused end
if not job.exists or not covered then return refuse('JOB_NOT_FOUND') end
local same_fence = fence == '' or fence == job.fence
local mine = job.owner == client_id
if job.terminal then
  if job.standing == outcome and (mine or conductor) and same_fence then return { outcome, 'idempotent' } end
  return refuse('JOB_ALREADY_TERMINAL')
end
if job.standing ~= 'claimed' then return refuse('JOB_NOT_CLAIMED') end
if not same_fence then return refuse('LEASE_EXPIRED') end
if not conductor then
  if not mine then return refuse('JOB_NOT_CLAIMED') end
  if job.lease_until <= now then return refuse('LEASE_EXPIRED') end
end

-- write
local event = record(next_event(), 'job.' .. outcome, job_id, { project = job.project, from = 'claimed', to = outcome,
  attempts = whole(job.attempts), fence = job.fence, reason = reason, prev = job.last_event })
local changed = { 'standing', outcome, 'lease_until', '', 'changed_at', whole(now), 'last_event', event }
for field, value in pairs({ result_ref = result_ref, reason = reason }) do
  if value ~= '' then
    changed[#changed + 1] = field
    changed[#changed + 1] = value
  end
end
redis.call('HSET', key_job(job_id), unpack(changed))
restand(job_id, job, nil)
stop_running(job_id, job)
return { outcome }
