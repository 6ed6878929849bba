#!lua flags=no-writes
-- List the covered jobs, newest change first, by walking the feed backwards: each stands at its last event.
-- Request: 'operator' or ''; the event number before which to begin ('' for the newest), how many; then the filters,
--          '' for none: standing, kind, 'project' when the next one filters, project, lane_id, owner
-- Reply:   server time, the event number before which to go on ('' at the end), a list of jobs, each as shown
-- Refuses: UNAUTHENTICATED
-- Touches: principal, history, job, token
-- Cost:    O(log N + L): N events, L those looked at, at most 1,000, and at most 400 jobs
-- Again:   the jobs as they are then
-- Pieces:  clock, call, token, caller, sight, shown
local before, most, standing, kind = ARGV[8], tonumber(ARGV[9]), ARGV[10], ARGV[11]
local has_project, project, lane_id, owner = ARGV[12] == 'project', ARGV[13], ARGV[14], ARGV[15]

-- check
local function fits(job)
  return (standing == '' or standing == job.is or standing == job.standing) and (kind == '' or kind == job.kind)
    and (not has_project or project == job.project) and (lane_id == '' or lane_id == job.lane_id)
    and (owner == '' or owner == job.owner) and covers(job.project)
end

local jobs, looked, read, passed = {}, 0, 0, {}
repeat
  local page = redis.call('XREVRANGE', key_history(), before == '' and '+' or '(' .. before .. '-0', '-', 'COUNT', 100)
  for _, event in ipairs(page) do
    before, looked = event[1]:match('^%d+'), looked + 1
    local name, entity_id, of_project = event[2][2], event[2][4], event[2][6]
    -- Only the newest event of a job can be its last.
    local first = name:sub(1, 4) == 'job.' and not passed[entity_id]
    if first and (not has_project or project == of_project) and covers(of_project) then
      passed[entity_id], read = true, read + 1
      local job = look(entity_id)
      if job and job.last_event == before and fits(job) then jobs[#jobs + 1] = row(job) end
      if #jobs == most then return { whole(now), before, jobs } end
    end
  end
  if #page < 100 then return { whole(now), '', jobs } end
until looked >= 1000 or read > 300
return { whole(now), before, jobs }
