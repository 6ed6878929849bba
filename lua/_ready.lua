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

-- Let a job be claimable from `at` on, or take it out of the index when `at` is nil.
local function stand(job_id, seq, project, kind, at)
  carry_up(project, kind, place(key_ready(project, kind), entry(seq, job_id), at and whole(at)))
end
