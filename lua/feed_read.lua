#!lua flags=no-writes
-- Read the feed of what the caller covers, forwards or backwards.
-- Request: 'operator' or ''; 'back' or ''; the event number to go on from ('' for the end of the feed where the
--          direction begins), how many; then the filters, '' for none: how the event's name begins, 'project' when the
--          next one filters, project, actor
-- Reply:   server time, the number of the last event looked at ('' when there was none), 'more' when there may be more,
--          a list of entries
-- Refuses: UNAUTHENTICATED
-- Touches: principal, history, lane, joined, token
-- Cost:    O(log N + L): N events, L those looked at, at most 1,000, of which at most 200 are given
-- Again:   the events as they are then
-- Pieces:  clock, call, token, caller, sight, visible
local back, last, most, begins = ARGV[8] == 'back', ARGV[9], math.min(200, ARGV[10]), ARGV[11]
local has_project, project, actor = ARGV[12] == 'project', ARGV[13], ARGV[14]

-- check
-- Events of jobs and lanes are seen by whoever sees those; the registry's and the operators' by who covers all.
local function visible(name, entity_id, of_project)
  if name:sub(1, 4) == 'job.' then return covers(of_project) end
  if name:sub(1, 5) == 'lane.' then return sees_lane(of_project, entity_id) end
  return star
end

local function fits(fields)
  local name, entity_id, of_project, by = fields[2], fields[4], fields[6], fields[8]
  return name:sub(1, #begins) == begins and (not has_project or project == of_project)
    and (actor == '' or actor == by) and visible(name, entity_id, of_project)
end

local function page()
  local from = last ~= '' and '(' .. last .. '-0'
  if back then return redis.call('XREVRANGE', key_history(), from or '+', '-', 'COUNT', 100) end
  return redis.call('XRANGE', key_history(), from or '-', '+', 'COUNT', 100)
end

local found, looked = {}, 0
if back and last == '0' then return { whole(now), '', '', found } end -- there is no id before the first
repeat
  local events = page()
  for _, event in ipairs(events) do
    last, looked = event[1]:match('^%d+'), looked + 1
    if fits(event[2]) then found[#found + 1] = event end
    if #found == most then return { whole(now), last, 'more', found } end
  end
  if #events < 100 then return { whole(now), last, '', found } end
until looked >= 1000
return { whole(now), last, 'more', found }
