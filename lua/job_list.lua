#!lua flags=no-writes
-- List the covered jobs, newest change first, or those of one lane, newest creation first.
-- Request: 'operator' or ''; the event number before which to begin ('' for the newest), how many; then the filters,
--          '' for none: standing, kind, 'project' when the next one filters, project, lane_id, owner
-- Reply:   server time, the event number before which to go on ('' at the end), a list of jobs, each as shown and then
--          the event number where it stands in the list
-- Refuses: UNAUTHENTICATED
-- Touches: principal, history, job, jobs_of, token
-- Cost:    O(log N + L): N events, or jobs of the lane, L those looked at: at most 1,000 events and 400 jobs
-- Again:   the jobs as they are then
-- Pieces:  clock, call, token, caller, sight, shown
local before, most, standing, kind = ARGV[8], tonumber(ARGV[9]), ARGV[10], ARGV[11]
local has_project, project, lane_id, owner = ARGV[12] == 'project', ARGV[13], ARGV[14], ARGV[15]

-- check
local jobs, looked, read, passed = {}, 0, 0, {}

local function fits(job)
  return (standing == '' or standing == job.is or standing == job.standing) and (kind == '' or kind == job.kind)
    and (not has_project or project == job.project) and (lane_id == '' or lane_id == job.lane_id)
    and (owner == '' or owner == job.owner) and covers(job.project)
end

local function list(job)
  local facts = row(job)
  facts[#facts + 1] = before
  jobs[#jobs + 1] = facts
end

-- Both walk until there is enough, or for as long as one run may, and leave in `before` where to go on. The jobs of a
-- lane have an index of their own, which the events of others do not lengthen.
local function walk_lane()
  repeat
    local from = before == '' and '+inf' or '(' .. before
    local page = redis.call('ZRANGE', key_jobs_of(lane_id), from, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 100,
      'WITHSCORES')
    for n = 1, #page, 2 do
      before, read = whole(tonumber(page[n + 1])), read + 1
      local job = look(page[n])
      if job and fits(job) then list(job) end
      if #jobs == most then return end
    end
    if #page < 200 then before = '' end
  until before == '' or read > 300
end

-- In the feed each job stands at its last event.
local function walk_feed()
  if before == '0' then before = '' return end -- there is no id before the first
  repeat
    local from = before == '' and '+' or '(' .. before .. '-0'
    local page = redis.call('XREVRANGE', key_history(), from, '-', 'COUNT', 100)
    for _, event in ipairs(page) do
      before, looked = event[1]:match('^%d+'), looked + 1
      local name, entity_id, of_project = event[2][2], event[2][4], event[2][6]
      -- Only the newest event of a job can be its last.
      local first = name:sub(1, 4) == 'job.' and not passed[entity_id]
      if first and (not has_project or project == of_project) and covers(of_project) then
        passed[entity_id], read = true, read + 1
        local job = look(entity_id)
        if job and job.last_event == before and fits(job) then list(job) end
        if #jobs == most then return end
      end
    end
    if #page < 100 then before = '' end
  until before == '' or looked >= 1000 or read > 300
end

if lane_id ~= '' then walk_lane() else walk_feed() end
return { whole(now), before, jobs }
