-- Where jobs with attempts left stand: `ready` by (project, kind), its earliest entry carried up to `kinds` of the
-- project, to `projects_of` the kind, and from `kinds` to `projects`. Each entry begins with the job's seq, padded,
-- so that jobs of the same instant stand in the order of their creation, in every index.
local SEQ = 13 -- twelve digits and a colon

local function entry(seq, name) return string.format('%012.0f:', seq) .. name end

local function earliest(key) return redis.call('ZRANGE', key, 0, 0, 'WITHSCORES') end

local function carry_up(key, name, was, is)
  local old, new = was[1] and was[1]:sub(1, SEQ) .. name, is[1] and is[1]:sub(1, SEQ) .. name
  if old and old ~= new then redis.call('ZREM', key, old) end
  if new then redis.call('ZADD', key, is[2], new) end
end

-- Carry a changed earliest entry of (project, kind) up to the indexes above.
local function carry_all_up(project, kind, was, is)
  if was[1] == is[1] and was[2] == is[2] then return end
  carry_up(key_projects_of(kind), project, was, is)
  local kinds = key_kinds(project)
  local kinds_was = earliest(kinds)
  carry_up(kinds, kind, was, is)
  local kinds_is = earliest(kinds)
  if kinds_was[1] ~= kinds_is[1] or kinds_was[2] ~= kinds_is[2] then
    carry_up(key_projects(), project, kinds_was, kinds_is)
  end
end

-- Let a job be claimable from `at` on, or take it out of the index when `at` is nil.
local function stand(job_id, seq, project, kind, at)
  local key, member = key_ready(project, kind), entry(seq, job_id)
  local was = earliest(key)
  if at then redis.call('ZADD', key, whole(at), member) else redis.call('ZREM', key, member) end
  carry_all_up(project, kind, was, earliest(key))
end
