#!lua flags=allow-oom
-- Hold a batch of jobs against the indexes, and put back what is missing there; no standing and no owner changes.
-- Request: job ids, at most 1,000
-- Reply:   how many have lapsed, how many stand exhausted, how many entries were put back, ids beyond use
-- Refuses: nothing
-- Touches: job, ready, kinds, projects, projects_of, spent, damaged, running, jobs_of, principal, waiting, waiter, wake,
--          watched
-- Cost:    O(B log N): B ids, N jobs of a project and kind
-- Again:   nothing is left to put back
-- Pieces:  clock, call, ready, waiter, wake, job
local lapsed, exhausted, put_back, beyond_use = 0, 0, 0, {}

-- check
local function since(job)
  if job.standing == 'claimed' then return job.lease_until end
  return tonumber(job.due_at ~= '' and job.due_at or job.changed_at)
end

-- Tell whether the jobs that run show this one as it is.
local function shown_running(job_id, job)
  local until_ = redis.call('ZSCORE', key_running(job.kind), job_id)
  return until_ == (job.standing == 'claimed' and whole(job.lease_until))
end

-- Tell whether the indexes above show the earliest job of (project, kind) as it is.
local function shown_above(project, kind)
  local function shows(index, name, head)
    return redis.call('ZSCORE', index, head[1]:sub(1, SEQ) .. name) == head[2]
  end
  local head, top = earliest(key_ready(project, kind)), earliest(key_kinds(project))
  return top[1] and shows(key_kinds(project), kind, head) and shows(key_projects_of(kind), project, head)
    and shows(key_projects(), project, top)
end

-- Give the lane whose list of jobs lacks this one, if any.
local function left_out_of(job_id, job)
  local lane_id = job.exists and job.seq:match('^%d+$') and redis.call('HGET', key_job(job_id), 'lane_id') or ''
  return lane_id ~= '' and not redis.call('ZSCORE', key_jobs_of(lane_id), job_id) and lane_id
end

-- write
for n = 7, #ARGV do
  local job_id = ARGV[n]
  local job = read_job(job_id)
  local at = job.sound and since(job)
  if at then
    if job.attempts >= MAX_ATTEMPTS then
      if job.standing == 'queued' or at <= now then exhausted = exhausted + 1 end
    elseif job.standing == 'claimed' and at <= now then
      lapsed = lapsed + 1
    end
    local index, member = key_spent(), job_id
    if job.attempts < MAX_ATTEMPTS then
      index, member = key_ready(job.project, job.kind), entry(job.seq, job_id)
    end
    if not redis.call('ZSCORE', index, member) then
      restand(job_id, job, at)
      wake(job.project, job.kind)
      put_back = put_back + 1
    end
    if not shown_running(job_id, job) then
      redis.call('ZREM', key_running(job.kind), job_id)
      if job.standing == 'claimed' then redis.call('ZADD', key_running(job.kind), whole(at), job_id) end
      put_back = put_back + 1
    end
    if job.attempts < MAX_ATTEMPTS and not shown_above(job.project, job.kind) then
      mend_above(job.project, job.kind)
      put_back = put_back + 1
    end
  end
  local lane_id = left_out_of(job_id, job)
  if lane_id then
    redis.call('ZADD', key_jobs_of(lane_id), whole(tonumber(job.seq)), job_id)
    put_back = put_back + 1
  end
  if at or job.terminal then
    redis.call('ZREM', key_damaged(), job_id)
  elseif redis.call('EXISTS', key_job(job_id)) == 1 then
    redis.call('ZADD', key_damaged(), whole(now), job_id)
    beyond_use[#beyond_use + 1] = job_id
  end
end
return { lapsed, exhausted, put_back, table.concat(beyond_use, ' ') }
