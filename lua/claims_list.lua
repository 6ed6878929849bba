#!lua flags=no-writes
-- List covered claims, live or lapsed, those first whose lease ends first.
-- Request: 'operator' or ''; standing: claimed, lapsed or '' for both; kind ('' for all), how many
-- Reply:   server time, 'more' when there may be more, a list of jobs, each as shown
-- Refuses: UNAUTHENTICATED
-- Touches: principal, job, ready, kinds, projects, running, spent, token
-- Cost:    O(P + I log N + L): P pairs of project and kind, at most 1,000; I indexes of N entries, at most 100; L
--          entries looked at, at most 3,000
-- Again:   the claims as they are then
-- Pieces:  clock, call, token, caller, ready, sight, shown, covered
local standing, kind, most = ARGV[8], ARGV[9], tonumber(ARGV[10])
local RANGES = { lapsed = { '-inf', whole(now) }, claimed = { '(' .. whole(now), '+inf' } }
if standing ~= '' then RANGES = { [standing] = RANGES[standing] } end
local claims, there, more = {}, {}, false
-- Of an index that was not read to its end, nothing is known beyond the last entry: its part of the list ends there.
local known_until = { lapsed = math.huge, claimed = math.huge }

local function add(job_id, at)
  local part = at > now and 'claimed' or 'lapsed'
  if there[job_id] or not RANGES[part] then return end
  there[job_id] = true
  claims[#claims + 1] = { at, job_id, part }
end

-- Take the first entries of an index; of one that holds queued jobs too, those that are running.
local function take(index, share, running)
  for part, range in pairs(RANGES) do
    local found = redis.call('ZRANGE', index, range[1], range[2], 'BYSCORE', 'LIMIT', 0, share, 'WITHSCORES')
    for n = 1, #found, 2 do
      local job_id = running and found[n]:sub(SEQ + 1) or found[n]
      if not running or redis.call('ZSCORE', running, job_id) then add(job_id, tonumber(found[n + 1])) end
    end
    if #found == 2 * share then known_until[part] = math.min(known_until[part], tonumber(found[#found])) end
  end
end

-- Give the indexes to read: those of running jobs by kind, or where these span projects that the caller does not
-- cover, its pairs of project and kind.
local function find_indexes()
  if kind ~= '' and star then return { { kind } } end
  find_pairs()
  local indexes, taken = {}, {}
  for _, pair in ipairs(pairs_) do
    local name = star and pair[2] or pair[1] .. '\n' .. pair[2]
    if not taken[name] and (kind == '' or kind == pair[2]) then
      taken[name] = true
      if #indexes < 100 then indexes[#indexes + 1] = { pair[2], not star and pair[1] } else more = true end
    end
  end
  more = more or more_pairs
  return indexes
end

-- check
local indexes = find_indexes()
for _, index in ipairs(indexes) do
  local of_kind, project = index[1], index[2]
  local ready = project and key_ready(project, of_kind)
  take(ready or key_running(of_kind), math.floor(1000 / #indexes), project and key_running(of_kind))
end
local spent, more_spent = find_spent()
for _, one in ipairs(spent) do add(one[1], one[2]) end
table.sort(claims, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
local rows = {}
for _, claim in ipairs(claims) do
  local job = claim[1] <= known_until[claim[3]] and look(claim[2])
  if job and job.standing == 'claimed' and (kind == '' or kind == job.kind) and covers(job.project) then
    if #rows == most then more = true break end
    rows[#rows + 1] = row(job)
  end
end
more = more or more_spent or math.min(known_until.lapsed, known_until.claimed) < math.huge
return { whole(now), more and 'more' or '', rows }
