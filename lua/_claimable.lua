-- What the caller may claim now: its grants, and the kinds that are held back because as many of them run as may.
local facts, held, asked = {}, {}, {}

local function read_principal()
  local principal = redis.call('HGETALL', key_principal(client_id))
  for n = 1, #principal, 2 do facts[principal[n]] = principal[n + 1] end
  return facts.standing == 'live'
end

local function hold(kind, most)
  most = tonumber(most)
  if not most or redis.call('ZCOUNT', key_running(kind), '(' .. whole(now), '+inf') < most then return end
  held[kind] = true
  held[#held + 1] = kind
end

-- Find out, once, which of the kinds asked for are held back ('' asks for any).
local function find_held(wanted)
  asked[wanted] = true
  if wanted ~= '' then return hold(wanted, redis.call('HGET', key_limits(), wanted)) end
  local limits = redis.call('HGETALL', key_limits())
  for n = 1, #limits, 2 do hold(limits[n], limits[n + 1]) end
end

-- Give the kind to take from a project: the wanted one, or the one whose earliest job has stood longest.
local function kind_in(project, wanted)
  if wanted ~= '' then return wanted end
  if #held == 0 then
    local head = earliest(key_kinds(project))
    return head[1] and head[1]:sub(SEQ + 1)
  end
  local due = redis.call('ZRANGE', key_kinds(project), '-inf', whole(now), 'BYSCORE', 'LIMIT', 0, #held + 1)
  for n = 1, #due do
    local kind = due[n]:sub(SEQ + 1)
    if not held[kind] then return kind end
  end
end

local function without_held(entries, most)
  local found = {}
  for n = 1, #entries do
    local project = entries[n]:sub(SEQ + 1)
    if #found < most and kind_in(project, '') then found[#found + 1] = project end
  end
  return found
end

-- The same for a star principal where kinds are held: look past projects that have nothing else. Beyond the first
-- 1,000 the look moves on with the clock, so that a later claim sees what this one did not.
local function star_projects_past_held()
  local index, due = key_projects(), redis.call('ZCOUNT', key_projects(), '-inf', whole(now))
  local found = without_held(redis.call('ZRANGE', index, 0, 999), STAR_PROJECTS)
  if due <= 1000 or #found > 0 then return found end
  local from = 1000 + now % (due - 1000)
  return without_held(redis.call('ZRANGE', index, from, from + 999), STAR_PROJECTS)
end

local function projects_with_due(wanted)
  local found = {}
  if held[wanted] then return found end
  if facts['grant:*'] then
    if wanted == '' and #held > 0 then return star_projects_past_held() end
    local index = wanted == '' and key_projects() or key_projects_of(wanted)
    local entries = redis.call('ZRANGE', index, '-inf', whole(now), 'BYSCORE', 'LIMIT', 0, STAR_PROJECTS)
    for n = 1, #entries do found[n] = entries[n]:sub(SEQ + 1) end
    return found
  end
  for field in pairs(facts) do
    if field:sub(1, 6) == 'grant:' then
      local project = field:sub(7)
      local head = earliest(wanted == '' and key_kinds(project) or key_ready(project, wanted))
      local due = head[1] and tonumber(head[2]) <= now
      if due and (#held == 0 or kind_in(project, wanted)) then found[#found + 1] = project end
    end
  end
  return found
end

-- Give the projects that the caller covers and that have claimable work of the wanted kind.
local function projects_with_work(wanted)
  local found = projects_with_due(wanted)
  if asked[wanted] or not found[1] then return found end
  find_held(wanted)
  return #held == 0 and found or projects_with_due(wanted)
end
