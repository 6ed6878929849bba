-- One job as the moves read it. A missing job, or a key of another type in its place, has no standing; its other facts
-- read as empty. A hash edited by hand may hold anything: `sound` tells whether it can be moved again.
local JOB = { 'standing', 'owner', 'project', 'kind', 'attempts', 'fence', 'lease_until', 'seq', 'last_event',
  'changed_at', 'due_at' }

local function read_job(job_id)
  local found, job = redis.pcall('HMGET', key_job(job_id), unpack(JOB)), {}
  for n = 1, #JOB do job[JOB[n]] = found[n] or '' end
  job.exists = job.standing ~= ''
  job.terminal = job.standing == 'completed' or job.standing == 'failed'
  job.open = job.standing == 'queued' or job.standing == 'claimed'
  job.sound = job.open and job.seq:match('^%d+$') and job.attempts:match('^%d*$') and job.fence:match('^%d*$')
  job.attempts = tonumber(job.attempts) or 0
  job.lease_until = tonumber(job.lease_until) or 0
  return job
end

-- Take a job out of the one index it stands in, and let it stand again from `at` on, if given.
local function restand(job_id, job, at)
  if job.attempts < MAX_ATTEMPTS then return stand(job_id, job.seq, job.project, job.kind, at) end
  if at then redis.call('ZADD', key_spent(), whole(at), job_id) else redis.call('ZREM', key_spent(), job_id) end
end
