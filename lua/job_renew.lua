#!lua flags=allow-oom
-- Let the owner of a live lease hold the job longer, or shorter: from now on for the time given.
-- Request: job_id, lease in milliseconds
-- Reply:   lease_until
-- Refuses: UNAUTHENTICATED, JOB_NOT_FOUND, JOB_ALREADY_TERMINAL, JOB_NOT_CLAIMED, LEASE_EXPIRED
-- Touches: token, principal, job, ready, kinds, projects, projects_of, spent, running
-- Cost:    O(log N) in the jobs of the same project and kind
-- Again:   the lease ends the given time after the last call; no event, and no standing changes
-- Pieces:  clock, call, token, caller, ready, job
local job_id, lease = ARGV[7], tonumber(ARGV[8])

-- check
local job = read_job(job_id)
local live, _, covered = caller(job.project)
if not live then return refuse('UNAUTHENTICATED') end
if not job.exists or not covered then return refuse('JOB_NOT_FOUND') end
if job.terminal then return refuse('JOB_ALREADY_TERMINAL') end
if job.standing ~= 'claimed' then return refuse('JOB_NOT_CLAIMED') end
if fence ~= job.fence then return refuse('LEASE_EXPIRED') end
if job.owner ~= client_id then return refuse('JOB_NOT_CLAIMED') end
if job.lease_until <= now then return refuse('LEASE_EXPIRED') end

-- write
local lease_until = now + lease
redis.call('HSET', key_job(job_id), 'lease_until', whole(lease_until))
redis.call('ZADD', key_running(job.kind), whole(lease_until), job_id)
restand(job_id, job, lease_until)
return { whole(lease_until) }
