#!lua flags=allow-oom
-- Take one claimable job under a lease that only one caller can win.
-- Request: kind ('' for any), lease in milliseconds
-- Reply:   job_id, kind, payload, lease_until, attempts, fence, 'replay' or '', ids set aside as damaged, 'more' when
--          there may be more; or none
-- Refuses: UNAUTHENTICATED, REQUEST_ID_REUSED
-- Touches: token, principal, replay, ready, kinds, projects, projects_of, turns, job, payload, spent, damaged, limits,
--          running, waiting, waiter, wake, watched, profile, history
-- Cost:    O(G + log N): G the caller's grants (at most 1,000; 64 projects for a star), N jobs of a project and kind;
--          without a kind O(L) more for each of them, L the kinds held back (at most 50); 2,000 for a star then
-- Again:   under the same request id the same claim while its lease is live and current, else none; nothing written
-- Pieces:  clock, call, token, replay, event, ready, waiter, wake, claimable, job
local wanted, lease = ARGV[7], tonumber(ARGV[8])

-- check
if not read_principal() then return refuse('UNAUTHENTICATED') end
local answer, reused = recall()
if reused then return reused end
if answer then
  local job_id, claimed_fence = answer:match('^(.+)/(%d+)$')
  local job = redis.call('HMGET', key_job(job_id),
    'standing', 'fence', 'lease_until', 'kind', 'attempts', 'project')
  local covered = facts['grant:*'] or facts['grant:' .. (job[6] or '')]
  if job[1] ~= 'claimed' or job[2] ~= claimed_fence or (tonumber(job[3]) or 0) <= now or not covered then
    return { '', '', '', '', '', '', 'replay' }
  end
  return { job_id, job[4], redis.call('GET', key_payload(job_id)) or '', job[3], job[5], job[2], 'replay' }
end

-- Byte order, for Lua's own order of strings follows the server's locale.
local function comes_before(a, b)
  for n = 1, math.min(#a, #b) do
    local x, y = a:byte(n), b:byte(n)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- Give the project whose turn it is: served longest ago, never served first, then by name.
local function whose_turn(projects)
  if #projects < 2 then return projects[1] end
  local turns = redis.call('HMGET', key_turns(), unpack(projects))
  local best = 1
  for n = 2, #projects do
    local mine, theirs = tonumber(turns[n]) or 0, tonumber(turns[best]) or 0
    if mine < theirs or (mine == theirs and comes_before(projects[n], projects[best])) then best = n end
  end
  return projects[best]
end

-- Tell whether an entry of the index leads to a job that can be claimed as it says.
local function leads_to(job, member, job_id, project, kind)
  return job.sound and job.project == project and job.kind == kind and job.attempts < MAX_ATTEMPTS
    and entry(job.seq, job_id) == member
end

-- write
local aside = {}

-- A hash edited beyond use must not block what stands behind it.
local function set_aside(job_id, project, kind, head)
  redis.call('ZADD', key_damaged(), whole(now), job_id)
  carry_up(project, kind, place(key_ready(project, kind), head[1]))
  aside[#aside + 1] = job_id
end

-- Wake somebody for the job behind the claimed one, unless that was done when it was put there.
local function pass_on(member, project, kind)
  if not waited_for(kind) then return end
  local following = read_job(member:sub(SEQ + 1))
  if following.standing ~= 'queued' or following.due_at ~= '' then wake(project, kind) end
end

local function win(job_id, job, payload, several)
  local attempts, claimed_fence = job.attempts + 1, whole(math.max((tonumber(job.fence) or 0) + 1, now))
  local lease_until, prev, takeover = now + lease, job.last_event, job.standing == 'claimed'
  local number = next_event(takeover and 2 or 1)
  if takeover then
    prev = record(number - 1, 'job.reclaimed', job_id, { project = job.project, reason = job.owner, prev = prev })
  end
  local event = record(number, 'job.claimed', job_id, { project = job.project, from = job.standing, to = 'claimed',
    attempts = whole(attempts), fence = claimed_fence, prev = prev })
  redis.call('HSET', key_job(job_id), 'standing', 'claimed', 'owner', client_id, 'holder', holder,
    'lease_until', whole(lease_until), 'attempts', whole(attempts), 'fence', claimed_fence,
    'changed_at', whole(now), 'last_event', event)
  if job.due_at ~= '' then redis.call('HDEL', key_job(job_id), 'due_at') end
  redis.call('ZADD', key_running(job.kind), whole(lease_until), job_id)
  local last = attempts >= MAX_ATTEMPTS
  local following, at = stand(job_id, job.seq, job.project, job.kind, not last and lease_until or nil)
  if last then redis.call('ZADD', key_spent(), whole(lease_until), job_id) end
  redis.call('HSET', key_turns(), job.project, event)
  remember(job_id .. '/' .. claimed_fence)
  if following == entry(job.seq, job_id) then following = nil end
  if following and tonumber(at) <= now + WAIT_LOOK then pass_on(following, job.project, job.kind) end
  local more = wanted == '' or several or following and tonumber(at) <= now
  return { job_id, job.kind, payload or '', whole(lease_until), whole(attempts), claimed_fence, '',
    table.concat(aside, ' '), more and 'more' or '' }
end

for _ = 1, 100 do
  local projects = projects_with_work(wanted)
  local project = whose_turn(projects)
  if not project then break end
  local kind = kind_in(project, wanted)
  local head = kind and earliest(key_ready(project, kind)) or {}
  if not head[1] or tonumber(head[2]) > now then
    mend_above(project, kind)
  else
    local job_id = head[1]:sub(SEQ + 1)
    local job, payload = read_job(job_id), redis.pcall('GET', key_payload(job_id))
    if type(payload) == 'table' or not leads_to(job, head[1], job_id, project, kind) then
      set_aside(job_id, project, kind, head)
    elseif job.standing == 'claimed' and job.lease_until > now then
      stand(job_id, job.seq, project, kind, job.lease_until) -- the entry was wrong; the lease is live
    else
      return win(job_id, job, payload, #projects > 1)
    end
  end
end
return { '', '', '', '', '', '', '', table.concat(aside, ' ') }
