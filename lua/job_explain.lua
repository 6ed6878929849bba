#!lua flags=no-writes
-- Tell by one word whether the caller could claim a covered job now, and if not, why not.
-- Request: 'operator' or ''; job_id
-- Reply:   server time, the word, until when that holds ('' when no time changes it), since when it is claimable, how
--          many jobs stand before it, the kind's limit, attempts, kind
-- Refuses: UNAUTHENTICATED, JOB_NOT_FOUND
-- Touches: principal, job, payload, ready, kinds, projects, projects_of, running, limits, token
-- Cost:    O(log N) in the jobs of the same project and kind
-- Again:   how it is then
-- Pieces:  clock, call, token, caller, ready, job, sight
local job_id = ARGV[8]

-- check
local job = read_job(job_id)
if not job.exists or not covers(job.project) then return refuse('JOB_NOT_FOUND') end
local limit = redis.call('HGET', key_limits(), job.kind) or ''
local since, before = '', ''

local function because(word, until_)
  return { whole(now), word, until_ and whole(until_) or '', since, before, limit, whole(job.attempts), job.kind }
end

-- Tell whether the indexes above show the earliest job of the same project and kind as it is.
local function shown_above()
  local function shows(index, name, head)
    return head[1] and redis.call('ZSCORE', index, head[1]:sub(1, SEQ) .. name) == head[2]
  end
  local head = earliest(key_ready(job.project, job.kind))
  return shows(key_kinds(job.project), job.kind, head) and shows(key_projects_of(job.kind), job.project, head)
    and shows(key_projects(), job.project, earliest(key_kinds(job.project)))
end

-- Tell whether as many jobs of this kind run as may, and when they are fewer, should they lapse: an instant that is
-- told only of a lease that is covered.
local function is_full()
  local from = '(' .. whole(now)
  local beyond = limit ~= '' and redis.call('ZCOUNT', key_running(job.kind), from, '+inf') - tonumber(limit) or -1
  if beyond < 0 then return false end
  local ending = redis.call('ZRANGE', key_running(job.kind), from, '+inf', 'BYSCORE', 'LIMIT', beyond, 1, 'WITHSCORES')
  local project = redis.call('HGET', key_job(ending[1]), 'project')
  return true, project and covers(project) and tonumber(ending[2])
end

-- A star's claim considers the projects longest in wait only.
local function behind_others()
  local head = earliest(key_ready(job.project, job.kind))
  local rank = redis.call('ZRANK', key_projects_of(job.kind), head[1]:sub(1, SEQ) .. job.project)
  return star and rank and rank >= STAR_PROJECTS
end

if job.terminal then return because('terminal') end
if not job.sound or type(redis.pcall('STRLEN', key_payload(job_id))) == 'table' then return because('damaged') end
if job.standing == 'claimed' and job.lease_until > now then return because('leased', job.lease_until) end
if job.attempts >= MAX_ATTEMPTS then return because('exhausted') end
local member = entry(job.seq, job_id)
local at = redis.call('ZSCORE', key_ready(job.project, job.kind), member)
local due_at = job.standing == 'queued' and tonumber(job.due_at) or 0
if at and due_at > now then return because('delayed', due_at) end
if not at or tonumber(at) > now or not shown_above() then return because('unindexed') end
since = at
before = whole(redis.call('ZRANK', key_ready(job.project, job.kind), member))
local full, until_ = is_full()
if full then return because('kind_full', until_) end
if behind_others() then return because('behind_other_projects') end
return because('claimable')
