-- Where jobs with attempts left stand: `ready` by (project, kind), its earliest entry carried up to `kinds` of the
-- project, to `projects_of` the kind, and from `kinds` to `projects`. Each entry begins with the job's seq, padded,
-- so that jobs of the same instant stand in the order of their creation, in every index.
local SEQ = 13 -- twelve digits and a colon

local function entry(seq, name) return string.format('%012.0f:', seq) .. name end

local function earliest(key) return redis.call('ZRANGE', key, 0, 0, 'WITHSCORES') end

local function stands_before(score, member, other_score, other)
  score, other_score = tonumber(score), tonumber(other_score)
  if score ~= other_score then return score < other_score end
  return tonumber(member:sub(1, SEQ - 1)) < tonumber(other:sub(1, SEQ - 1))
end

-- Put a member at a score, or take it out when the score is nil; give the earliest entry before and after as
-- member and score. `old`, when given, is taken out as well. Two entries read tell both.
local function place(key, member, score, old)
  local two = redis.call('ZRANGE', key, 0, 1, 'WITHSCORES')
  if old and old ~= member then redis.call('ZREM', key, old) end
  if score then redis.call('ZADD', key, score, member) elseif member then redis.call('ZREM', key, member) end
  local first, at = two[1], two[2]
  if first and (first == member or first == old) then first, at = two[3], two[4] end
  if score and (not first or stands_before(score, member, at, first)) then first, at = member, score end
  return two[1], two[2], first, at
end

-- Carry the changed earliest entry of (project, kind) up to the indexes above.
local function carry_up(project, kind, was, was_at, is, is_at)
  if was == is and was_at == is_at then return end
  local seq_was, seq_is = was and was:sub(1, SEQ), is and is:sub(1, SEQ)
  local of_kind = key_projects_of(kind)
  if was and seq_was ~= seq_is then redis.call('ZREM', of_kind, seq_was .. project) end
  if is then redis.call('ZADD', of_kind, is_at, seq_is .. project) end
  local kind_was, kind_was_at, kind_is, kind_is_at =
    place(key_kinds(project), is and seq_is .. kind, is_at, was and seq_was .. kind)
  if kind_was == kind_is and kind_was_at == kind_is_at then return end
  seq_was, seq_is = kind_was and kind_was:sub(1, SEQ), kind_is and kind_is:sub(1, SEQ)
  if kind_was and seq_was ~= seq_is then redis.call('ZREM', key_projects(), seq_was .. project) end
  if kind_is then redis.call('ZADD', key_projects(), kind_is_at, seq_is .. project) end
end

-- Let a job be claimable from `at` on, or take it out of the index when `at` is nil; give the earliest entry that
-- then stands in its place, and its instant.
local function stand(job_id, seq, project, kind, at)
  local was, was_at, is, is_at = place(key_ready(project, kind), entry(seq, job_id), at and whole(at))
  carry_up(project, kind, was, was_at, is, is_at)
  return is, is_at
end

-- Write anew what the indexes above say of (project, kind), where they promise what is not there or miss what is.
-- A stale promise is among the first entries that a claim looks at, so a bounded look finds it.
local function mend_above(project, kind)
  local function drop(index, name)
    for _, member in ipairs(redis.call('ZRANGE', index, 0, STAR_PROJECTS - 1)) do
      if member:sub(SEQ + 1) == name then redis.call('ZREM', index, member) end
    end
  end
  local function put(index, name, head)
    if head[1] then redis.call('ZADD', index, head[2], head[1]:sub(1, SEQ) .. name) end
  end
  local kinds = key_kinds(project)
  if kind then
    local head = earliest(key_ready(project, kind))
    drop(kinds, kind)
    put(kinds, kind, head)
    drop(key_projects_of(kind), project)
    put(key_projects_of(kind), project, head)
  end
  drop(key_projects(), project)
  put(key_projects(), project, earliest(kinds))
end
