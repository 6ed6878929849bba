-- One job as it is shown: the facts below in this order, each as text, '' where unset. `standing` is told more finely
-- than it is stored: a queued job may also be delayed or exhausted, a claimed one lapsed or exhausted, and what was
-- edited beyond use is damaged.
local SHOWN = { 'kind', 'project', 'lane_id', 'standing', 'owner', 'holder', 'attempts', 'fence', 'lease_until',
  'due_at', 'created_at', 'changed_at', 'result_ref', 'reason', 'last_event', 'seq' }

local function finer(job)
  if job.standing == 'completed' or job.standing == 'failed' then return job.standing end
  local sound = job.seq:match('^%d+$') and job.attempts:match('^%d*$') and job.fence:match('^%d*$')
  if not sound or (job.standing ~= 'queued' and job.standing ~= 'claimed') then return 'damaged' end
  local claimed = job.standing == 'claimed'
  if claimed and (tonumber(job.lease_until) or 0) > now then return 'claimed' end
  if (tonumber(job.attempts) or 0) >= MAX_ATTEMPTS then return 'exhausted' end
  if claimed then return 'lapsed' end
  return (tonumber(job.due_at) or 0) > now and 'delayed' or 'queued'
end

-- Give a job as a table with `is`, its finer standing; nil when there is none.
local function look(job_id)
  local found, job = redis.pcall('HMGET', key_job(job_id), unpack(SHOWN)), { job_id = job_id }
  for n = 1, #SHOWN do job[SHOWN[n]] = found[n] or '' end
  if job.standing == '' then return nil end
  job.is = finer(job)
  return job
end

local function row(job)
  local facts = { job.job_id, job.is }
  for n = 1, #SHOWN do facts[n + 2] = job[SHOWN[n]] end
  return facts
end
